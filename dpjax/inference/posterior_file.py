"""Read a posterior back from the file that `Posterior.save` wrote."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, BinaryIO

import numpy as np

from dpjax._base.seal import check_seal
from dpjax._base.signatures import no_type_check
from dpjax._base.visible import visible
from dpjax.errors import InputError, require
from dpjax.inference.hdf5_check import check_hdf5
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_checks import check_fields
from dpjax.inference.posterior_groups import HOMES, SCALED, SEALED, STATE
from dpjax.inference.posterior_state import restored
from dpjax.statistics.base import SCALING, Statistic, split_name
from dpjax.statistics.kinds import block_fields, check_kind, statistic_from_file
from dpjax.statistics.units import from_user_units

#: Fields of a posterior that files of earlier versions hold as they are.
_OLD = ("records", "epsilon", "delta", "mechanism", "adjacency", "method", "seconds")
_UNSEALED = (
    "the file has no digest (an earlier version or another program wrote it): damage to it would not have been noticed"
)
_JSON = ("features", "labels", "norms", "bounds", "truncation", "parties", "prior")


@no_type_check
def load_posterior(path: str | os.PathLike) -> Posterior:
    """The posterior in the NetCDF file that `Posterior.save` wrote: the same in all that it can say.

    A file whose bytes have changed is refused. Files of earlier versions, which have no digest, are read and say so;
    they give what they hold: draws and what was stated of the release, without prior draws.

    Args:
        path: of the file.

    Raises:
        InputError: the file cannot be read, is broken, or holds something else; the posterior of a family of one's own
            that is not registered (`dpjax.families.register`).
        MissingExtraError: h5netcdf is not installed.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"posterior must be the path of a file; got {type(path).__name__}")
    h5netcdf, h5py = (require(name, "reading a posterior") for name in ("h5netcdf", "h5py"))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError("is not a regular file")
        with open(path, "rb") as content, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other packages, about a file that is not as they expect
            found = _opened(h5netcdf, h5py, content)
    except OSError as error:
        if error.errno is None:  # HDF5's own, of no file of the system
            raise InputError(f"posterior {os.fspath(path)}: is not a whole HDF5 file") from None
        raise InputError(f"posterior {os.fspath(path)}: cannot be read ({error.strerror or 'OSError'})") from None
    except InputError as error:
        raise InputError(f"posterior {os.fspath(path)}: {error}") from None
    except Exception as error:  # of h5netcdf, h5py and HDF5, for whatever may be wrong with a file
        raise InputError(
            f"posterior {os.fspath(path)}: is not a whole file of draws as dpjax fit --output writes it "
            f"({type(error).__name__})"
        ) from None
    return found


def _opened(h5netcdf: Any, h5py: Any, content: BinaryIO) -> Posterior:
    """The posterior in an open file; what is read is what was checked."""
    sealed = check_seal(content)
    size = os.fstat(content.fileno()).st_size
    with h5py.File(content, "r") as file:
        if SEALED in file.attrs and not sealed:
            raise InputError("has lost its digest: it was cut, changed, or written again by another program")
        check_hdf5(file, size)
        found = _read(file) if "constant_data" in file else None
    if found is None:
        content.seek(0)
        with h5netcdf.File(content, "r") as file:
            found = _read_old(file["posterior"])
    notes = (*found.notes, *(() if sealed else (_UNSEALED,)))
    return replace(  # texts that are printed, of a file that may be anybody's
        found,
        method=visible(found.method),
        mechanism=visible(found.mechanism),
        notes=tuple(map(visible, notes)),
        doubts=tuple(map(visible, found.doubts)),
    )


def _read(file: Any) -> Posterior:
    """Of an `h5py.File`, and not through h5netcdf, which fills up what does not fit its dimensions."""
    constants = file["constant_data"]
    if STATE not in constants:
        raise InputError("was not written by dpjax fit --output")
    wanted = {f.name for f in fields(Posterior)} - HOMES.keys()
    arrays = {name: np.asarray(constants[name][()]) for name in constants if name in wanted}
    for name, (group, _) in HOMES.items():
        if group in file:
            arrays[name] = np.asarray(file[group][SCALED][()])
    if "prior_draws" in arrays:
        arrays["prior_draws"] = arrays["prior_draws"][0]
    text = constants[STATE][()]
    if not isinstance(text, bytes):
        raise InputError("was not written by dpjax fit --output")
    return unpack(text.decode(), arrays)


# ---- files of earlier versions: the group posterior alone --------------------------------------------------------
def _read_old(group: Any) -> Posterior:
    attributes = {name: _decoded(name, value) for name, value in dict(group.attrs).items()}
    for name in ("model", "scaling", "bounds", "converged", *_OLD):
        if name not in attributes:
            raise InputError(f"has no attribute {name!r}: it was not written by dpjax fit --output")
    statistic = _statistic(attributes)
    names, draws = _draws(group, statistic)
    if not np.isfinite(draws).all():
        raise InputError("has draws that are not finite")
    doubts = () if int(attributes["converged"]) else ("the chains had not converged when the file was written.",)
    return Posterior(
        draws=from_user_units(statistic, draws),
        names=names,
        statistic=statistic,
        codes=np.zeros(len(draws), dtype=int),
        prior=attributes.get("prior") or {},
        parties=tuple(attributes.get("parties") or ()),
        notes=("the file is of an earlier version, which kept neither prior draws nor notes",),
        doubts=doubts,
        **{name: attributes[name] for name in _OLD},
    )


def _decoded(name: str, value: Any) -> Any:
    value = value.decode() if isinstance(value, bytes) else value
    value = value.item() if isinstance(value, np.generic | np.ndarray) and np.size(value) == 1 else value
    if name in _JSON:
        return json.loads(value)
    return None if name in ("scaling", "epsilon", "delta") and value == "null" else value


def _statistic(attributes: dict[str, Any]) -> Statistic:
    kind = attributes["model"]
    check_kind(kind)
    model: dict[str, Any] = {"kind": kind}
    for name, hint, *default in block_fields(kind):
        if name not in attributes and not default:
            raise InputError(f"has no attribute {name!r}: it was not written by dpjax fit --output")
        value = attributes.get(name, *default)
        model[name] = bool(value) if hint is bool or (name == "squares" and value is not None) else value
    scaling, bounds, truncation = (attributes.get(name) for name in ("scaling", "bounds", "truncation"))
    if kind == "linear-regression":
        truncation = None
        bounds = None if model.get("norms") else bounds
    else:
        bounds = None
    if scaling not in (None, SCALING):
        raise InputError(f"scaling must be {SCALING!r} or null; got {scaling!r}")
    released = [f"count[{k}]" for k in range(int(model.get("categories", 0)))]
    content = {"model": model, "scaling": scaling, "bounds": bounds, "truncation": truncation, "statistics": released}
    return statistic_from_file(content)


def _draws(group: Any, statistic: Statistic) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and draws `[C, S, K]` in the user's units of the parameters that the file has."""
    names = [name for name in statistic.parameter_names if split_name(name)[0] in group.variables]
    columns = []
    for name in names:
        base, index = split_name(name)
        variable = group.variables[base]
        expected: tuple[str, ...] = ("chain", "draw")
        at: Any = ...
        if index:
            dim = statistic.dimension(base)
            expected, known = ("chain", "draw", dim), [_decoded("", x) for x in group.variables[dim][...].tolist()]
            if statistic.coordinate(base, index) not in known or len(known) != sum(
                n.startswith(f"{base}[") for n in names
            ):
                raise InputError(f"{dim}s of {base} are not those of the model")
            at = (..., known.index(statistic.coordinate(base, index)))
        if tuple(variable.dimensions) != expected:
            raise InputError(f"needs {base} ({', '.join(expected)})")
        columns.append(np.asarray(variable[...], dtype=np.float64)[at])
    if not columns:
        raise InputError("has no draws of the model's parameters")
    return tuple(names), np.stack(columns, axis=-1)


def unpack(text: str, arrays: Mapping[str, np.ndarray], **missing: Any) -> Posterior:
    """The posterior that `pack` took apart.

    Args:
        text, arrays: of `pack`. Fields that are in neither have their defaults; those that this version does not know
            are left out.
        missing: fields that are kept elsewhere.

    Raises:
        InputError: a family that is not registered (of one's own), or values that do not make a posterior.
    """
    known = {f.name for f in dataclasses.fields(Posterior)}
    found = {name: restored(value) for name, value in json.loads(text).items()}
    fields = {name: value for name, value in {**missing, **found, **arrays}.items() if name in known}
    fields["names"] = tuple(fields["names"])
    check_fields(fields)
    return Posterior(**fields)
