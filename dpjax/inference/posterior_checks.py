"""Whether what a file says of a posterior can be one: its fields come from a file, and files come from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic
from dpjax.statistics.kinds import statistic_from_file, statistic_to_file

_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
_or_none = lambda check: lambda value: value is None or check(value)
_text = lambda value: isinstance(value, str)
_sequence = lambda check: lambda value: isinstance(value, list | tuple) and all(map(check, value))
_mapping = lambda value: isinstance(value, Mapping)
_floats = lambda dims: (
    lambda value: isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64) and value.ndim == dims
)

#: What each field must be, and how that is said.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "names": (lambda value: bool(value) and _sequence(_text)(value) and len(set(value)) == len(value), "names"),
    "statistic": (lambda value: isinstance(value, Statistic), "a statistic of dpjax"),
    "draws": (lambda value: _floats(3)(value) and np.isfinite(value).all(), "finite real numbers by chain and draw"),
    "prior_draws": (_or_none(_floats(2)), "real numbers by draw"),
    "records": (lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1, "a number >= 1"),
    "codes": (lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1, "integers"),
    "prior": (_mapping, "a mapping"),
    "rerun": (lambda value: isinstance(value, bool), "true or false"),
    "compile_seconds": (_or_none(_number), "a number or null"),
    "prior_p": (_or_none(_number), "a number or null"),
    "parties": (_sequence(_mapping), "mappings"),
    "releases": (_sequence(lambda value: isinstance(value, Release)), "releases"),
    "agreement": (lambda value: _mapping(value) and all(map(_number, value.values())), "numbers by name"),
    "computed": (_or_none(lambda value: _mapping(value) and all(map(_floats(1), value.values()))), "arrays by name"),
    **dict.fromkeys(("epsilon", "delta", "seconds", "rerun_seconds"), (_number, "a number")),
    **dict.fromkeys(("mechanism", "adjacency", "method"), (_text, "text")),
    **dict.fromkeys(("notes", "doubts"), (_sequence(_text), "sentences")),
}


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse fields of other types than a `dpjax.Posterior` has, and what does not fit together.

    Raises:
        InputError: the first such field, by name.
    """
    for name, (fits, what) in _FIELDS.items():
        if name in fields and not fits(fields[name]):
            raise InputError(f"its {name} must be {what}")
    statistic, names, draws = (fields[name] for name in ("statistic", "names", "draws"))
    _check_statistic(statistic)
    unknown = set(names) - set(statistic.parameter_names)
    if unknown:
        raise InputError(f"its names have {sorted(unknown)[0][:60]!r}, which is no parameter of the model")
    if 0 in draws.shape or draws.shape[2] != len(names):
        raise InputError(f"its draws must be of {len(names)} parameters; their shape is {draws.shape}")
    prior = fields.get("prior_draws")
    if prior is not None and (len(prior) == 0 or prior.shape[1] != len(names)):
        raise InputError(f"its prior_draws must be of {len(names)} parameters; their shape is {prior.shape}")
    computed = fields.get("computed")
    if computed is not None and {"mean", "sd", "q05", "q95"} - set(computed):
        raise InputError("its computed must have mean, sd, q05 and q95")
    if computed is not None and any(len(value) != len(names) for value in computed.values()):
        raise InputError(f"its computed must be of {len(names)} parameters")


def _check_statistic(statistic: Statistic) -> None:
    """Refuse a statistic that no release file can state: its fields were set one by one, past all checks."""
    if statistic_from_file(statistic_to_file(statistic)) != statistic:
        raise InputError("its statistic is not one that a release can have")


__all__ = ["check_fields"]
