"""Which noise the methods take, and how samplers are fitted to problems: the entries of `Method.takes` and `.fits`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpjax.engine.problems import Problems
from dpjax.engine.run import MOST_SPREAD
from dpjax.mechanisms import Mechanism, mechanism_named
from dpjax.models.regression.parties import MOST_FLOAT32
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.counts import Counts, table_length
from dpjax.samplers.exact import Enumeration, OnePosteriorSampling, Quadrature
from dpjax.samplers.gibbs import Gibbs
from dpjax.samplers.party_hmc import PartyHmc


def is_mixture(noise: Mechanism) -> bool:
    """For samplers that draw the noise's mixing variances."""
    return noise.mixing is not None


def has_density(noise: Mechanism) -> bool:
    """For samplers that take the noise's density."""
    return noise.has_density


def is_mixture_with_density(noise: Mechanism) -> bool:
    """For samplers that take the density for some sums and draw mixing variances for others."""
    return noise.has_density and is_mixture(noise)


def is_mixture_or_has_density(noise: Mechanism) -> bool:
    """For methods with a sampler for each."""
    return noise.has_density or is_mixture(noise)


def has_distribution(noise: Mechanism) -> bool:
    """For methods that take the noise as a NumPyro distribution."""
    return type(noise).distribution is not Mechanism.distribution


def any_noise(noise: Mechanism) -> bool:
    """For methods that do not look at the noise."""
    return True


def exact_sampler(sampler: Quadrature, problems: Problems) -> Any:
    model = problems.model_template()
    if model.dim != 1 or model.statistic_dim != 1:
        return f"is for models of one parameter and one statistic; this one has {model.dim} and {model.statistic_dim}"
    if model.sum_is_binomial:
        return Enumeration(noise=sampler.noise)
    return dataclasses.replace(sampler, lattice=int(problems.model.lattice_lengths(problems.n).max()))


def hmc_sampler(sampler: Collapsed, problems: Problems) -> Any:
    """For parties the sampler that does not form covariances of the sums, in 64 bits where these dwarf the noise; for
    multinomial counts of few records the one that draws the counts."""
    model = problems.model_template()
    parties = model.parties is not None
    laws = problems.noise.laws if parties else (sampler.noise,)
    for law in laws:
        if not (law.has_density if parties else is_mixture(law)):
            return f"does not know {law.kind} noise"
    if model.sums_are_multinomial:
        length = table_length(problems.n)
        return Counts(sampler.noise, length, model.dim + 1, name=sampler.name) if length else sampler
    if not parties:
        return dataclasses.replace(sampler, **model.hmc_settings)
    largest = np.abs(problems.z / problems.scale).max(initial=0.0)
    return PartyHmc(float64=bool(largest > MOST_FLOAT32), name=sampler.name, **model.hmc_settings)


def gibbs_sampler(sampler: Gibbs, problems: Problems) -> Any:
    """In 64 bits where the noise does not hide what rounding does to several moments of truncated records."""
    model = problems.model_template()
    loud = (problems.n[:, None] / problems.scale**2).max() <= MOST_SPREAD
    return dataclasses.replace(sampler, float64=bool(model.truncated and model.statistic_dim > 1 and not loud))


def literal_sampler(sampler: Gibbs, problems: Problems) -> Any:
    if not problems.model.truncated:
        return "is the thesis's sampler for statistics that are clamped or redacted: use gibbs"
    return sampler


def ops_sampler(sampler: OnePosteriorSampling, problems: Problems) -> Any:
    if not problems.model.sum_is_binomial or mechanism_named(problems.mechanism).needs_delta:
        return "is defined for the binomial model and pure epsilon only"
    return sampler
