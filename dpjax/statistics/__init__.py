"""What is summed over records: names, units, sensitivities."""

from dpjax._base.lazy import attach

_MODULES = {
    "FamilyStatistic": "dpjax.statistics.family",
    "MonomialStatistic": "dpjax.statistics.base",
    "MultinomialStatistic": "dpjax.statistics.multinomial",
    "OriginStatistic": "dpjax.statistics.origin",
    "ProductStatistic": "dpjax.statistics.products",
    "RegressionStatistic": "dpjax.statistics.regression",
    "Statistic": "dpjax.statistics.base",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
