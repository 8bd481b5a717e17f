"""The sections of an experiment's TOML file, in their types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dpjax._base.options import options_of
from dpjax._base.reading import ReadingOptions
from dpjax.calibration.options import DesignOptions, StudyOptions
from dpjax.releases.options import ReleaseFields
from dpjax.statistics.options import StatisticOptions
from dpjax.statistics.products import ProductStatistic

if TYPE_CHECKING:
    from dpjax.calibration.design import StudyDesign


#: The model of a study that names none.
USUAL_MODEL = ProductStatistic.kind


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused: a misspelt key must not pass for its default."""


class Data(ReadingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[data]`: a table. csv: path of a CSV file, relative to the config; builtin: "diabetes" (scikit-learn's, raw
    units); data_is_public: whoever runs this says that the table is no secret (needed for non-private results);
    accept: go on although the table looks wrong; the rest: how it is read (`dpjax._base.reading.Reading`)."""

    csv: str | None = None
    builtin: str | None = None
    data_is_public: bool = False
    accept: bool = False


class ReleaseSection(ReleaseFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[release]`: either `file`, a release file relative to the config, or what `dpjax.release` needs."""

    file: str | None = None
    bounds: dict[str, tuple[float, float]] | tuple[float, float] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What is given, as keyword arguments of `dpjax.release`."""
        given = {name: getattr(self, name) for name in ReleaseFields.__struct_fields__ if name != "options"}
        usual = {name: one.default for name, one in options_of(ReleaseFields).items()}
        return {name: value for name, value in given.items() if value != usual[name]} | self.options

    @property
    def statistic(self) -> dict[str, Any]:
        """The part of it that `dpjax.statistics.kinds.make_statistic` takes."""
        given = {name: value for name, value in self.arguments.items() if name in StatisticOptions.__struct_fields__}
        return {"kind": self.model, **given, **self.options}


class Override(_Strict, frozen=True):
    """`[fit.method.NAME]`, `[calibration.method.NAME]`: what one method does differently. settings: fields of the
    sampler, such as burn_in of gibbs."""

    chains: int | None = None
    draws: int | None = None
    thin: int | None = None
    settings: dict[str, Any] = {}


class Fit(_Strict, frozen=True):
    """`[fit]`: posteriors given the release. methods: the model's default if left out; prior: path of a TOML file
    relative to the config, or a table."""

    methods: list[str] | None = None
    chains: int = 4
    draws: int = 1000
    thin: int | None = None
    prior: str | dict[str, Any] | None = None
    method: dict[str, Override] = {}


class CalibrationSection(StudyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[calibration]`: a simulated study; all methods see the same data sets, all cells run in one compiled call.
    prior, truth: path of a TOML file relative to the config, or a table; like: path of a release file."""

    records: int | list[int]
    epsilon: float | list[float]
    model: str = USUAL_MODEL
    bounds: tuple[float, float] | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    prior: str | dict[str, Any] | None = None
    truth: str | dict[str, Any] | None = None
    like: str | None = None
    methods: list[str] | None = None
    method: dict[str, Override] = msgspec.field(default_factory=dict)

    def design(self, base: Path) -> StudyDesign:
        """What is simulated; base: the folder that paths are relative to.

        Raises:
            InputError: as `dpjax.calibration.study_design.study_design`.
        """
        from dpjax.calibration.like import read_like
        from dpjax.calibration.study_design import study_design

        given: dict[str, Any] = {name: getattr(self, name) for name in DesignOptions.__struct_fields__}
        given |= {name: in_folder(given[name], base) for name in ("prior", "truth")}
        if self.like is None:
            return study_design(**given)
        if self.model == USUAL_MODEL:
            given["model"] = None  # left out
        like = read_like(base / self.like, self.cells[0][1])
        return study_design(**given, like=like, method=self.methods[0] if self.methods else None)

    @property
    def cells(self) -> list[tuple[int, float]]:
        """(records, epsilon) of every cell."""
        records = self.records if isinstance(self.records, list) else [self.records]
        epsilon = self.epsilon if isinstance(self.epsilon, list) else [self.epsilon]
        return [(n, e) for n in records for e in epsilon]


def in_folder(given: Any, base: Path) -> Any:
    """A path as one that is relative to a folder; all else as it is."""
    return base / given if isinstance(given, str) else given


class Config(_Strict, frozen=True):
    """The whole file."""

    name: str
    seed: int = 0
    data: Data | None = None
    release: ReleaseSection | None = None
    fit: Fit | None = None
    calibration: CalibrationSection | None = None
