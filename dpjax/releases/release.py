"""Releases: noisy sums of a private table, and the file in which they are published.

Nothing here touches private data: `dpjax.releases.owner` does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import Bounds, shown
from dpjax._base.signatures import no_field_check, no_type_check
from dpjax._base.visible import one_line
from dpjax.errors import InputError, PrivacyWarning
from dpjax.privacy.quantile import PrivateQuantile
from dpjax.releases import file as _file
from dpjax.releases.doubts import guarantee_doubts
from dpjax.releases.guarantee import MomentsPrivacy, Privacy, block_of_privacy, privacy_of_block
from dpjax.statistics.base import Statistic

__all__ = ["MomentsPrivacy", "Privacy", "PrivateQuantile", "Release", "describe_problems"]


@no_field_check
@dataclass(frozen=True)
class Release:
    """What is published about a table, and all that the analyst knows. Nothing in it is private.

    Args:
        statistic: what was summed (`dpjax.statistics.kinds.make_statistic`): columns, bounds, scaling, entries.
        records: the number of records, public under replace-one adjacency.
        statistics: noisy sums by entry name (`Statistic.names`), any order.
        mechanism: "laplace", "gaussian" or "discrete-laplace".
        noise_scale: Laplace scale b or normal standard deviation, > 0: one number, or a mapping by entry.
        privacy: the guarantee; None if it is not known, as inference needs only the noise.
        simulated: the noise was not drawn for a real release.
        imputed: by column, the constant that was counted wherever a value was missing; None where none could be.

    Raises:
        InputError: anything that `describe_problems` would report.
    """

    statistic: Statistic
    records: int
    statistics: dict[str, float]
    mechanism: str
    noise_scale: float | dict[str, float]
    privacy: Privacy | None = None
    simulated: bool = False
    imputed: dict[str, float | str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.statistic, Statistic):
            raise InputError(f"statistic must be a dpjax.statistics.regression.Statistic, got {shown(self.statistic)}")
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
        return tuple(self._with_features.features)

    @property
    def target(self) -> str:
        """Column of a regression's response."""
        return self._with_features.target

    @property
    def p(self) -> int:
        """Number of a regression's features."""
        return self._with_features.p

    @property
    def _with_features(self) -> Any:
        if not self.statistic.has_features:
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
            data["privacy"] = block_of_privacy(self.privacy)
        elif self.privacy is not None:
            data["privacy"] = self.privacy
        if self.bounds is not None and self.statistic.truncation is None:
            data["bounds"] = self.bounds
        if self.simulated:
            data["simulated"] = self.simulated
        if self.imputed is not None:
            data["imputed"] = self.imputed
        return _file.to_plain(data)

    @classmethod
    @no_type_check
    def from_dict(cls, data: Mapping[str, Any]) -> Release:
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
        for doubt in guarantee_doubts(typed, statistic):
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
        from dpjax._base.files import write_json

        write_json(path, self.to_dict(), force)


def describe_problems(path: str | os.PathLike) -> list[str]:
    """What is wrong with a release file, one line per problem, for `dpjax check`; empty if it can be used.

    Doubts about the stated guarantee are not problems: `Release.load` warns of them. Nor are doubts about the sums
    (`dpjax.releases.possible_sums`).
    """
    try:
        typed, _, problems = _file.check(_file.read_json(path))
        return [one_line(problem) for problem in problems or _file.computation_problems(typed)]
    except InputError as error:
        return [one_line(str(error))]


def _checked(data: Any) -> tuple[dict[str, Any], Any]:
    """The typed content of a valid release, and its statistic.

    Raises:
        InputError: the first problem.
    """
    typed, statistic, problems = _file.check(data)
    if problems:
        rest = f" (and {len(problems) - 1} more: dpjax check lists them)" if len(problems) > 1 else ""
        raise InputError(f"{one_line(problems[0])}{rest}")
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
        "privacy": None if data["privacy"] is None else privacy_of_block(**data["privacy"]),
        "simulated": data["simulated"],
        "imputed": data["imputed"],
    }


def _as_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
