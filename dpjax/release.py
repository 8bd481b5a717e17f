"""Releases: noisy sums of a private table, and the file in which they are published.

`release` is the only function of dpjax that touches private data. Its noise comes from OpenDP and the
operating system, cannot be seeded, and no module it uses imports JAX (a test checks this).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax import _drawing
from dpjax import _release_file as _file
from dpjax._checks import Bounds, check_number, shown
from dpjax._quantile import PrivateQuantile
from dpjax.errors import InputError, PrivacyWarning
from dpjax.kinds import make_statistic
from dpjax.statistics import RegressionStatistic, Statistic

__all__ = ["MomentsPrivacy", "Privacy", "PrivateQuantile", "Release", "describe_problems", "release"]


@dataclass(frozen=True)
class MomentsPrivacy:
    """The part of a guarantee that the third and fourth moments of a regression's features have.

    epsilon, delta: > 0 and at least 0, parts of those of the release; sensitivity: of the sums of these moments, in
    the norm and units of the release.
    """

    epsilon: float | Any
    sensitivity: float | Any
    delta: float | Any = 0.0


@dataclass(frozen=True)
class Privacy:
    """The guarantee of a release.

    epsilon: > 0, what the privacy map of the mechanism gives, and all that was spent; delta: in [0, 1), 0 but for
    Gaussian noise; adjacency: "replace-one" (the number of records is public); norm: "l1" or "l2"; sensitivity: in
    that norm, of the summed statistic in the units of the release, of a release with moments that of the usual sums;
    bounds_epsilon: the part of epsilon that was spent on private bounds, None if they were stated; moments: the part
    of the guarantee that third and fourth moments of the features have, None without them.
    """

    epsilon: float | Any
    delta: float | Any
    adjacency: str | Any
    norm: str | Any
    sensitivity: float | Any
    bounds_epsilon: float | Any | None = None
    moments: MomentsPrivacy | Any | None = None


@dataclass(frozen=True)
class Release:
    """What is published about a table, and all that the analyst knows. Nothing in it is private.

    Args:
        statistic: what was summed (`dpjax.kinds.make_statistic`): columns, bounds, scaling, names of the entries.
        records: the number of records, public under replace-one adjacency.
        statistics: noisy sums by entry name (`Statistic.names`), any order.
        mechanism: "laplace", "gaussian" or "discrete-laplace".
        noise_scale: Laplace scale b or normal standard deviation, > 0: one number, or a mapping by entry.
        privacy: the guarantee; None if it is not known, as inference needs only the noise.
        simulated: the noise was not drawn for a real release.

    Raises:
        InputError: anything that `describe_problems` would report.
    """

    statistic: Statistic | Any
    records: int | Any
    statistics: dict[str, float] | Any
    mechanism: str | Any
    noise_scale: float | dict[str, float] | Any
    privacy: Privacy | Any | None = None
    simulated: bool | Any = False

    def __post_init__(self) -> None:
        if not isinstance(self.statistic, Statistic):
            raise InputError(f"statistic must be a dpjax.statistics.Statistic, got {shown(self.statistic)}")
        typed, statistic = _checked(self.to_dict())
        if statistic != self.statistic:  # only what entries a multinomial has is told by the statistics alone
            raise InputError(f"statistics must be those of the statistic: {', '.join(self.statistic.names)}")
        for name, value in _fields(typed, statistic).items():
            object.__setattr__(self, name, value)  # frozen

    @property
    def kind(self) -> str:
        """Name of the model."""
        return self.statistic.kind

    @property
    def scaling(self) -> str | None:
        """Either "bounds-to-[-1,1]" (variables mapped affinely) or None (raw units)."""
        return self.statistic.scaling

    @property
    def bounds(self) -> Bounds | None:
        """(lo, hi) of each column in the user's units, or None where there are none."""
        return self.statistic.column_bounds

    @property
    def features(self) -> tuple[str, ...]:
        """Columns of a regression's features."""
        return self._regression.features

    @property
    def target(self) -> str:
        """Column of a regression's response."""
        return self._regression.target

    @property
    def p(self) -> int:
        """Number of a regression's features."""
        return self._regression.p

    @property
    def _regression(self) -> RegressionStatistic:
        if not isinstance(self.statistic, RegressionStatistic):
            raise AttributeError(f"a release of {self.kind} has no features and no target")
        return self.statistic

    @property
    def names(self) -> tuple[str, ...]:
        """Entry names, in the order of `z` and `scale`."""
        return self.statistic.names

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
            "model": self.statistic.block(),
            "records": self.records,
            "scaling": self.scaling,
            "statistics": _as_dict(self.statistics),
            "mechanism": {"kind": self.mechanism, "scale": _as_dict(self.noise_scale)},
        }
        if self.statistic.truncation is not None:
            data["truncation"] = self.statistic.truncation
        if isinstance(self.privacy, Privacy):
            data["privacy"] = _block(self.privacy)
        elif self.privacy is not None:
            data["privacy"] = self.privacy
        if self.bounds is not None and self.statistic.truncation is None:
            data["bounds"] = self.bounds
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
        return cls._read(data, "")

    @classmethod
    def _read(cls, data: Any, words: str) -> Release:
        """As `from_dict`; words: what stands before a doubt."""
        typed, statistic = _checked(_file.to_plain(data))
        for doubt in _file.guarantee_doubts(typed, statistic):
            warnings.warn(words + doubt, PrivacyWarning, stacklevel=3)
        return cls(**_fields(typed, statistic))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Release:
        """Read and check a release file; nothing in it is executed.

        Raises, Warns: as `from_dict`; the message names the file.
        """
        try:
            return cls._read(_file.read_json(path), f"release file {os.fspath(path)!r}: ")
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
    epsilon: Any,
    bounds: Any = None,
    features: Any = None,
    model: Any = "linear-regression",
    mechanism: Any = "laplace",
    delta: Any = None,
    rule: Any = None,
    categories: Any = None,
    labels: Any = None,
    adjacency: Any = _file.ADJACENCY,
    intercept: Any = True,
    moments: Any = False,
    moments_share: Any = None,
    squares: Any = None,
    norms: Any = None,
    averaged: Any = None,
    **options: Any,
) -> Release:
    """Release the noisy sums that Bayesian inference in a model needs.

    A regression clips each variable to its bounds, maps it to [-1, 1], and releases the sums of x, xx', y, xy and
    y^2. An exponential family clamps its column to the bounds, or leaves out what is outside (`rule`), and releases
    the sums of its powers (normal and log-normal: mapped to [-1, 1] first); a multinomial releases counts. One
    noise scale fits all entries: the guarantee is of the whole vector (SPEC A17). Third and fourth moments of the
    features (S0 3.4.4) have a share of epsilon, a sensitivity and a noise scale of their own; the guarantees add up.

    Args:
        table: path of a CSV file, mapping of columns, NumPy structured array or data frame. Private.
        target: column of the response, or the one column of a family.
        epsilon: privacy budget of this release, > 0, private bounds included.
        bounds: mapping of each column to (lo, hi) in its units, stated a priori: bounds taken from the data void the
            guarantee. For a family also a `PrivateQuantile`. None where a model has none (binomial, multinomial).
        features: list of columns of a regression's features.
        model: one of `dpjax.kinds.kinds()`.
        mechanism: "laplace"; "gaussian" (needs delta); "discrete-laplace" for sums of whole numbers.
        delta: inside (0, 1), of Gaussian noise: the probability with which the guarantee may fail. It has no default;
            far below 1 / number of records is usual.
        rule: "clamp" (default) or "redact", of a family with bounds.
        categories, labels: of a multinomial: number of categories 0, 1, ... in the column, or their texts.
        adjacency: "replace-one": tables of equal length that differ in one record. The number of records is
            public and part of the release.
        intercept: False for a regression through the origin, whose variables are divided by the largest absolute value
            that the bounds allow.
        squares: without an intercept: whether the sum of y^2 is released too (True if left out).
        norms: without an intercept, in place of bounds: {"features": X, "target": Y}; feature vectors longer than X
            are shortened to that length, y is clipped to [-Y, Y].
        averaged: with norms: k, to release sums of rows that are averages of k records (times sqrt(k)); k must divide
            the number of records. The release's records are these rows.
        moments: also release the sums of all products of three and of four of a regression's features (squares and
            higher powers included), for inference that does not take the features for normal.
        moments_share: inside (0, 1), the share of epsilon and delta that these get; half if left out.
        options: of the family, such as `shape` of "gamma".

    Returns:
        The release. Its `privacy.epsilon` is at most `epsilon`: what OpenDP's privacy maps give, for Gaussian noise
        what was asked for.

    Raises:
        InputError: bad argument or table; messages about the table name the column and hold no value.
        MissingExtraError: OpenDP is not installed.

    Warns:
        PrivacyWarning: always, before any noise is drawn: every further release of the same table adds its epsilon.
    """
    _drawing.check_definition(mechanism, adjacency, intercept)
    budget = check_number(epsilon, "epsilon must be a finite number > 0")
    if not budget > 0:
        raise InputError(f"epsilon must be a finite number > 0, got {shown(epsilon)}")
    slack = _drawing.checked_delta(mechanism, delta)
    share = _drawing.checked_moments_share(moments, moments_share)
    limits, search = _drawing.public_bounds(bounds)
    statistic = make_statistic(
        model,
        target=target,
        features=features,
        bounds=limits,
        rule=rule,
        categories=categories,
        labels=labels,
        moments=moments,
        intercept=intercept,
        squares=squares,
        norms=norms,
        averaged=averaged,
        **options,
    )
    if mechanism == _file.DISCRETE and not statistic.integer:
        raise InputError(f"mechanism {mechanism!r} is for sums of whole numbers, which {statistic.kind} does not have")
    grid = None if search is None else search.candidates(*_drawing.grid_of(statistic))

    from dpjax._quantile import find_bounds
    from dpjax._table import read_columns

    columns = read_columns(table, statistic.variables, statistic.texts)
    records = len(columns[statistic.variables[0]])
    exact = statistic.from_columns(columns)
    records //= getattr(statistic, "averaged", 1)
    if mechanism == _file.DISCRETE and statistic.rounding_allowance(records):
        raise InputError(f"{mechanism} noise needs sums below 2^53: the bounds are too wide for so many records")
    rest = budget * (1.0 - search.share) if search else budget
    parts = _drawing.parts_of(statistic, mechanism, rest, slack, share, records)
    # before the noise: where warnings are errors, nothing is drawn
    also = (f", delta = {slack:.6g}", " and delta") if slack else ("", "")
    warnings.warn(
        f"this release spends epsilon = {budget:.6g}{also[0]} under {adjacency} adjacency (the number of records is"
        f" public); every further release of the same table adds its epsilon{also[1]}",
        PrivacyWarning,
        stacklevel=2,
    )
    bounds_spent = None
    if search is not None and grid is not None:
        found, bounds_spent = find_bounds(
            columns[statistic.variables[0]], grid, search.quantiles, search.share * budget
        )
        statistic = replace(statistic, bounds=found)  # type: ignore[type-var]  # a family's: `grid_of`
        exact, rest = statistic.from_columns(columns), math.nextafter(budget - bounds_spent, 0.0)
        parts = _drawing.parts_of(statistic, mechanism, rest, slack, share, records)
    noised, scale, parts = _drawing.draw(mechanism, exact, parts)
    spent, failing = _drawing.total_spent(parts)
    if bounds_spent is not None:
        spent = min(math.nextafter(spent + bounds_spent, math.inf), budget)
    own = MomentsPrivacy(parts[1].epsilon, parts[1].sensitivity, parts[1].delta) if share is not None else None
    norm = _file.MECHANISMS[mechanism]
    return Release(
        statistic=statistic,
        records=records,
        statistics=dict(zip(statistic.names, noised, strict=True)),
        mechanism=mechanism,
        noise_scale=scale,
        privacy=Privacy(spent, failing, _file.ADJACENCY, norm, parts[0].sensitivity, bounds_spent, own),
    )


def describe_problems(path: str | os.PathLike) -> list[str]:
    """What is wrong with a release file, one line per problem, for `dpjax check`; empty if it can be used.

    Doubts about the stated guarantee are not problems: `Release.load` warns of them.
    """
    try:
        return [_one_line(problem) for problem in _file.check(_file.read_json(path))[2]]
    except InputError as error:
        return [_one_line(str(error))]


def _checked(data: Any) -> tuple[dict[str, Any], Any]:
    """The typed content of a valid release, and its statistic.

    Raises:
        InputError: the first problem.
    """
    typed, statistic, problems = _file.check(data)
    if problems:
        rest = f" (and {len(problems) - 1} more: dpjax check lists them)" if len(problems) > 1 else ""
        raise InputError(f"{_one_line(problems[0])}{rest}")
    return typed, statistic


def _fields(data: dict[str, Any], statistic: Statistic) -> dict[str, Any]:
    """Fields of `Release`, entries in the order of the statistic, from the typed content of a file."""
    scale = data["mechanism"]["scale"]
    in_order = lambda entries: {name: entries[name] for name in statistic.names}
    return {
        "statistic": statistic,
        "records": data["records"],
        "statistics": in_order(data["statistics"]),
        "mechanism": data["mechanism"]["kind"],
        "noise_scale": in_order(scale) if isinstance(scale, dict) else scale,
        "privacy": None if data["privacy"] is None else _privacy(**data["privacy"]),
        "simulated": data["simulated"],
    }


def _privacy(*, moments: dict[str, float] | None, **rest: Any) -> Privacy:
    return Privacy(**rest, moments=None if moments is None else MomentsPrivacy(**moments))


def _block(privacy: Privacy) -> dict[str, Any]:
    """The block "privacy" of the file: what most releases do not have is left out."""
    block = dict(vars(privacy))
    for name in ("bounds_epsilon", "moments"):
        if block[name] is None:
            del block[name]
    if isinstance(privacy.moments, MomentsPrivacy):
        block["moments"] = {k: v for k, v in vars(privacy.moments).items() if k != "delta" or v != 0}
    return block


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
