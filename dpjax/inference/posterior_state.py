"""A `Posterior` as text and arrays and back, whatever fields it has: what its file and a run's folder keep.

Arrays that are fields of their own stay arrays; all else becomes JSON, in which what JSON does not have is a mapping
with one key that begins with "$": "$tuple", "$array", "$release" and "$statistic" (as in a release file), "$family",
"$class" (one of `CLASSES`).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpjax.errors import InputError, PrivacyWarning
from dpjax.families import Family, family_named
from dpjax.inference.fitted import Fitted
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic
from dpjax.statistics.kinds import statistic_from_file, statistic_to_file

_PACKAGE = "dpjax"
#: Classes that a file may hold, and where they are: the file keeps the name alone, so that a class may move.
#: Statistics are in files of before.
CLASSES = {
    "RegressionStatistic": "dpjax.statistics.regression",
    "FeatureMoments": "dpjax.statistics.feature_moments",
    "OriginStatistic": "dpjax.statistics.origin",
    "FamilyStatistic": "dpjax.statistics.family",
    "MultinomialStatistic": "dpjax.statistics.multinomial",
    "Diagnostics": "dpjax.diagnostics.ranks",
}


def pack(posterior: Fitted) -> tuple[str, dict[str, np.ndarray]]:
    """JSON text of all fields but arrays, and the arrays by field;
    `dpjax.inference.posterior_file.unpack` gives back the same posterior.

    Raises:
        TypeError: a field of a type that is not known here.
    """
    values = {f.name: getattr(posterior, f.name) for f in dataclasses.fields(posterior)}  # type: ignore[arg-type]
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    rest = {name: _plain(value) for name, value in values.items() if name not in arrays}
    return json.dumps(rest, ensure_ascii=False), arrays


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, Release):
        return {"$release": value.to_dict()}
    if isinstance(value, Statistic):
        return {"$statistic": _plain(statistic_to_file(value))}
    if isinstance(value, Family):
        return {"$family": [value.kind, _plain(value.options)]}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"$class": [*_name_of(value), items]}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"$class": [*_name_of(value), {name: _plain(item) for name, item in value._asdict().items()}]}
    if isinstance(value, tuple):
        return {"$tuple": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return {"$array": [array.dtype.name, array.tolist()]}
    raise TypeError(f"no form in a file for {type(value).__name__}")


def _name_of(value: Any) -> tuple[str, str]:
    name = type(value).__qualname__
    if CLASSES.get(name) != type(value).__module__:
        raise TypeError(f"no form in a file for {type(value).__module__}.{name}")
    return _PACKAGE, name


def restored(value: Any) -> Any:
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: restored(item) for key, item in value.items()}
    ((kind, content),) = value.items()
    if kind == "$tuple":
        return tuple(restored(item) for item in content)
    if kind == "$array":
        kind = np.dtype(str(content[0]))
        if kind.kind not in "biufU":
            raise InputError(f"holds an array of {kind}")
        return np.array(content[1], dtype=kind)
    if kind == "$family":
        return family_named(content[0], **restored(content[1]))
    if kind == "$release":
        return release_again(content)
    if kind == "$statistic":
        return statistic_from_file(restored(content))
    if kind == "$class":
        module, name, items = content  # files of before say the module that the class was in then
        if module.partition(".")[0] != _PACKAGE or name not in CLASSES:
            raise InputError(f"holds a {module}.{name}, which is not a class of results")
        found = getattr(importlib.import_module(CLASSES[name]), name)
        known = {one.name for one in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set(items)
        # files of before may state False for what a class cannot have any more
        return found(**{key: restored(item) for key, item in items.items() if key in known or item is not False})
    raise InputError(f"holds {kind}, which this version of {_PACKAGE} does not know")


def release_again(content: Any) -> Release:
    """The release of `Release.to_dict`; a doubt about its guarantee was said when it was fitted or drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return Release.from_dict(content)


__all__ = ["pack", "release_again", "restored"]
