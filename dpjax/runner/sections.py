"""The sections of an experiment's TOML file, in their types."""

from __future__ import annotations

from typing import Any

import msgspec

from dpjax._base.options import options_of
from dpjax._base.reading import ReadingOptions
from dpjax.releases.options import ReleaseFields
from dpjax.statistics.options import StatisticOptions

#: Keys of [calibration] that say what is simulated: arguments of `dpjax.calibration.design.study_design`.
DESIGN = (
    "model", "features", "bounds", "rule", "categories", "released", "options", "mechanism", "delta", "sensitivity",
    "simulate", "clip", "moments", "moments_share", "intercept", "parties", "squares",
)  # fmt: skip


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused: a misspelt key must not pass for its default."""


class Data(ReadingOptions, frozen=True):
    """`[data]`: a table. csv: path of a CSV file, relative to the config; builtin: "diabetes" (scikit-learn's, raw
    units); data_is_public: whoever runs this says that the table is no secret (needed for non-private results);
    accept: go on although the table looks wrong; the rest: how it is read (`dpjax._base.reading.Reading`)."""

    csv: str | None = None
    builtin: str | None = None
    data_is_public: bool = False
    accept: bool = False


class ReleaseSection(ReleaseFields, frozen=True):
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


class CalibrationSection(_Strict, frozen=True):
    """`[calibration]`: a simulated study; all methods see the same data sets, all cells run in one compiled call."""

    records: int | list[int]
    epsilon: float | list[float]
    model: str = "linear-regression"
    trials: int = 300
    methods: list[str] | None = None
    features: int | None = None
    bounds: tuple[float, float] | None = None
    rule: str | None = None
    categories: int | None = None
    released: list[int] | None = None
    options: dict[str, Any] = {}
    mechanism: str = "laplace"
    delta: float | None = None
    sensitivity: float | None = None
    prior: str | dict[str, Any] | None = None
    simulate: str = "exact"
    clip: bool = False
    moments: bool = False
    moments_share: float | None = None
    intercept: bool = True
    parties: int = 1
    squares: bool | None = None
    chains: int = 2
    draws: int = 500
    thin: int | None = None
    stream: bool = False
    mmd: bool = True
    chains_per_batch: int | None = None
    method: dict[str, Override] = {}

    @property
    def design(self) -> dict[str, Any]:
        """What `dpjax.calibration.design.study_design` takes, but for the prior."""
        return {name: getattr(self, name) for name in DESIGN}

    @property
    def cells(self) -> list[tuple[int, float]]:
        """(records, epsilon) of every cell."""
        records = self.records if isinstance(self.records, list) else [self.records]
        epsilon = self.epsilon if isinstance(self.epsilon, list) else [self.epsilon]
        return [(n, e) for n in records for e in epsilon]


class Config(_Strict, frozen=True):
    """The whole file."""

    name: str
    seed: int = 0
    data: Data | None = None
    release: ReleaseSection | None = None
    fit: Fit | None = None
    calibration: CalibrationSection | None = None
