"""ArviZ objects of posteriors, and their NetCDF files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dpjax._base import files
from dpjax.errors import require
from dpjax.inference.posterior_groups import groups, sealed_hdf5


def to_arviz(posterior: Any, release: Mapping[str, Any]) -> Any:
    """The object of a `dpjax.inference.posterior.Posterior`; `release` becomes attributes of every group."""
    arviz = require("arviz", "saving a posterior")
    attributes = {
        "method": posterior.method,
        "dpjax_version": _version(),
        "converged": int(not posterior.warnings()),
        "seconds": float(posterior.seconds),
        **{key: _attribute(value) for key, value in release.items()},
        "prior": json.dumps(files.plain(posterior.prior)),
    }
    found = groups(posterior, attributes)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**found)
    return require("xarray", "saving a posterior").DataTree.from_dict(found)


def save_netcdf(posterior: Any, path: str | os.PathLike, force: bool) -> Path:
    """Write the posterior's ArviZ object with a digest of its bytes."""
    files.check_output(path, force)
    require("h5netcdf", "saving a posterior")
    data = posterior.to_inference_data()

    def write(file: Path) -> None:
        data.to_netcdf(str(file), engine="h5netcdf")
        sealed_hdf5(file)

    return files.write_with(path, write, force)


def _attribute(value: Any) -> str | int | float:
    """NetCDF attributes are numbers or text: everything else becomes JSON text."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str | int | float) else json.dumps(files.plain(value))


def _version() -> str:
    try:
        return metadata.version("dpjax")
    except metadata.PackageNotFoundError:
        return "unknown"
