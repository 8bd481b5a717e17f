"""Methods of [fit] and [calibration]: their names, sizes and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from dpjax._base.checks import LARGEST_RECORDS, check_run, check_size
from dpjax.errors import InputError
from dpjax.runner.sections import CalibrationSection, Fit, Override
from dpjax.runner.wording import readable


def check_methods(where: str, section: Fit | CalibrationSection, problems: int = 1, stream: bool = False) -> None:
    """Names, sizes and settings of the methods; without `methods`, which is the model's default, all but that.

    Args:
        where: name of the section.
        section: its content.
        problems: how many there are for each method.
        stream: draws are not kept.

    Raises:
        InputError: the first problem, with the path of its key.
    """
    from dpjax.engine.sampler import KEY_BLOCK

    chosen = section.methods
    if chosen == []:
        raise InputError(f"{where}.methods must name at least one method")
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise InputError(f"{where}.methods names a method twice")
    for name in (*(chosen or ()), *section.method):
        try:
            method_of(name)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    for name in section.method:
        if chosen is not None and name not in chosen:
            raise InputError(f"{where}.method.{name}: {name} is not among {where}.methods")
    parts: list[tuple[str, Any]] = [(where, section)]
    parts += [(f"{where}.method.{name}", item) for name, item in section.method.items()]
    for place, part in parts:
        sizes = {key: getattr(part, key) for key in ("chains", "draws", "thin")}
        sizes = {key: getattr(section, key) if value is None else value for key, value in sizes.items()}
        check_run(**sizes, problems=problems, stream=stream, place=f"{place}.")
        if part.thin is not None and KEY_BLOCK % part.thin and part.thin % KEY_BLOCK:
            raise InputError(f"{place}.thin must be a divisor or a multiple of {KEY_BLOCK}; got {part.thin}")
    for name, item in section.method.items():
        sampler_settings(name, item.settings, f"{where}.method.{name}.settings")


def sampler_settings(method: str, settings: Mapping[str, Any], place: str = "settings") -> dict[str, Any]:
    """Settings of a method's sampler in their types; the sampler itself says which values it takes.

    Raises:
        InputError: unknown name, wrong type, value out of range; the message begins with `place`.
    """
    from dpjax.inference.run_method import HIDDEN

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
            raise InputError(f"{place}.{name}: {readable(error)}") from None
        # what every setting has in common: sizes and rates
        if isinstance(typed[name], int | float) and not 0 <= typed[name] < 2**31:
            raise InputError(f"{place}.{name} must be a finite number from 0 to 2^31; got {value!r}")
    try:
        dataclasses.replace(sampler, **typed)
    except (TypeError, ValueError) as error:
        raise InputError(f"{place}: {error}") from None
    return typed


def _sampler(method: str, settings: Mapping[str, Any]) -> Any:
    from dpjax.mechanisms import LAPLACE

    return dataclasses.replace(method_of(method).make(LAPLACE), **settings)


def method_of(name: str) -> Any:
    from dpjax.inference.methods import method_named

    return method_named(name)


def check_study(study: CalibrationSection) -> None:
    """The sizes; what is simulated is checked by `dpjax.calibration.design`."""
    from dpjax.calibration.simulation import positive

    check_size("calibration.trials", study.trials)
    if not study.cells:
        raise InputError("calibration.records and calibration.epsilon must name at least one cell")
    check_methods("calibration", study, study.trials * len(study.cells), study.stream)
    if study.chains_per_batch is not None:
        check_size("calibration.chains_per_batch", study.chains_per_batch)
        chains = max([study.chains, *(item.chains or 0 for item in study.method.values())])
        if study.chains_per_batch < chains:
            raise InputError(
                f"calibration.chains_per_batch must be at least chains = {chains}; got {study.chains_per_batch}"
            )
    if study.stream:
        for method in study.methods or ():
            _check_stream(study, method)
    for records, epsilon in study.cells:
        check_size("calibration.records", records, most=LARGEST_RECORDS)
        positive("calibration.epsilon", epsilon)
    if len(set(study.cells)) < len(study.cells):
        raise InputError("calibration.records or calibration.epsilon names a value twice")


def _check_stream(study: CalibrationSection, method: str) -> None:
    """Running sums are kept per segment of steps, and the diagnostics compare at least two of those."""
    if not method_of(method).streams:
        raise InputError(f"calibration.stream: {method} keeps its draws, it cannot stream")
    from dpjax.engine.layout import segment_length
    from dpjax.engine.sampler import KEY_BLOCK

    own = study.method.get(method, Override())
    thin = own.thin or study.thin or max(method_of(method).thin, KEY_BLOCK)
    chunk = max(thin, KEY_BLOCK)
    warm = -(-_sampler(method, own.settings).warmup_iterations // chunk) * chunk
    sampling = -(-(own.draws or study.draws) * thin // chunk) * chunk
    if sampling <= segment_length(warm, sampling, chunk):
        raise InputError(
            f"calibration.draws: {own.draws or study.draws} draws of {method} are too few for stream = true"
        )
