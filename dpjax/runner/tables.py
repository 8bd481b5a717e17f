"""The table of a run, and the release of it that [release] asks for: read, checked and planned."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax._base.private_frames import without_private_values
from dpjax._base.reading import Reading
from dpjax.errors import InputError, require
from dpjax.releases.owner import plan_release
from dpjax.releases.plan import Plan
from dpjax.releases.table import Wanted, completed, raw_columns
from dpjax.runner.sections import Data, ReleaseSection
from dpjax.statistics.base import Statistic
from dpjax.statistics.kinds import make_statistic


def stated_statistic(section: ReleaseSection) -> Statistic:
    """The statistic of a release that is not drawn yet."""
    try:
        return make_statistic(**section.statistic)
    except InputError as error:
        raise InputError(f"[release]: {error}") from None


@without_private_values
def read_columns(
    source: Any, statistic: Statistic, reading: Reading
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Columns of a table with missing values as they are, and with their constants."""
    raw = raw_columns(source, Wanted.of(statistic), reading)
    return raw, completed(raw, reading)


def checked_reading(data: Data, statistic: Statistic) -> Reading:
    try:
        return data.reading.checked(statistic)
    except InputError as error:
        raise InputError(f"data.{error}") from None


def records_of(statistic: Statistic, table: dict[str, np.ndarray]) -> int:
    """Records of a release of this table: its rows, or averages of several of them."""
    return len(table[statistic.variables[0]]) // statistic.averaged


def planned_release(section: ReleaseSection, table: Any, data: Data | None) -> Plan:
    """The release that [release] asks for, checked and not drawn; the owner is shown what the table looks like.

    Args:
        section: [release], without a file.
        table: columns with missing values as they are. Private.
        data: what is said about the table.

    Raises:
        InputError: all that `dpjax.plan_release` refuses.
        MissingExtraError: OpenDP is not installed.
    """
    require("opendp", "releasing a private table")
    # the columns are read: what is said about a file has no more to say
    of_file = ("separator", "decimal", "encoding")
    said = {} if data is None else {name: value for name, value in data.given.items() if name not in of_file}
    accept = data is not None and data.accept
    try:
        return plan_release(table, report=True, accept=accept, **({"target": None} | said | section.arguments))
    except InputError as error:
        raise InputError(f"[release]: {error}") from None


def builtin_table() -> dict[str, np.ndarray]:
    """scikit-learn's diabetes patients in raw units, lower-case names, the response called progression."""
    datasets = require("sklearn.datasets", "the built-in table", "examples")
    bunch = datasets.load_diabetes(scaled=False)
    table = {name.lower(): bunch.data[:, i] for i, name in enumerate(bunch.feature_names)}
    return table | {"progression": bunch.target}
