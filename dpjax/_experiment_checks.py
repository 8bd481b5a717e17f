"""Everything that can be wrong with an experiment, found before noise is drawn or a file is written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from dpjax._config import CalibrationSection, Config, Fit, ReleaseSection, check_methods
from dpjax._experiment_files import RELEASE, Folder, Found
from dpjax._table import read_columns
from dpjax.calibration import Calibration
from dpjax.engine import Problems
from dpjax.errors import InputError, PrivacyWarning, require
from dpjax.inference import inferred_model
from dpjax.kinds import make_statistic
from dpjax.mechanisms import noise_scales
from dpjax.methods import default_method, method_named
from dpjax.models import Model
from dpjax.posterior import Posterior
from dpjax.problems import make_problems
from dpjax.release import Release, release
from dpjax.statistics import Statistic
from dpjax.study_design import study_design


class Prepared:
    """Everything that can be wrong with a config's files and with the folder's, read before any work.

    fit, study: sections with the methods that are run; design: what the study simulates.
    """

    def __init__(self, config: Config, base: Path, folder: Folder | None = None, found: Found = Found.BEGIN):
        self.table: dict[str, np.ndarray] | None = None
        self.release: Release | None = None
        section = config.release
        if section is not None and section.file is not None:
            self.release = Release.load(base / section.file)
        if config.data is not None and section is not None:
            source = builtin_table() if config.data.builtin else base / str(config.data.csv)
            statistic = self.release.statistic if self.release else _statistic(section)
            self.table = read_columns(source, statistic.variables, statistic.texts)
        if self.release is not None and self.table is not None:
            records = len(self.table[self.release.statistic.variables[0]])
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
        self.fit_prior = _path(config.fit.prior, base) if config.fit else None
        self.study_prior = _path(config.calibration.prior, base) if config.calibration else None
        self.fit: Fit | None = None
        if config.fit is not None and section is not None:
            self.fit = self._checked_fit(config.fit, section)
        self.study: CalibrationSection | None = None
        if config.calibration is not None:
            self.study = self._checked_study(config.calibration)
        self.posteriors: dict[str, Posterior] = {}
        self.calibrations: dict[str, Calibration] = {}
        if folder is not None and found is Found.GO_ON:
            self._read_parts(folder)

    def _read_parts(self, folder: Folder) -> None:
        if self.fit is not None and self.drawn is not None:
            for method in self.fit.methods or ():
                posterior = folder.posterior(method, self.drawn.statistic)
                if posterior is not None:
                    self.posteriors[method] = posterior
        for method in (self.study.methods if self.study is not None else None) or ():
            calibration = folder.calibration(method)
            if calibration is not None:
                self.calibrations[method] = calibration

    def _checked_fit(self, fit: Fit, section: ReleaseSection) -> Fit:
        """What `fit` would refuse, of a release that is not drawn yet as far as it is known."""
        known = self.drawn or self.release
        exact = None
        try:
            if known is not None:
                model = inferred_model(known.statistic, self.fit_prior)
                exact = self.exact(known)
                problem = one_problem(
                    model, known.records, known.scale, known.mechanism, known.z, exact, known.statistic
                )
            else:
                statistic = _statistic(section)
                model = inferred_model(statistic, self.fit_prior)
                exact = self._exact(statistic)
                assert self.table is not None and section.epsilon is not None
                scale = noise_scales(
                    statistic, section.mechanism, section.epsilon, section.delta, section.moments_share
                )
                records = len(self.table[statistic.variables[0]])
                problem = one_problem(model, records, scale, section.mechanism, exact=exact, statistic=statistic)
        except UnfitProblem as error:
            where = "release" if known is not None else f"release.epsilon = {section.epsilon!r}"
            raise InputError(f"{where}: {error}") from None
        except InputError as error:
            raise InputError(f"fit.{error}" if str(error).startswith("prior") else f"[fit]: {error}") from None
        fit = fit if fit.methods is not None else replace(fit, methods=[default_method(model)])
        check_methods("fit", fit)
        for method in fit.methods or ():
            try:
                method_named(method).check(problem)
            except InputError as error:
                raise InputError(f"fit.methods: {error}") from None
        return fit

    def _checked_study(self, study: CalibrationSection) -> CalibrationSection:
        try:
            self.design = study_design(**study.design, prior=self.study_prior)
            if study.methods is None:
                study = replace(study, methods=[self.design.default_method()])
                check_methods("calibration", study)
            self.design.check(study.cells, study.methods or ())
        except InputError as error:
            raise InputError(f"calibration{'.' if str(error).startswith('epsilon = ') else ': '}{error}") from None
        return study

    def exact(self, published: Release) -> np.ndarray | None:
        """Exact statistics [D] in the units of the release; only of a table that is no secret."""
        return self._exact(published.statistic)

    def _exact(self, statistic: Statistic) -> np.ndarray | None:
        if not self.public or self.table is None:
            return None
        return statistic.whole_from_columns(self.table)


class UnfitProblem(InputError):
    """Sizes that cannot be computed with, which the noise scale explains."""


def one_problem(
    model: Model,
    records: int,
    scale: Any,
    mechanism: str,
    z: Any = None,
    exact: Any = None,
    statistic: Statistic | None = None,
) -> Problems:
    """The problem behind a release, also of one that is not drawn yet: its sums are `exact` or 2 per record.

    Raises:
        UnfitProblem: numbers beyond what can be computed with.
    """
    size = (1, model.statistic_dim)
    known = exact if z is None else z
    z = np.broadcast_to(2.0 * records if known is None else known, size)
    exact = None if exact is None else np.broadcast_to(exact, size)
    try:
        n, scale = np.array([float(records)]), np.broadcast_to(scale, size)
        return make_problems(z, n, scale, model, mechanism, statistic=statistic, exact=exact)
    except InputError as error:
        raise UnfitProblem(str(error)) from None


def _statistic(section: ReleaseSection) -> Statistic:
    """The statistic of a release that is not drawn yet."""
    try:
        return make_statistic(**section.statistic)
    except InputError as error:
        raise InputError(f"[release]: {error}") from None


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
    """Draw the release; this spends its epsilon."""
    return release(table, **({"target": None} | section.arguments))


def _path(prior: Any, base: Path) -> Any:
    return base / prior if isinstance(prior, str) else prior


def builtin_table() -> dict[str, np.ndarray]:
    """scikit-learn's diabetes patients in raw units, lower-case names, the response called progression."""
    datasets = require("sklearn.datasets", "examples", "the built-in table")
    bunch = datasets.load_diabetes(scaled=False)
    table = {name.lower(): bunch.data[:, i] for i, name in enumerate(bunch.feature_names)}
    return table | {"progression": bunch.target}
