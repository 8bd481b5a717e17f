"""Everything that can be wrong with an experiment, found before noise is drawn or a file is written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._config import CalibrationSection, Config, ReleaseSection
from dpjax._experiment_files import RELEASE, Folder, Found
from dpjax._table import read_columns
from dpjax.calibration import Calibration, calibration_model, default_sensitivity
from dpjax.engine import Problems
from dpjax.errors import InputError, PrivacyWarning, require
from dpjax.inference import regression_prior
from dpjax.posterior import Posterior
from dpjax.release import Release, release
from dpjax.simulation import positive
from dpjax.statistics import to_unit


class Prepared:
    """Everything that can be wrong with a config's files and with the folder's, read before any work."""

    def __init__(self, config: Config, base: Path, folder: Folder | None = None, found: Found = Found.BEGIN):
        self.table: dict[str, np.ndarray] | None = None
        self.release: Release | None = None
        section = config.release
        if section is not None and section.file is not None:
            self.release = Release.load(base / section.file)
        if config.data is not None and section is not None:
            given = self.release
            names = (*given.features, given.target) if given else (*(section.features or []), section.target or "")
            source = builtin_table() if config.data.builtin else base / str(config.data.csv)
            self.table = read_columns(source, names)
        if self.release is not None and self.table is not None:
            records = len(self.table[self.release.target])
            if records != self.release.records:  # public: replace-one, and data_is_public
                raise InputError(
                    f"release.file is of {self.release.records} records, the table has {records}: not the same table"
                )
        self.public = config.data is not None and config.data.data_is_public
        self.drawn: Release | None = None  # by an earlier run
        if section is not None and folder is not None and found is not Found.BEGIN and folder.file(RELEASE).exists():
            self.drawn = Release.load(folder.file(RELEASE))
        elif section is not None and self.release is None:
            _rehearse(section, self.table)
        known = self.drawn or self.release
        if known is not None:
            self.exact(known)
        self.posteriors: dict[str, Posterior] = {}
        self.calibrations: dict[str, Calibration] = {}
        if folder is not None and found is Found.GO_ON:
            self._read_parts(config, folder)
        self.fit_prior = _path(config.fit.prior, base) if config.fit else None
        self.study_prior = _path(config.calibration.prior, base) if config.calibration else None
        if config.fit is not None and section is not None:
            self._check_fit(section, known)
        if config.calibration is not None:
            self._check_study(config.calibration)

    def _read_parts(self, config: Config, folder: Folder) -> None:
        for method in config.fit.methods if config.fit and self.drawn else ():
            posterior = folder.posterior(method)
            if posterior is not None:
                self.posteriors[method] = posterior
        for method in config.calibration.methods if config.calibration else ():
            calibration = folder.calibration(method)
            if calibration is not None:
                self.calibrations[method] = calibration

    def _check_fit(self, section: ReleaseSection, known: Release | None) -> None:
        """What `fit` would refuse, of a release that is not drawn yet as far as it is known."""
        features = known.features if known else section.features or []
        model = regression_prior(len(features), self.fit_prior)
        if known is not None:
            if known.scaling is None and self.fit_prior is None:
                raise InputError("fit.prior is missing: the release is in raw units, which no default is made for")
            _check_problem("release", model, known.records, known.scale, known.z, known.mechanism)
        elif self.table is not None and section.epsilon is not None:
            scale = default_sensitivity(len(features)) / section.epsilon
            records = len(self.table[section.target or ""])
            _check_problem(f"release.epsilon = {section.epsilon!r}", model, records, scale)

    def _check_study(self, section: CalibrationSection) -> None:
        self.model = calibration_model(section.features, self.study_prior)
        self.sensitivity = section.sensitivity or default_sensitivity(section.features, section.bounds)
        positive("calibration: the sensitivity of these bounds", self.sensitivity)
        for records, epsilon in section.cells:
            _check_problem(f"calibration.epsilon = {epsilon!r}", self.model, records, self.sensitivity / epsilon)

    def exact(self, published: Release) -> np.ndarray | None:
        """Exact statistics [D] in the units of the release; only of a table that is no secret."""
        if not self.public or self.table is None:
            return None
        columns = []
        for name in (*published.features, published.target):
            values = self.table[name]
            bounds = published.bounds[name] if published.bounds else None
            if published.scaling is not None and bounds is not None:
                values = to_unit(values, *bounds)
            elif bounds is not None:
                values = np.clip(values, *bounds)
            columns.append(values)
        return published.statistic.from_records(np.stack(columns[:-1], axis=1), columns[-1])


def _check_problem(place: str, model: Any, records: int, scale: Any, z: Any = None, mechanism: str = "laplace") -> None:
    """Refuse sizes that cannot be computed with. Sums of values in [-1, 1] are at most `records` before the noise."""
    size = (1, model.statistic_dim)
    z = np.broadcast_to(2.0 * records if z is None else z, size)
    try:
        Problems(z, np.array([float(records)]), np.broadcast_to(scale, size), model, mechanism)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _rehearse(section: ReleaseSection, table: Any) -> None:
    """Refuse everything that `release` refuses, without drawing noise.

    It warns when all is checked and nothing is drawn yet; a warning that is an error stops it there.
    """
    require("opendp", "release", "releasing a private table")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        try:
            draw(section, table)
        except PrivacyWarning:
            return
        except InputError as error:
            raise InputError(f"[release]: {error}") from None
    raise AssertionError("a release must warn before it draws")


def draw(section: ReleaseSection, table: Any) -> Release:
    return release(
        table,
        target=section.target,
        features=section.features,
        bounds=section.bounds,
        epsilon=section.epsilon,
        mechanism=section.mechanism,
        adjacency=section.adjacency,
    )


def _path(prior: Any, base: Path) -> Any:
    return base / prior if isinstance(prior, str) else prior


def builtin_table() -> dict[str, np.ndarray]:
    """scikit-learn's diabetes patients in raw units, lower-case names, the response called progression."""
    datasets = require("sklearn.datasets", "examples", "the built-in table")
    bunch = datasets.load_diabetes(scaled=False)
    table = {name.lower(): bunch.data[:, i] for i, name in enumerate(bunch.feature_names)}
    return table | {"progression": bunch.target}
