"""The typed, validated content of an experiment's TOML file."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from dpjax._files import read_toml
from dpjax._fingerprint import LATER
from dpjax.errors import InputError
from dpjax.kinds import check_options

BUILTIN = ("diabetes",)
#: Keys of [calibration] that say what is simulated: arguments of `dpjax.study_design.study_design`.
DESIGN = (
    "model", "features", "bounds", "rule", "categories", "released", "options", "mechanism", "delta", "sensitivity",
    "simulate", "clip", "moments", "moments_share", "intercept", "parties", "squares",
)  # fmt: skip
LARGEST_RECORDS = 2**53  # as a float still exact
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are refused: a misspelt key must not pass for its default."""


class Data(_Strict, frozen=True):
    """`[data]`: a table. csv: path of a CSV file, relative to the config; builtin: "diabetes" (scikit-learn's, raw
    units); data_is_public: whoever runs this says that the table is no secret (needed for non-private results)."""

    csv: str | None = None
    builtin: str | None = None
    data_is_public: bool = False


class ReleaseSection(_Strict, frozen=True):
    """`[release]`: either `file`, a release file relative to the config, or what `dpjax.release` needs."""

    file: str | None = None
    model: str = "linear-regression"
    target: str | None = None
    features: list[str] | None = None
    bounds: dict[str, tuple[float, float]] | tuple[float, float] | None = None
    rule: str | None = None
    categories: int | None = None
    labels: list[str] | None = None
    released: list[int] | None = None
    options: dict[str, Any] = {}
    epsilon: float | None = None
    delta: float | None = None
    mechanism: str = "laplace"
    adjacency: str = "replace-one"
    moments: bool = False
    moments_share: float | None = None
    intercept: bool = True
    squares: bool | None = None
    norms: dict[str, float] | None = None
    averaged: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What is given, as keyword arguments of `dpjax.release`."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("file", "options")}
        for name in ("moments", "intercept"):
            if given[name] == LATER[name]:
                del given[name]
        return {name: value for name, value in given.items() if value is not None} | self.options

    @property
    def statistic(self) -> dict[str, Any]:
        """The part of it that `dpjax.kinds.make_statistic` takes."""
        noise = ("epsilon", "delta", "mechanism", "adjacency", "moments_share")
        given = {name: value for name, value in self.arguments.items() if name not in noise}
        return {"kind": given.pop("model"), **given}


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
        """What `dpjax.study_design.study_design` takes, but for the prior."""
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


def load(config: Mapping[str, Any] | str | os.PathLike, seed: int | None = None) -> tuple[Config, Path]:
    """Read and check a config.

    Args:
        config: path of a TOML file, or its content as a mapping (paths are then relative to the working folder).
        seed: replaces the config's.

    Returns:
        The config and the folder that its paths are relative to.

    Raises:
        InputError: the file cannot be read or is not TOML; an unknown key, a wrong type or value (the message has
            the key's path); parts that do not go together.
    """
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        content, folder, where = read_toml(path, "config "), path.parent, f"config {path}: "
    elif isinstance(config, Mapping):
        content, folder, where = dict(config), Path(), "config: "
    else:
        raise InputError(f"config must be a path or a mapping, got {type(config).__name__}")
    if seed is not None:
        content["seed"] = seed
    try:
        typed = msgspec.convert(content, Config, strict=True)
        check(typed)
    except msgspec.ValidationError as error:
        raise InputError(where + _readable(str(error))) from None
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return typed, folder


def check(config: Config) -> None:
    """What types do not say.

    Raises:
        InputError: the first problem, with the path of its key.
    """
    data, release, fit, study = config.data, config.release, config.fit, config.calibration
    if not _NAME.fullmatch(config.name):
        raise InputError(f"name must be of letters, digits, '.', '_' and '-'; got {config.name!r}")
    if not 0 <= config.seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to 2^31 - 1; got {config.seed}")
    if fit is None and study is None and release is None:
        raise InputError("there is nothing to do: [release], [fit] or [calibration] is needed")
    if fit is not None and release is None:
        raise InputError("[fit] needs a [release]")
    if data is not None:
        if release is None:
            raise InputError("[data] is not used: there is no [release]")
        if (data.csv is None) == (data.builtin is None):
            raise InputError("data: one of csv and builtin is needed")
        if data.builtin is not None and data.builtin not in BUILTIN:
            raise InputError(f"data.builtin must be {' or '.join(BUILTIN)}; got {data.builtin!r}")
    if release is not None:
        _check_release(release, data)
    if fit is not None:
        check_methods("fit", fit)
        public = data is not None and data.data_is_public
        exact = [name for name in fit.methods or () if _method(name).exact]
        if exact and not public:
            raise InputError(
                f"fit.methods: {exact[0]} looks at the table itself: it needs [data] with data_is_public = true"
            )
    if study is not None:
        _check_study(study)


def _check_release(release: ReleaseSection, data: Data | None) -> None:
    if release.file is not None:
        left_out = ReleaseSection().arguments
        given = [name for name, value in release.arguments.items() if left_out.get(name) != value]
        if given:
            raise InputError(f"release: file and {given[0]} exclude each other")
        if data is not None and not data.data_is_public:
            raise InputError("[data] is not used: release.file is given, and data_is_public is not true")
        return
    if data is None:
        raise InputError("[release] without a file needs [data]")
    if release.epsilon is None:
        raise InputError("release.epsilon is missing: the privacy budget has no default")
    try:
        check_options(release.options)
    except InputError as error:
        raise InputError(f"release.{error}") from None


def _check_study(study: CalibrationSection) -> None:
    """The sizes; what is simulated is checked by `dpjax.study_design`."""
    from dpjax.simulation import positive, whole

    check_methods("calibration", study)
    whole("calibration.trials", study.trials)
    if not study.cells:
        raise InputError("calibration.records and calibration.epsilon must name at least one cell")
    if study.chains_per_batch is not None:
        whole("calibration.chains_per_batch", study.chains_per_batch)
        chains = max([study.chains, *(item.chains or 0 for item in study.method.values())])
        if study.chains_per_batch < chains:
            raise InputError(
                f"calibration.chains_per_batch must be at least chains = {chains}; got {study.chains_per_batch}"
            )
    if study.stream:
        for method in study.methods or ():
            _check_stream(study, method)
    for records, epsilon in study.cells:
        if whole("calibration.records", records) > LARGEST_RECORDS:
            raise InputError(f"calibration.records must be at most 2^53; got {records}")
        positive("calibration.epsilon", epsilon)
    if len(set(study.cells)) < len(study.cells):
        raise InputError("calibration.records or calibration.epsilon names a value twice")


def _check_stream(study: CalibrationSection, method: str) -> None:
    """Running sums are kept per segment of steps, and the diagnostics compare at least two of those."""
    if not _method(method).streams:
        raise InputError(f"calibration.stream: {method} keeps its draws, it cannot stream")
    from dpjax._layout import segment_length
    from dpjax._programs import KEY_BLOCK

    own = study.method.get(method, Override())
    thin = own.thin or study.thin or max(_method(method).thin, KEY_BLOCK)
    chunk = max(thin, KEY_BLOCK)
    warm = -(-_sampler(method, own.settings).warmup_iterations // chunk) * chunk
    sampling = -(-(own.draws or study.draws) * thin // chunk) * chunk
    if sampling <= segment_length(warm, sampling, chunk):
        raise InputError(
            f"calibration.draws: {own.draws or study.draws} draws of {method} are too few for stream = true"
        )


def check_methods(where: str, section: Fit | CalibrationSection) -> None:
    """Names, sizes and settings of the methods; without `methods`, which is the model's default, all but that.

    Raises:
        InputError: the first problem, with the path of its key.
    """
    from dpjax._programs import KEY_BLOCK
    from dpjax.simulation import whole

    chosen = section.methods
    if chosen == []:
        raise InputError(f"{where}.methods must name at least one method")
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise InputError(f"{where}.methods names a method twice")
    for name in (*(chosen or ()), *section.method):
        try:
            _method(name)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    for name in section.method:
        if chosen is not None and name not in chosen:
            raise InputError(f"{where}.method.{name}: {name} is not among {where}.methods")
    parts: list[tuple[str, Any]] = [(where, section)]
    parts += [(f"{where}.method.{name}", item) for name, item in section.method.items()]
    for place, part in parts:
        for key in ("chains", "draws", "thin"):
            value = getattr(part, key)
            if value is not None:
                whole(f"{place}.{key}", value)
        if part.thin is not None and KEY_BLOCK % part.thin and part.thin % KEY_BLOCK:
            raise InputError(f"{place}.thin must be a divisor or a multiple of {KEY_BLOCK}; got {part.thin}")
    for name, item in section.method.items():
        sampler_settings(name, item.settings, f"{where}.method.{name}.settings")


def sampler_settings(method: str, settings: Mapping[str, Any], place: str = "settings") -> dict[str, Any]:
    """Settings of a method's sampler in their types; the sampler itself says which values it takes.

    Raises:
        InputError: unknown name, wrong type, value out of range; the message begins with `place`.
    """
    from dpjax.methods import HIDDEN

    sampler = _sampler(method, {})
    types = get_type_hints(type(sampler))
    known = sorted({field.name for field in dataclasses.fields(sampler)} - {"name", *HIDDEN})
    typed: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"{place}: {method} has no setting {name!r}; it has {', '.join(known) or 'none'}")
        try:
            typed[name] = msgspec.convert(value, types[name], strict=True)
        except msgspec.ValidationError as error:
            raise InputError(f"{place}.{name}: {_readable(str(error))}") from None
        # what every setting has in common: sizes and rates
        if isinstance(typed[name], int | float) and not (math.isfinite(typed[name]) and 0 <= typed[name] < 2**31):
            raise InputError(f"{place}.{name} must be a finite number from 0 to 2^31; got {value!r}")
    try:
        dataclasses.replace(sampler, **typed)
    except (TypeError, ValueError) as error:
        raise InputError(f"{place}: {error}") from None
    return typed


def _sampler(method: str, settings: Mapping[str, Any]) -> Any:
    from dpjax.mechanisms import MECHANISMS

    return dataclasses.replace(_method(method).make(MECHANISMS["laplace"].unit_noise), **settings)


def _method(name: str) -> Any:
    from dpjax.methods import method_named

    return method_named(name)


def plain(config: Config) -> dict[str, Any]:
    """The config as plain data, with its defaults."""
    return msgspec.to_builtins(config)


def _readable(message: str) -> str:
    """msgspec's message with the path of the key in front."""
    text, _, place = message.partition(" - at ")
    place = place.strip("`").removeprefix("$").lstrip(".").replace("[...]", ".*")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    missing = re.fullmatch(r"Object missing required field `(.*)`", text)
    if unknown:
        return f"unknown key {'.'.join(filter(None, (place, unknown[1])))}"
    if missing:
        return f"{'.'.join(filter(None, (place, missing[1])))} is missing"
    text = text.replace("`", "'").replace("object", "table")
    return f"{place}: {text}" if place else text
