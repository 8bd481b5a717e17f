"""The groups of a posterior's ArviZ file.

- posterior, prior: parameters in the user's units, vectors with named coordinates; of the prior at most `PRIOR_DRAWS`.
- observed_data: z, the released sums in the units of the release; posterior_predictive, prior_predictive: z of
  replicated releases (`dpjax.inference.replicates`) at some of the draws. Of several parties z has a dimension more,
  NaN where a party does not release an entry.
- sample_stats, sample_stats_prior: `scaled`, all draws in scaled units as they were sampled; constant_data: noise
  scales, and what else `dpjax.load_posterior` needs.
There is no log_likelihood: see docs/posterior.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base.seal import seal
from dpjax.errors import InputError, require
from dpjax.inference.fitted import Fitted
from dpjax.inference.posterior_state import pack
from dpjax.inference.replicates import replicate
from dpjax.statistics.base import Statistic, split_name

#: Replicated releases of each predictive group, and draws of the group prior.
REPLICATES, PRIOR_DRAWS = 400, 4_000
#: Names of the text and of the arrays of the whole posterior.
STATE, SCALED = "dpjax", "scaled"
#: Attribute of a file that ends in a digest; whoever removes it has the file read without.
SEALED = "dpjax_digest"
#: Fields whose arrays lie in a group of their own, with their dimensions.
HOMES = {
    "draws": ("sample_stats", ("chain", "draw", "parameter")),
    "prior_draws": ("sample_stats_prior", ("chain", "draw", "parameter")),
}


def groups(posterior: Fitted, attributes: dict[str, Any]) -> dict[str, Any]:
    """xarray Datasets by group; attributes: those of the group posterior."""
    xarray = require("xarray", "saving a posterior")
    found = {"posterior": _dataset(xarray, posterior.statistic, posterior.names, posterior.user_draws)}
    prior = posterior.user_prior_draws
    if prior is not None:
        some = _spread(len(prior), PRIOR_DRAWS)
        found["prior"] = _dataset(xarray, posterior.statistic, posterior.names, prior[some][None], some)
    found |= _predictive(xarray, posterior, attributes)
    found["posterior"].attrs.update(attributes)
    text, arrays = pack(posterior)
    constants: dict[str, Any] = {STATE: ((), text)}
    for name, value in arrays.items():
        if name in HOMES:
            group, dims = HOMES[name]
            shaped = value.reshape(-1, *value.shape[-2:])
            found[group] = xarray.Dataset(
                {SCALED: (dims, shaped)},
                {
                    "chain": np.arange(shaped.shape[0]),
                    "draw": np.arange(shaped.shape[1]),
                    "parameter": list(posterior.names),
                },
            )
        else:
            constants[name] = (tuple(f"{name}_dim_{i}" for i in range(value.ndim)), value)
    if posterior.releases:
        entry, coords = _entries(posterior)
        constants["noise_scale"] = (entry, _gathered(posterior, [one.scale for one in posterior.releases]))
        found["constant_data"] = xarray.Dataset(constants, coords)
    else:
        found["constant_data"] = xarray.Dataset(constants)
    return found


def _predictive(xarray: Any, posterior: Fitted, attributes: dict[str, Any]) -> dict[str, Any]:
    """The observed sums and their replicates, or an attribute that says why there are none."""
    if not posterior.releases:
        attributes["no_replicates"] = "the release is not known"
        return {}
    dims, coords = _entries(posterior)
    observed = _gathered(posterior, [one.z for one in posterior.releases])
    found = {"observed_data": xarray.Dataset({"z": (dims, observed)}, coords)}
    chains, length = posterior.draws.shape[:2]
    sources = {"posterior_predictive": (posterior.draws, _spread(length, max(1, REPLICATES // chains)))}
    if posterior.prior_draws is not None:
        prior = posterior.prior_draws[None]
        sources["prior_predictive"] = (prior, _spread(prior.shape[1], REPLICATES))
    rng = np.random.default_rng(0)
    try:
        for group, (draws, some) in sources.items():
            shape = (len(draws), len(some))
            flat = draws[:, some].reshape(-1, len(posterior.names))
            with np.errstate(over="ignore", invalid="ignore"):  # priors may have tails beyond all numbers
                made = [
                    replicate(one, posterior.names, flat, posterior.statistic, posterior.prior, rng)
                    for one in posterior.releases
                ]
            z = _gathered(posterior, made).reshape(*shape, *observed.shape)
            where = {"chain": np.arange(shape[0]), "draw": some, **coords}
            found[group] = xarray.Dataset({"z": (("chain", "draw", *dims), z)}, where)
    except InputError as error:
        attributes["no_replicates"] = str(error)
        return {"observed_data": found["observed_data"]}
    return found


def _spread(length: int, most: int) -> np.ndarray:
    """Numbers of at most so many draws, evenly spread."""
    return np.unique(np.linspace(0, length - 1, min(most, length)).round().astype(int))


def _entries(posterior: Fitted) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Dimensions and coordinates of what there is one of for each released sum."""
    names = list(dict.fromkeys(name for one in posterior.releases for name in one.names))
    if len(posterior.releases) == 1:
        return ("entry",), {"entry": names}
    return ("party", "entry"), {"party": np.arange(1, len(posterior.releases) + 1), "entry": names}


def _gathered(posterior: Fitted, values: list[np.ndarray]) -> np.ndarray:
    """`[..., D]` of each release as one array `[..., D]`, or `[..., J, D]` for several parties."""
    if len(values) == 1:
        return values[0]
    names = _entries(posterior)[1]["entry"]
    out = np.full((*values[0].shape[:-1], len(values), len(names)), np.nan)
    for j, (one, value) in enumerate(zip(posterior.releases, values, strict=True)):
        out[..., j, [names.index(name) for name in one.names]] = value
    return out


def _dataset(xarray: Any, statistic: Statistic, names: Any, draws: np.ndarray, number: Any = None) -> Any:
    """Draws `[C, S, K]` in the user's units as variables (`variables`)."""
    values, dims, coords = variables(statistic, names, draws)
    number = np.arange(draws.shape[1]) if number is None else number
    return xarray.Dataset(
        {name: (("chain", "draw", *dims.get(name, ())), value) for name, value in values.items()},
        {"chain": np.arange(draws.shape[0]), "draw": number, **coords},
    )


def variables(statistic: Statistic, names: Any, draws: np.ndarray) -> tuple[dict, dict, dict]:
    """Draws `[C, S, K]` by base name, scalars `[C, S]` or vectors `[C, S, size]`; dimensions of the vectors; and
    coordinates of the dimensions."""
    members: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for k, name in enumerate(names):
        base, index = split_name(name)
        members.setdefault(base, []).append((k, index))
    values, dims, coords = {}, {}, {}
    for base, found in members.items():
        columns = [k for k, _ in found]
        if len(found) == 1 and not found[0][1]:
            values[base] = draws[..., columns[0]]
            continue
        dim = statistic.dimension(base)
        values[base] = draws[..., columns]
        dims[base] = [dim]
        coords[dim] = [statistic.coordinate(base, index) for _, index in found]
    return values, dims, coords


def sealed_hdf5(file: Path) -> None:
    """Append a digest to a file of HDF5 (`dpjax._base.seal`), and note in it that there is one."""
    h5py = require("h5py", "saving a posterior")
    with h5py.File(file, "r+") as content:
        content.attrs[SEALED] = "SHA-256 of all bytes before it, at the end of the file"
    seal(file)


__all__ = ["HOMES", "SCALED", "SEALED", "STATE", "groups", "sealed_hdf5", "variables"]
