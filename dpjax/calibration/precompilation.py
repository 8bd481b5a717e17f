"""`precompile`: compile ahead of time what a later `fit` or `calibrate` will run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from dpjax._base.checks import check_size
from dpjax._base.options import check_options
from dpjax._base.signatures import no_type_check
from dpjax.calibration.design import StudyDesign
from dpjax.calibration.options import DesignOptions, Prior
from dpjax.calibration.study_design import study_design
from dpjax.engine.sampler import LaneSampler
from dpjax.errors import InputError
from dpjax.inference.methods import method_named
from dpjax.inference.own_methods import name_of
from dpjax.inference.run_method import run_method
from dpjax.mechanisms import mechanism_named
from dpjax.models import Model, PartySums, model_for
from dpjax.statistics.products import ProductStatistic

#: Number of records at which programs are compiled: like most releases, below the change to 64-bit positions.
RECORDS, EPSILON = 1000, 1.0


class Precompiled(NamedTuple):
    """The method whose programs were compiled, and the seconds that took (0: they were compiled before)."""

    method: str
    seconds: float


@no_type_check
def precompile(
    model: str = ProductStatistic.kind,
    *,
    method: str | LaneSampler | None = None,
    trials: int | None = None,
    chains: int | None = None,
    draws: int | None = None,
    thin: int | None = None,
    stream: bool = False,
    devices: int | None = None,
    **design: Any,
) -> Precompiled:
    """Compile the programs of a later call, into JAX's persistent cache where there is one.

    Args:
        model, method: of the later call, as in `dpjax.calibrate`.
        trials: compile for a calibration of this many trials in all cells together; None: for a fit.
        chains, draws: of the later call; None: the defaults of `fit` (4 x 1,000) or `calibrate` (2 x 500).
        thin, stream: of the later call.
        devices: as in `dpjax.engine.run.run_chains`.
        design: what is released or simulated then: fields of `dpjax.calibration.options.DesignOptions`, as in
            `dpjax.calibrate`. delta has a default here.

    Returns:
        `Precompiled`.

    Raises:
        InputError: a value out of range, an unknown model or method, or one that needs exact statistics.

    Programs of positions in 64 bits (more than a million records) and of the exact laws of counts (whose tables have
    the length of the data) are not among those compiled.
    """
    count = 1 if trials is None else check_size("trials", trials)
    usual = (4, 1000) if trials is None else (2, 500)
    chosen = DesignOptions(model=model, **design)
    check_options(chosen)
    usual_delta = 1e-6 if mechanism_named(chosen.mechanism).needs_delta else None
    if design.get("delta") is None:
        design["delta"] = usual_delta
    if chosen.moments and chosen.simulate == "exact":
        design["simulate"] = "normal"  # the law of the features, which no program depends on
    made, name = study_design(model, **design), name_of(method)
    if trials is None:
        made = replace(made, model=_fitted(made, chosen.prior, name))
    name = made.default_method() if name is None else name
    if method_named(name).replaces is not None:
        raise InputError(f"method {name!r} needs the exact statistics; there is nothing to compile ahead")
    problems = made.example(count, RECORDS, EPSILON)
    run = run_method(
        name,
        problems,
        seed=0,
        chains=usual[0] if chains is None else chains,
        draws=usual[1] if draws is None else draws,
        thin=thin,
        stream=stream,
        devices=devices,
        compile_only=True,
    )
    return Precompiled(name, run.compile_seconds)


def _fitted(design: StudyDesign, prior: Prior | None, method: str | None) -> Model:
    """The model of a fit of such releases, in place of the study's."""
    any_prior = design.parties == 1 and (method is None or method_named(method).any_prior)
    model = model_for(design.statistic, prior, "fit" if any_prior else "conjugate")
    if design.parties > 1 and model.takes_parties:
        return PartySums(model, design.parties)
    return model


__all__ = ["Precompiled", "precompile"]
