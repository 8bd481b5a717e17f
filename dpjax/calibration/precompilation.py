"""`precompile`: compile ahead of time what a later `fit` or `calibrate` will run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpjax._base.checks import check_size
from dpjax.calibration.simulation import noise_scale
from dpjax.calibration.study_design import study_design
from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.inference.methods import default_method, method_named
from dpjax.inference.run_method import run_method
from dpjax.mechanisms import mechanism_named
from dpjax.models import model_for

#: Number of records at which programs are compiled: like most releases, below the change to 64-bit positions.
RECORDS, EPSILON = 1000, 1.0


class Precompiled(NamedTuple):
    """The method whose programs were compiled, and the seconds that took (0: they were compiled before)."""

    method: str
    seconds: float


def precompile(
    model: str = "linear-regression",
    *,
    features: int | Any | None = None,
    categories: int | None = None,
    options: Mapping[str, Any] | None = None,
    rule: str | None = None,
    mechanism: str = "laplace",
    method: str | None = None,
    trials: int | None = None,
    chains: int | None = None,
    draws: int | None = None,
    thin: int | None = None,
    stream: bool = False,
    devices: int | None = None,
) -> Precompiled:
    """Compile the programs of a later call, into JAX's persistent cache where there is one.

    Args:
        model, features, categories, options, rule, mechanism, method: of the later call, as in `dpjax.calibrate`.
        trials: compile for a calibration of this many trials in all cells together; None: for a fit.
        chains, draws: of the later call; None: the defaults of `fit` (4 x 1,000) or `calibrate` (2 x 500).
        thin, stream: of the later call.
        devices: as in `dpjax.engine.run.run_chains`.

    Returns:
        `Precompiled`.

    Raises:
        InputError: a value out of range, an unknown model or method, or one that needs exact statistics.

    Programs of positions in 64 bits (more than a million records) and of the exact laws of counts (whose tables have
    the length of the data) are not among those compiled.
    """
    count = 1 if trials is None else check_size("trials", trials)
    usual = (4, 1000) if trials is None else (2, 500)
    delta = 1e-6 if mechanism_named(mechanism).needs_delta else None
    design = study_design(
        model, features=features, categories=categories, options=options, rule=rule, mechanism=mechanism, delta=delta
    )
    if trials is not None:
        prior = design.model
    else:
        any_prior = method is None or method_named(method).any_prior
        prior = model_for(design.statistic, None, "fit" if any_prior else "conjugate")
    name = default_method(prior) if method is None else method
    if method_named(name).replaces is not None:
        raise InputError(f"method {name!r} needs the exact statistics; there is nothing to compile ahead")
    scale = noise_scale(mechanism, design.sensitivity, EPSILON, delta)
    z = np.zeros((count, prior.statistic_dim))
    problems = Problems(z, np.full(count, float(RECORDS)), np.full(z.shape, scale), prior, mechanism)
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


__all__ = ["Precompiled", "precompile"]
