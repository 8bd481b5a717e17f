"""The public facts by which a release that lies in a folder is known again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dpjax._base import files
from dpjax._base.checks import shown
from dpjax.errors import InputError
from dpjax.releases.release import Release
from dpjax.runner.folder import RELEASE
from dpjax.runner.sections import ReleaseSection
from dpjax.runner.tables import stated_statistic
from dpjax.statistics.base import Statistic


def check_drawn(
    drawn: Release, section: ReleaseSection, given: Release | None, records: int | None, folder: Path
) -> None:
    """Refuse a release in the folder whose public facts are not those of the table and of [release]: a file at the
    same place may be another table, which nothing but these facts may tell.

    Args:
        drawn: the release in the folder.
        section: [release].
        given: the release in the file that [release] names; None if one is drawn.
        records: number of records of a release of the table; None without a table.
        folder: where the drawn one lies.

    Raises:
        InputError: the first fact that differs.
    """
    if given is not None:
        ours, theirs = _facts(drawn), _facts(given)
    else:
        ours, theirs = _facts(drawn, section.epsilon), _stated(section)
    if records is not None:
        theirs["records"] = records
    for name, value in theirs.items():
        if ours[name] != value:
            raise InputError(
                f"output {folder}: its {RELEASE} is of another table or [release] ({name}: {shown(ours[name])} there,"
                f" {shown(value)} here); use another folder"
            )


def _facts(one: Release, epsilon: float | None = None) -> dict[str, Any]:
    """What anybody may know of a release; epsilon: what is stated, if the release states the same but for rounding."""
    stated = None if one.privacy is None else one.privacy.epsilon
    if stated is not None and epsilon is not None and math.isclose(stated, epsilon, rel_tol=1e-9):
        stated = epsilon
    return {**_of_statistic(one.statistic), "noise": one.mechanism, "epsilon": stated, "records": one.records}


def _stated(section: ReleaseSection) -> dict[str, Any]:
    """The same of a release that [release] asks for."""
    return {**_of_statistic(stated_statistic(section)), "noise": section.mechanism, "epsilon": section.epsilon}


def _of_statistic(statistic: Statistic) -> dict[str, Any]:
    facts = {"model": statistic.block(), "bounds": statistic.column_bounds, "truncation": statistic.truncation}
    return files.plain({**facts, "scaling": statistic.scaling})
