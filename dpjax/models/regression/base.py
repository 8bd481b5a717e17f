"""What all regressions have in common as models."""

from dpjax.engine.lane_model import LaneModel


class RegressionModel(LaneModel):
    """A model of sums of products with coefficients theta, intercept first, and residual variance sigma2."""

    kind = "linear-regression"
    #: The utility of Bernstein and Sheldon 2019 is about these.
    compared = ("theta", "sigma2")
