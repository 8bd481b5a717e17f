"""Several data holders: releases of the same regression, each with its own records, bounds and noise, as one problem.

Parties are disjoint: who is in one table is in no other. A record that is replaced stays with its party, so that the
guarantee of all releases together is that of the weakest one (parallel composition, docs/formulas.md#composition).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax.errors import InputError
from dpjax.releases.release import Release
from dpjax.statistics.products import ProductStatistic

#: What parties may share: the law of all records; or theta and sigma2, each with a law of the features of its own.
SHARED, OWN = PARTY_LAWS = ("shared", "own")


@dataclass(frozen=True)
class Parties:
    """J releases in the form that a model takes.

    statistic: of all of them, in common units, for reports; z, scale: `[J, D]`, each in its own release's units, 0 and
    1 where an entry is absent; present `[J, D]`; records `[J]`; mechanisms: names of the parties' noise; centre, half
    `[J, q]`: a party's units in common ones.
    """

    statistic: ProductStatistic
    z: Float64[np.ndarray, "J D"]
    scale: Float64[np.ndarray, "J D"]
    present: Float64[np.ndarray, "J D"]
    records: Float64[np.ndarray, " J"]
    mechanisms: tuple[str, ...]
    centre: Float64[np.ndarray, "J q"]
    half: Float64[np.ndarray, "J q"]


def release_files(paths: Sequence[str | os.PathLike | Any] | str | os.PathLike) -> list[Path]:
    """The release files that are named, in the place of a folder all its .json files by name (hidden ones, whose names
    begin with a dot, are no part of it, nor are folders inside).

    Raises:
        InputError: a folder without any, or that cannot be read; a file that is named twice.
    """
    found: list[Path] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        path = Path(path)
        found += _inside(path) if path.is_dir() else [path]
    seen: set[Path] = set()
    for path in found:
        real = path.resolve()
        if real in seen:
            raise InputError(f"release file {os.fspath(path)!r} is named twice: one release counts once")
        seen.add(real)
    return found


def _inside(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".json" and not file.is_dir())
    except OSError as error:
        raise InputError(f"folder {os.fspath(folder)!r} cannot be read: {error.strerror}") from None
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise InputError(f"folder {os.fspath(folder)!r} holds no release file (*.json)")
    return files


def load_parties(
    given: Sequence[str | os.PathLike | Release | Any] | str | os.PathLike,
) -> list[Release]:
    """The releases of all parties, read and checked where files or folders of them are given, in the order given.

    Raises:
        InputError: as `release_files`; the first file that is not valid, by its name.
    """
    items = [given] if isinstance(given, str | os.PathLike) else list(given)
    release_files([item for item in items if not isinstance(item, Release)])  # none of them twice
    found: list[Release] = []
    for item in items:
        found += [item] if isinstance(item, Release) else [Release.load(file) for file in release_files(item)]
    return found


def gather(releases: Sequence[Release]) -> Parties:
    """Put the releases of J parties together.

    Raises:
        InputError: they are not of the same regression (target, features, intercept, scaled or not), or two hold the
            same noisy sums (one release that is given twice would count twice); the message names the party by its
            number, from 1.
    """
    statistics = [_regression(one, number) for number, one in enumerate(releases, start=1)]
    first = statistics[0]
    for number, other in enumerate(statistics[1:], start=2):
        for what, a, b in (
            ("target", first.target, other.target),
            ("features", list(first.features), list(other.features)),
            ("an intercept", first.intercept, other.intercept),
            ("scaling", first.scaling, other.scaling),
            ("averaged", first.averaged, other.averaged),
        ):
            if a != b:
                raise InputError(f"parties 1 and {number} differ in {what}: {a!r} and {b!r}")
    _refuse_repeated(releases)
    if any(s.moments for s in statistics):
        raise InputError("releases with third and fourth moments can only be fitted one by one")
    common = common_statistic(statistics)
    full = common.complete
    z, scale, present = (np.full((len(releases), full.dim), fill) for fill in (0.0, 1.0, 0.0))
    for j, one in enumerate(releases):
        places = [full.names.index(name) for name in one.names]
        z[j, places], scale[j, places], present[j, places] = one.z, one.scale, 1.0
    centre, half = _units(statistics, common)
    return Parties(
        statistic=common, z=z, scale=scale, present=present, records=np.array([float(one.records) for one in releases]),
        mechanisms=tuple(one.mechanism for one in releases), centre=centre, half=half,
    )  # fmt: skip


def common_statistic(statistics: Sequence[ProductStatistic]) -> ProductStatistic:
    """The statistic in whose units parameters are inferred and reported: the widest bounds of all parties."""
    first, *others = statistics
    return first.common(others) if others else first


def _units(statistics: Sequence[ProductStatistic], common: ProductStatistic) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half width of every party's units in the common ones `[J, q]`."""
    (centre, half), own = common.units, [s.units for s in statistics]
    return np.array([(c - centre) / half for c, _ in own]), np.array([h / half for _, h in own])


def _refuse_repeated(releases: Sequence[Release]) -> None:
    """Noise is continuous: two releases do not agree by chance in all their sums."""
    first: dict[tuple[Any, ...], int] = {}
    for number, one in enumerate(releases, start=1):
        before = first.setdefault((one.records, one.mechanism, *one.statistics.items()), number)
        if before != number:
            raise InputError(
                f"parties {before} and {number} are one release given twice: parties have disjoint tables and noise of "
                "their own"
            )


def _regression(release: Release, number: int) -> ProductStatistic:
    statistic: Any = release.statistic
    if not statistic.has_features:
        raise InputError(f"several releases must be of a linear-regression; party {number} released {release.kind}")
    return statistic


__all__ = ["OWN", "PARTY_LAWS", "SHARED", "Parties", "common_statistic", "gather", "load_parties", "release_files"]
