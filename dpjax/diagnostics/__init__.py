"""R-hat, effective sample sizes and Monte Carlo errors."""

from dpjax._base.lazy import attach

_MODULES = {
    "Diagnostics": "dpjax.diagnostics.ranks",
    "Worst": "dpjax.diagnostics.ranks",
    "batch_means_ess": "dpjax.diagnostics.batch_means",
    "diagnose": "dpjax.diagnostics.ranks",
    "split_rhat": "dpjax.diagnostics.batch_means",
    "tail_index": "dpjax.diagnostics.tails",
    "worst": "dpjax.diagnostics.ranks",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
