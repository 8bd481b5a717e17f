"""The design of a study from what a user states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax._base.options import Option, check_options, options_of
from dpjax.calibration.design import ADJACENCY, StudyDesign
from dpjax.calibration.like import Like
from dpjax.calibration.options import DesignOptions
from dpjax.calibration.simulation import LAWS, check_simulation, noise_scale, positive
from dpjax.calibration.truth import truth_model
from dpjax.engine.problems import precision
from dpjax.errors import InputError
from dpjax.families import Family
from dpjax.inference.fit import inferred_model
from dpjax.mechanisms import mechanism_named
from dpjax.models import PartySums, model_for
from dpjax.models.families.making import family_prior
from dpjax.privacy.budget import checked_share
from dpjax.statistics.feature_moments import MOMENTS_SHARE
from dpjax.statistics.kinds import simulated_statistic
from dpjax.statistics.products import ProductStatistic

#: Share of the records at the centre of the prior that the default bounds of a study hold (Bernstein 2020, section 4.4;
#: fixed a priori, not at each trial's true parameter: docs/formulas.md#stated-bounds).
MIDDLE = 0.95
#: Options that `simulated_statistic` takes as they are.
SUMMED = ("rule", "categories", "released", "moments", "intercept", "squares", "norms", "averaged")
#: Options that a study like a release may have too.
BESIDE_LIKE = ("prior", "truth", "simulate", "clip")


def study_design(
    model: str | None = None, *, like: Like | None = None, method: str | None = None, **design: Any
) -> StudyDesign:
    """Check and put together what a study simulates.

    Args:
        model: one of `dpjax.statistics.kinds.kinds()`; None: linear-regression, or that of `like`.
        like: a release (`dpjax.calibration.like.read_like`) whose model, bounds, scaling and noise the study has; the
            prior is then by default that of `fit`. Excludes the arguments that say these things.
        method: of the inference, for that default.
        design: fields of `dpjax.calibration.options.DesignOptions`, which are the following.
        features: number of a regression's covariates (1 if None).
        bounds: in the units of the model. Of every variable of a regression (default (-1, 1)): they set the
            sensitivity, and records are not clipped unless `clip`, as in Bernstein and Sheldon 2019. Of the records of
            an unbounded family, which are clamped or redacted: default the middle 95% at the centre of the prior.
        rule: "clamp" (default) or "redact", of unbounded families.
        categories, released: of a multinomial.
        options: of the family, such as the shape of a gamma distribution.
        mechanism, delta: of the noise; delta for gaussian noise only.
        sensitivity: replaces the statistic's own in the mechanism's norm.
        prior: None for that of calibration studies; parameters are drawn from it and it is the prior of the inference.
        simulate: "exact" or "clt" (statistics from the samplers' own normal approximation).
        clip: clip the records of a regression to `bounds` (the model is then misspecified by construction).
        moments: of a regression: methods noisy and plug-in get releases that also hold the third and fourth moments of
            the features; simulate is then also one of "normal", "uniform", "skewed", the law of the covariates.
        moments_share: share of epsilon that the moments get (0.5 if None, as in Bernstein and Sheldon 2019); the other
            methods get releases without moments for the whole epsilon.
        intercept: False for regressions through the origin.
        parties: number of parties that share the records of a regression evenly.
        squares: without an intercept: whether the sums of y^2 are released too (True if None).
        norms, averaged: without an intercept, in place of bounds: they set the sensitivity, as of `dpjax.release`;
            records are not shortened to them. With averaged the records of the study are the averages.
        truth: None: parameters are drawn from the prior of the inference; else another prior, or fixed values
            (`dpjax.calibration.truth.truth_model`). The ranks of the truth then need not be uniform.

    Raises:
        InputError: an argument that is missing, has no place in this model, or a wrong value.
    """
    chosen = DesignOptions(model=model, **design)
    check_options(chosen)
    mechanism, delta, sensitivity, prior = chosen.mechanism, chosen.delta, chosen.sensitivity, chosen.prior
    simulate, clip, moments, parties = chosen.simulate, chosen.clip, chosen.moments, chosen.parties
    if simulate not in (known := [law for law in LAWS if law != "clipped"]):
        raise InputError(f"simulate must be one of {', '.join(known)}; got {simulate!r}")
    if clip and simulate != "exact":
        raise InputError("clip needs simulate = 'exact': there are no records to clip otherwise")
    if not moments and chosen.moments_share is not None:
        raise InputError(f"moments_share is for moments = true; got {chosen.moments_share!r}")
    share = None
    if moments:
        share = checked_share(MOMENTS_SHARE if chosen.moments_share is None else chosen.moments_share, "moments_share")
    said = {name: getattr(chosen, name) for name, one in options_of(DesignOptions).items() if not _usual(chosen, one)}
    said |= said.pop("options", {})
    if like is None:
        summed = {name: value for name, value in said.items() if name in SUMMED or name in (chosen.options or {})}
        statistic = simulated_statistic(
            model or ProductStatistic.kind,
            features=chosen.features,
            bounds=chosen.bounds,
            middle=lambda family: middle_of_records(family, prior),
            **summed,
        )
        inferred = model_for(statistic, prior, default="calibration")
    else:
        for name in said:
            if name not in BESIDE_LIKE:
                raise InputError(f"like: {name} is that of the release; leave it out (got {said[name]!r})")
        statistic, mechanism, delta, sensitivity = like.statistic, like.mechanism, like.delta, like.sensitivity
        moments, share = like.share is not None, like.share
        inferred = inferred_model(statistic, prior, method)
    noise = mechanism_named(mechanism)
    if parties > 1 and not inferred.takes_parties:
        raise InputError(
            f"parties = {parties} is for regressions with normal covariates of unknown mean and covariance"
        )
    if inferred.needs_parties or parties > 1:
        if moments or clip or simulate != "exact":
            raise InputError("studies of parties or without an intercept are simulated exactly, without moments")
        inferred = PartySums(inferred, parties)
    law = "clipped" if clip else simulate
    source = None if chosen.truth is None else truth_model(statistic, chosen.truth, inferred)
    check_simulation(inferred if source is None else source, law)
    if noise.integer and not statistic.integer:
        raise InputError(
            f"mechanism {mechanism!r} is for sums of whole numbers, which those of {statistic.kind} are not"
        )
    if sensitivity is None:
        usual = statistic.parts[0]  # moments have a budget and a sensitivity of their own
        size = positive("the sensitivity of these bounds", usual.sensitivity(noise.norm, ADJACENCY))
    else:
        size = positive("sensitivity", sensitivity)
    noise_scale(mechanism, size, 1.0, delta)  # a delta that is missing or superfluous
    made = StudyDesign(statistic, inferred, mechanism, delta, size, law, share, source)
    if like is not None and like.epsilon is not None and moments:
        if not np.allclose(made._scales(like.epsilon), like.scale, rtol=1e-6, atol=0.0):
            raise InputError("like: the noise of the moments is not what their share of epsilon gives")
    return made


def _usual(chosen: DesignOptions, one: Option) -> bool:
    """Whether an option is at its default."""
    value = getattr(chosen, one.name)
    return value is one.default or (isinstance(value, str | int) and value == one.default) or value == {}


def middle_of_records(family: Family, prior: Any = None, share: float = MIDDLE) -> tuple[float, float]:
    """Bounds of x that hold the middle `share` of the records of a family at the centre of a study's prior.

    Whole numbers for counts. Known a priori: no data enter.
    """
    made = family_prior(family, prior, family.study_prior())
    with precision(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), made)
        tails = jnp.asarray([(1 - share) / 2, (1 + share) / 2], jnp.float64)
        values = np.asarray(family.quantile(wide.constrain(wide.center()), tails))
    low, high = np.exp(values) if family.log else values
    return float(low), float(high)
