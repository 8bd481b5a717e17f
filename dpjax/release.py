"""Releases: noisy sums of a private table, and the file in which they are published.

`release` is the only function of dpjax that touches private data. Its noise comes from OpenDP and the
operating system, cannot be seeded, and no module it uses imports JAX (a test checks this).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax import _release_file as _file
from dpjax.errors import InputError, PrivacyWarning
from dpjax.sensitivity import regression_exponents, replace_one_l1, rounding_allowance
from dpjax.statistics import RegressionStatistic, check_bounds, check_number, shown, to_unit

__all__ = ["Privacy", "Release", "describe_problems", "release"]


@dataclass(frozen=True)
class Privacy:
    """The guarantee of a release.

    epsilon: > 0, what the privacy map of the mechanism gives; delta: in [0, 1), 0 for Laplace noise;
    adjacency: "replace-one" (the number of records is public); norm: "l1" or "l2"; sensitivity: in that norm,
    of the summed statistic in the units of the release.
    """

    epsilon: float | Any
    delta: float | Any
    adjacency: str | Any
    norm: str | Any
    sensitivity: float | Any


@dataclass(frozen=True)
class Release:
    """What is published about a table, and all that the analyst knows. Nothing in it is private.

    Args:
        features, target: column names.
        records: the number of records, public under replace-one adjacency.
        statistics: noisy sums by entry name (`RegressionStatistic.names`), any order.
        mechanism: "laplace" or "gaussian".
        noise_scale: Laplace scale b or normal standard deviation, > 0: one number, or a mapping by entry.
        scaling: "bounds-to-[-1,1]" (each variable clipped and mapped affinely) or None (raw units).
        bounds: (lo, hi) of each variable in the user's units; may be None only without scaling.
        privacy: the guarantee; None if it is not known, as inference needs only the noise.
        simulated: the noise was not drawn for a real release.
        kind, intercept: of the model; "linear-regression" with an intercept.

    Raises:
        InputError: anything that `describe_problems` would report.
    """

    features: tuple[str, ...] | Any
    target: str | Any
    records: int | Any
    statistics: dict[str, float] | Any
    mechanism: str | Any
    noise_scale: float | dict[str, float] | Any
    scaling: str | Any | None
    bounds: dict[str, tuple[float, float]] | Any | None
    privacy: Privacy | Any | None = None
    simulated: bool | Any = False
    kind: str | Any = _file.MODEL
    intercept: bool | Any = True

    def __post_init__(self) -> None:
        for name, value in _fields(_checked(self.to_dict())).items():
            object.__setattr__(self, name, value)  # frozen

    @property
    def statistic(self) -> RegressionStatistic:
        """The statistic whose noisy sum this is."""
        return RegressionStatistic(self.features, self.target)

    @property
    def names(self) -> tuple[str, ...]:
        """Entry names, in the order of `z` and `scale`."""
        return self.statistic.names

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def z(self) -> Float64[np.ndarray, " D"]:
        """Noisy sums [D], in the units of the release."""
        return np.array([self.statistics[name] for name in self.names])

    @property
    def scale(self) -> Float64[np.ndarray, " D"]:
        """Noise scale of each entry [D]: Laplace b or normal standard deviation, in the units of the
        release."""
        if isinstance(self.noise_scale, dict):
            return np.array([self.noise_scale[name] for name in self.names])
        return np.full(len(self.names), self.noise_scale)

    def to_dict(self) -> dict[str, Any]:
        """The content of the release file, of plain Python types."""
        data = {
            "format": _file.FORMAT,
            "version": _file.VERSION,
            "model": {
                "kind": self.kind,
                "features": self.features,
                "target": self.target,
                "intercept": self.intercept,
            },
            "records": self.records,
            "scaling": self.scaling,
            "statistics": _as_dict(self.statistics),
            "mechanism": {"kind": self.mechanism, "scale": _as_dict(self.noise_scale)},
        }
        if self.privacy is not None:
            data["privacy"] = dict(vars(self.privacy)) if isinstance(self.privacy, Privacy) else self.privacy
        if self.bounds is not None:
            data["bounds"] = _as_dict(self.bounds)
        if self.simulated:
            data["simulated"] = self.simulated
        return _file.to_plain(data)

    @classmethod
    def from_dict(cls, data: Any) -> Release:
        """A release from the content of a release file.

        Raises:
            InputError: the content is not a valid release; one line.

        Warns:
            PrivacyWarning: the stated guarantee does not follow from the noise.
        """
        data = _checked(_file.to_plain(data))
        for doubt in _file.guarantee_doubts(data):
            warnings.warn(doubt, PrivacyWarning, stacklevel=2)
        return cls(**_fields(data))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Release:
        """Read and check a release file; nothing in it is executed.

        Raises, Warns: as `from_dict`; the message names the file.
        """
        try:
            return cls.from_dict(_file.read_json(path))
        except InputError as error:
            raise InputError(f"release file {os.fspath(path)!r}: {error}") from error

    def save(self, path: str | os.PathLike, force: bool = False) -> None:
        """Write the release file, complete or not at all.

        Raises:
            InputError: the file exists and `force` is false, or it cannot be written.
        """
        from dpjax._files import write_json

        write_json(path, self.to_dict(), force)


def release(
    table: Any,
    *,
    target: Any,
    features: Any,
    bounds: Any,
    epsilon: Any,
    model: Any = _file.MODEL,
    mechanism: Any = "laplace",
    adjacency: Any = _file.ADJACENCY,
    intercept: Any = True,
) -> Release:
    """Release the noisy sums that a Bayesian linear regression needs.

    Each variable is clipped to its bounds and mapped to [-1, 1]; the sums of x, xx', y, xy and y^2 get
    Laplace noise of scale sensitivity / epsilon each, which is epsilon-DP for the whole vector (SPEC A17).

    Args:
        table: path of a CSV file, mapping of columns, NumPy structured array or data frame. Private.
        target: column of the response.
        features: list of columns of the features.
        bounds: mapping of each of these columns to (lo, hi) in its units, stated a priori. Bounds taken from
            the data void the guarantee.
        epsilon: privacy budget of this release, > 0.
        model: "linear-regression".
        mechanism: "laplace".
        adjacency: "replace-one": tables of equal length that differ in one record. The number of records is
            public and part of the release.
        intercept: True.

    Returns:
        The release. Its `privacy.epsilon` is what OpenDP's privacy map gives, at most `epsilon`.

    Raises:
        InputError: bad argument or table; messages about the table name the column and hold no value.
        MissingExtraError: OpenDP is not installed.

    Warns:
        PrivacyWarning: always: every further release of the same table adds its epsilon.
    """
    if model != _file.MODEL:
        raise InputError(f"model {model!r} is not supported yet: {_file.MODEL!r}")
    if mechanism != "laplace":
        raise InputError(f"mechanism {mechanism!r} is not supported yet in a release: 'laplace'")
    if adjacency == "add-remove":
        raise InputError(_file.NO_ADD_REMOVE)
    if adjacency != _file.ADJACENCY:
        raise InputError(f"adjacency must be {_file.ADJACENCY!r}, got {adjacency!r}")
    if intercept is False:
        raise InputError(_file.NO_INTERCEPT)
    if intercept is not True:
        raise InputError(f"intercept must be True, got {intercept!r}")
    budget = check_number(epsilon, "epsilon must be a finite number > 0")
    if not budget > 0:
        raise InputError(f"epsilon must be a finite number > 0, got {shown(epsilon)}")
    statistic = RegressionStatistic(features, target)
    limits = check_bounds(bounds, statistic.variables)

    from dpjax._noise import add_laplace_noise
    from dpjax._table import read_columns

    columns = read_columns(table, statistic.variables)
    scaled = [to_unit(columns[name], *limits[name]) for name in statistic.variables]
    records = len(scaled[0])
    exact = statistic.from_records(np.stack(scaled[:-1], axis=1), scaled[-1])
    unit_box = ((-1.0, 1.0),) * len(scaled)
    sensitivity = float(
        np.nextafter(
            replace_one_l1(regression_exponents(statistic.p), unit_box) + rounding_allowance(statistic.dim, records),
            np.inf,
        )
    )
    if not math.isfinite(sensitivity / budget):
        raise InputError(f"epsilon = {budget!r} asks for noise beyond the range of a float")
    # before the noise: where warnings are errors, nothing is drawn
    warnings.warn(
        f"this release spends epsilon = {budget:.6g} under {adjacency} adjacency (the number of records is"
        " public); every further release of the same table adds its epsilon",
        PrivacyWarning,
        stacklevel=2,
    )
    noised, scale, spent = add_laplace_noise(exact, sensitivity, budget)
    return Release(
        features=statistic.features,
        target=statistic.target,
        records=records,
        statistics=dict(zip(statistic.names, noised.tolist(), strict=True)),
        mechanism="laplace",
        noise_scale=scale,
        scaling=_file.SCALING,
        bounds=limits,
        privacy=Privacy(spent, 0.0, _file.ADJACENCY, "l1", sensitivity),
    )


def describe_problems(path: str | os.PathLike) -> list[str]:
    """What is wrong with a release file, one line per problem, for `dpjax check`; empty if it can be used.

    Doubts about the stated guarantee are not problems: `Release.load` warns of them.
    """
    try:
        return [_one_line(problem) for problem in _file.check(_file.read_json(path))[1]]
    except InputError as error:
        return [_one_line(str(error))]


def _checked(data: Any) -> dict[str, Any]:
    """The typed content of a valid release.

    Raises:
        InputError: the first problem.
    """
    typed, problems = _file.check(data)
    if problems:
        rest = f" (and {len(problems) - 1} more: dpjax check lists them)" if len(problems) > 1 else ""
        raise InputError(f"{_one_line(problems[0])}{rest}")
    return typed


def _fields(data: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Release`, entries and bounds in the order of the model, from the typed content of a file."""
    model, scale = data["model"], data["mechanism"]["scale"]
    statistic = RegressionStatistic(tuple(model["features"]), model["target"])
    in_order = lambda entries: {name: entries[name] for name in statistic.names}
    return {
        "features": statistic.features,
        "target": statistic.target,
        "records": data["records"],
        "statistics": in_order(data["statistics"]),
        "mechanism": data["mechanism"]["kind"],
        "noise_scale": in_order(scale) if isinstance(scale, dict) else scale,
        "scaling": data["scaling"],
        "bounds": data["bounds"] and check_bounds(data["bounds"], statistic.variables),
        "privacy": data["privacy"] and Privacy(**data["privacy"]),
        "simulated": data["simulated"],
        "kind": model["kind"],
        "intercept": model["intercept"],
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
