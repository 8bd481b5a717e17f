"""Pictures of posteriors and studies, with matplotlib."""

from dpjax._base.lazy import attach

_MODULES = {
    "calibration_figure": "dpjax.figures.ranks",
    "chosen_names": "dpjax.figures.style",
    "coverage_figure": "dpjax.figures.study",
    "ks_figure": "dpjax.figures.study",
    "legend_line": "dpjax.figures.style",
    "method_looks": "dpjax.figures.style",
    "mmd_figure": "dpjax.figures.study",
    "new_figure": "dpjax.figures.style",
    "parameters_of": "dpjax.figures.study",
    "place_legend": "dpjax.figures.style",
    "plain_log": "dpjax.figures.study",
    "posteriors_figure": "dpjax.figures.posteriors",
    "save_figure": "dpjax.figures.style",
    "seconds_by_records": "dpjax.figures.study",
    "seconds_figure": "dpjax.figures.study",
    "shown_names": "dpjax.figures.posteriors",
    "traces_figure": "dpjax.figures.traces",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
