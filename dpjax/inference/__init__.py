"""From releases to posteriors: methods, reruns, prediction, files."""

from dpjax._base.lazy import attach

_MODULES = {
    "METHODS": "dpjax.inference.methods",
    "Posterior": "dpjax.inference.posterior",
    "Prediction": "dpjax.inference.prediction",
    "RegressionPosterior": "dpjax.inference.predictive",
    "fit_many": "dpjax.inference.many",
    "load_posterior": "dpjax.inference.posterior_file",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
