"""The options of a release, all of them in one place: arguments of `dpjax.release` and `dpjax.plan_release`, keys of
[release], options of `dpjax release`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from dpjax._base.checks import check_choice, check_number, shown
from dpjax._base.options import check_options, chosen_of, option, options_of
from dpjax._base.reading import ReadingOptions
from dpjax.errors import InputError
from dpjax.families import FAMILIES
from dpjax.mechanisms import DEFAULT, MECHANISMS, released_kinds
from dpjax.privacy.budget import checked_epsilon, checked_share
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import file as _file
from dpjax.statistics.base import Statistic
from dpjax.statistics.feature_moments import MOMENTS_SHARE
from dpjax.statistics.kinds import kinds, make_statistic
from dpjax.statistics.options import SoughtBounds, StatedBounds, StatisticOptions
from dpjax.statistics.products import ProductStatistic


@runtime_checkable
class Frame(Protocol):
    """A data frame, such as those of pandas and polars."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """A column."""


#: A table: path of a CSV file, mapping of columns, NumPy structured array or data frame.
Table = str | os.PathLike[str] | Mapping[str, ArrayLike] | np.ndarray | Frame
#: Public bounds, or a search for private ones.
Bounds = StatedBounds | SoughtBounds


def _check_epsilon(name: str, value: Any) -> None:
    checked_epsilon(value)


def _check_mechanism(name: str, value: Any) -> None:
    check_choice(name, value, released_kinds())


def _check_adjacency(name: str, value: Any) -> None:
    if value == "add-remove":
        raise InputError(_file.NO_ADD_REMOVE)
    if value != _file.ADJACENCY:
        raise InputError(f"{name} must be {_file.ADJACENCY!r}, got {shown(value)}")


def _check_accept(name: str, value: Any) -> None:
    _check_among(name, value, (True, False))


def _check_report(name: str, value: Any) -> None:
    _check_among(name, value, (None, True, False))


def _check_among(name: str, value: Any, allowed: tuple[bool | None, ...]) -> None:
    if not any(value is one for one in allowed):
        raise InputError(f"{name} must be {' or '.join(map(str, allowed))}, got {shown(value)}")


class ReleaseFields(StatisticOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is released, and with which noise; nothing is checked. What must be given is None here."""

    epsilon: Annotated[
        float | None,
        option("Privacy budget that this release spends, all in all.", check=_check_epsilon),
    ] = None
    model: Annotated[str, option(f"{', '.join(kinds())}.")] = ProductStatistic.kind
    options: Annotated[
        dict[str, Any], option("Option of a family, such as shape=2 of gamma.", metavar="NAME=VALUE")
    ] = msgspec.field(default_factory=dict)
    mechanism: Annotated[str, option("laplace, gaussian, or discrete-laplace for counts.", check=_check_mechanism)] = (
        DEFAULT
    )
    delta: Annotated[float | None, option("Of gaussian noise, far below 1 / records.")] = None
    adjacency: Annotated[str, option(f"{_file.ADJACENCY}.", check=_check_adjacency)] = _file.ADJACENCY
    moments_share: Annotated[
        float | None, option("Share of epsilon that --moments gets, inside (0, 1); 0.5 if left out.")
    ] = None


class ReleaseOptions(ReleaseFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is said about a release but the table; checked when it is made.

    Raises:
        InputError: what no table could be released with: a wrong value, or two that exclude each other.
    """

    target: str
    epsilon: float
    reading: ReadingOptions = ReadingOptions()
    accept: Annotated[
        bool,
        option("Go on although the table looks wrong (codes, bounds); see the report.", check=_check_accept),
    ] = False
    report: Annotated[
        bool | None,
        option("Show counts of missing, code-like and clipped values; None: if need be.", check=_check_report),
    ] = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> ReleaseOptions:
        """From the keywords of `dpjax.release`: what is no option is one of the family.

        Raises:
            InputError: as the class; target or epsilon is not there.
        """
        said, others = chosen_of(ReadingOptions, keywords)
        own = {name: value for name, value in others.items() if name in _PLAIN}
        for name, one in options_of(cls).items():
            if one.default is inspect.Parameter.empty and name not in own:
                raise InputError(f"{name} is missing: it has no default")
        options = {name: value for name, value in others.items() if name not in own}
        return cls(**own, options=options, reading=ReadingOptions(**said))

    def __post_init__(self) -> None:
        check_options(self)
        _ = self.slack, self.share, self.search
        self.reading.reading  # noqa: B018  # its checks
        self._check_family_options()

    def _check_family_options(self) -> None:
        """Keywords that would change what is released without being arguments of a release, or do nothing; what belongs
        to no model or to another is refused where the statistic is made."""
        for name, value in self.options.items():
            if name in _PLAIN - {"released"}:
                raise InputError(f"options: {name} is not an option of a family, it stands by itself")
            if name in ("kind", "scaling"):
                raise InputError(
                    f"{name} is not an argument of a release, got {shown(value)}: the model says what is summed and how"
                    " variables are scaled"
                )
            if value is None and self.model not in FAMILIES:
                raise InputError(f"{name} has no place in a release of {shown(self.model)}; got None")

    @property
    def budget(self) -> float:
        """epsilon as a float."""
        return checked_epsilon(self.epsilon)

    @property
    def slack(self) -> float:
        """delta of a mechanism that needs one, which has no default; 0 of the others."""
        if not MECHANISMS[self.mechanism].needs_delta:
            if self.delta is not None:
                raise InputError(
                    f"delta has no place in a release with {self.mechanism} noise; got {shown(self.delta)}"
                )
            return 0.0
        if self.delta is None:
            raise InputError(f"delta is missing: {self.mechanism} noise needs one, inside (0, 1)")
        number = check_number(self.delta, "delta must lie inside (0, 1)")
        if not 0 < number < 1:
            raise InputError(f"delta must lie inside (0, 1), got {shown(self.delta)}")
        return number

    @property
    def share(self) -> float | None:
        """The share of the budget that moments get; None without moments."""
        if self.moments_share is None:
            return MOMENTS_SHARE if self.moments else None
        number = checked_share(self.moments_share, "moments_share")
        if not self.moments:
            raise InputError(f"moments_share is of use only with moments, got {shown(self.moments_share)}")
        return number

    @property
    def search(self) -> PrivateQuantile | None:
        """The search for private bounds."""
        if isinstance(self.bounds, PrivateQuantile):
            return self.bounds
        of = self.bounds if isinstance(self.bounds, Mapping) else {}
        private = [one for one in of.values() if isinstance(one, PrivateQuantile)]
        if private and len(of) > 1:
            raise InputError("private bounds are for a family's one column: give no other bounds beside them")
        return private[0] if private else None

    @property
    def statistic(self) -> Statistic:
        """What is summed; the public range stands in the place of private bounds.

        Raises:
            InputError: as `dpjax.statistics.kinds.make_statistic`.
        """
        given = {name: getattr(self, name) for name in StatisticOptions.__struct_fields__}
        if self.search is not None:
            range = self.search.range
            given["bounds"] = dict.fromkeys(self.bounds, range) if isinstance(self.bounds, Mapping) else range
        return make_statistic(self.model, **given | self.options)


#: Keywords that are fields of the struct.
_PLAIN = frozenset(ReleaseOptions.__struct_fields__) - {"options", "reading"}
#: What no option of a family may be called like. The counts that are released may be said among those as well.
_TAKEN = frozenset(options_of(ReleaseOptions)) - {"released"} | {"table", "kind", "scaling", "middle"}


def check_family_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a family that are arguments of their own, and would replace them.

    Raises:
        InputError: one of them is.
    """
    for name in options:
        if name in _TAKEN:
            raise InputError(f"options: {name} is not an option of a family, it stands by itself")


def grid_of(statistic: Statistic) -> tuple[bool, bool]:
    """Whether private bounds of the statistic are whole numbers, and whether they are sought in log x."""
    if statistic.bounds_grid is None:
        raise InputError(f"private bounds are for families of one column, not for {statistic.kind}")
    return statistic.bounds_grid
