"""Read the posterior of a regression back from the file that `Posterior.save` wrote."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from dpjax.errors import InputError, require
from dpjax.origin_statistic import OriginStatistic
from dpjax.prediction import RegressionPosterior, other_model, with_intercept
from dpjax.statistics import RegressionStatistic


def load_posterior(path: str | os.PathLike | Any) -> RegressionPosterior:
    """The posterior of a regression from the NetCDF file that `Posterior.save` wrote; the release is not needed.

    Args:
        path: of the file.

    Raises:
        InputError: the file cannot be read, is broken, or holds something else, such as the posterior of another
            model.
        MissingExtraError: h5netcdf is not installed.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"posterior must be the path of a file; got {type(path).__name__}")
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(f"posterior {os.fspath(path)}: cannot be read ({error.strerror})") from None
    h5netcdf = require("h5netcdf", "report", "reading a posterior")
    try:
        with h5netcdf.File(path, "r") as file:
            return _read_group(file["posterior"])
    except InputError as error:
        raise InputError(f"posterior {os.fspath(path)}: {error}") from None
    except Exception as error:  # of h5netcdf, h5py and HDF5, for whatever may be wrong with a file
        raise InputError(
            f"posterior {os.fspath(path)}: is not a whole file of draws as dpjax fit --output writes it "
            f"({type(error).__name__})"
        ) from None


def _read_group(group: Any) -> RegressionPosterior:
    attributes = {name: _decoded(value) for name, value in dict(group.attrs).items()}
    if attributes.get("model", RegressionStatistic.kind) != RegressionStatistic.kind:
        raise InputError(other_model(str(attributes["model"])))
    for name in ("model", "features", "target", "intercept", "scaling", "bounds", "method", "converged"):
        if name not in attributes:
            raise InputError(f"has no attribute {name!r}: it was not written by dpjax fit --output")
    features, bounds, target = (
        json.loads(attributes["features"]),
        json.loads(attributes["bounds"]),
        attributes["target"],
    )
    statistic: RegressionStatistic
    if int(attributes["intercept"]):
        scaling = None if attributes["scaling"] == "null" else attributes["scaling"]
        statistic = RegressionStatistic(features, target, bounds, scaling)
    else:
        norms = json.loads(attributes.get("norms", "null"))
        statistic = OriginStatistic(features, target, bounds, None, norms=norms)
    theta, sigma2 = group.variables["theta"], group.variables["sigma2"]
    if tuple(theta.dimensions) != ("chain", "draw", "coefficient") or tuple(sigma2.dimensions) != ("chain", "draw"):
        raise InputError("needs theta (chain, draw, coefficient) and sigma2 (chain, draw)")
    names = [_decoded(name) for name in group.variables["coefficient"][...].tolist()]
    first = 0 if statistic.intercept else 1
    expected = [statistic.coordinate("theta", (i,)) for i in range(first, statistic.p + 1)]
    if sorted(names) != sorted(expected):
        raise InputError("coefficients of theta are not those of the intercept, if there is one, and the features")
    ordered = np.asarray(theta[...], dtype=np.float64)[..., [names.index(name) for name in expected]]
    return RegressionPosterior(
        theta=with_intercept(ordered, statistic.p),
        sigma2=np.asarray(sigma2[...], dtype=np.float64),
        statistic=statistic,
        method=str(attributes["method"]),
        converged=bool(int(attributes["converged"])),
    )


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
