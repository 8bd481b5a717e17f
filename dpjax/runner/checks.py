"""Everything that can be wrong with an experiment, found before noise is drawn or a file is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from dpjax.calibration.scales import noise_scales
from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.inference.fit import inferred_model
from dpjax.inference.methods import default_method, method_named
from dpjax.releases.plan import Plan
from dpjax.releases.release import Release
from dpjax.runner.facts import check_drawn
from dpjax.runner.folder import RELEASE, Folder, Found
from dpjax.runner.methods import check_methods
from dpjax.runner.outline import Outline
from dpjax.runner.problem import UnfitProblem, one_problem
from dpjax.runner.sections import CalibrationSection, Config, Fit, ReleaseSection
from dpjax.runner.tables import (
    builtin_table,
    checked_reading,
    planned_release,
    read_columns,
    records_of,
    stated_statistic,
)
from dpjax.statistics.base import Statistic


class Prepared(Outline):
    """Everything that can be wrong with a config's files and with the folder's, read before any work. What it holds of
    a private table is in `planned`, so that only process 0 has one.

    public: whether the table is no secret.
    table: its columns if so, else None.
    records: number of records of a release of the table; None without a table.
    release: the one in the file that [release] names.
    drawn: the one of an earlier run.
    planned: the one that is to be drawn.
    """

    def __init__(self, config: Config, base: Path, folder: Folder | None = None, found: Found = Found.BEGIN):
        super().__init__(config, base)
        self.public = config.data is not None and config.data.data_is_public
        self.table: dict[str, np.ndarray] | None = None
        self.records: int | None = None
        self.release: Release | None = None
        self.drawn: Release | None = None
        self.planned: Plan | None = None
        section = config.release
        raw = None  # columns with missing values as they are
        if section is not None and section.file is not None:
            self.release = Release.load(base / section.file)
        if config.data is not None and section is not None:
            source = builtin_table() if config.data.builtin else base / str(config.data.csv)
            statistic = self.release.statistic if self.release else stated_statistic(section)
            raw, columns = read_columns(source, statistic, checked_reading(config.data, statistic))
            self.records = records_of(statistic, columns)
            self.table = columns if self.public else None
            del columns
        if self.release is not None and self.records is not None and self.records != self.release.records:
            raise InputError(  # numbers of records are public: replace-one, and data_is_public
                f"release.file is of {self.release.records} records, the table has {self.records}: not the same table"
            )
        if section is not None and folder is not None and found is not Found.BEGIN and folder.file(RELEASE).exists():
            self.drawn = Release.load(folder.file(RELEASE))
            check_drawn(self.drawn, section, self.release, self.records, folder.path)
        elif section is not None and self.release is None:
            self.planned = planned_release(section, raw, config.data)
        if config.fit is not None and section is not None:
            self.fit = self._checked_fit(config.fit, section)
        if config.calibration is not None:
            self.study = self._checked_study(config.calibration)
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
                statistic, exact, z = known.statistic, self.exact(known), known.z
                records, scale, mechanism = known.records, known.scale, known.mechanism
            else:
                statistic, mechanism, z = stated_statistic(section), section.mechanism, None
                exact = self._exact(statistic)
                assert self.records is not None and section.epsilon is not None
                scale = noise_scales(statistic, mechanism, section.epsilon, section.delta, section.moments_share)
                records = self.records

            def problem(method: str | None) -> Problems:
                model = inferred_model(statistic, self.fit_prior, method)
                return one_problem(model, records, scale, mechanism, z, exact, statistic)

            default = problem(None)
        except UnfitProblem as error:
            where = "release" if known is not None else f"release.epsilon = {section.epsilon!r}"
            raise InputError(f"{where}: {error}") from None
        except InputError as error:
            raise InputError(f"fit.{error}" if error.where == "prior" else f"[fit]: {error}") from None
        fit = fit if fit.methods is not None else replace(fit, methods=[default_method(default.model)])
        check_methods("fit", fit)
        for method in fit.methods or ():
            try:
                method_named(method).check(problem(method))
            except InputError as error:
                raise InputError(f"fit.{error}" if error.where == "prior" else f"fit.methods: {error}") from None
        return fit

    def _checked_study(self, study: CalibrationSection) -> CalibrationSection:
        try:
            self.design = study.design(self.base)
            if study.methods is None:
                study = replace(study, methods=[self.design.default_method()])
                check_methods("calibration", study)
            self.design.check(study.cells, study.methods or ())
        except InputError as error:
            raise InputError(f"calibration{'.' if error.where == 'epsilon' else ': '}{error}") from None
        return study

    def draw(self) -> Release:
        """The release: of an earlier run, of a file, or drawn now, which spends its epsilon and can be done once."""
        known = self.drawn or self.release
        if known is None:
            assert self.planned is not None
            known = self.planned.draw()
        return known

    def exact(self, published: Release) -> np.ndarray | None:
        """Exact statistics [D] in the units of the release; only of a table that is no secret."""
        return self._exact(published.statistic)

    def _exact(self, statistic: Statistic) -> np.ndarray | None:
        if not self.public or self.table is None:
            return None
        return statistic.whole_from_columns(self.table)
