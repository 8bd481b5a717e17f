"""The inference methods by name."""

from __future__ import annotations

from typing import Any

from dpjax.errors import InputError
from dpjax.inference.individual_settings import Individual
from dpjax.inference.method import METHODS, Method
from dpjax.inference.method_samplers import (
    any_noise,
    exact_sampler,
    gibbs_sampler,
    has_distribution,
    hmc_sampler,
    is_mixture,
    is_mixture_or_has_density,
    is_mixture_with_density,
    literal_sampler,
    ops_sampler,
)
from dpjax.inference.reruns import harder
from dpjax.models import Model
from dpjax.models.regression import views
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.conjugate import Conjugate
from dpjax.samplers.exact import OnePosteriorSampling, Quadrature
from dpjax.samplers.fixed_s import FixedS, FixedSFast
from dpjax.samplers.gibbs import Gibbs
from dpjax.samplers.party_clt import Clt
from dpjax.samplers.party_gibbs import NormalX

__all__ = ["METHODS", "Method", "default_method", "method_named"]


def _collapsed(name: str, summary: str, **fields: Any) -> Method:
    """A method that runs `Collapsed` on a model of its own."""
    return Method(
        name,
        summary,
        lambda noise: Collapsed(noise=noise, name=name),
        takes=fields.pop("takes", is_mixture),
        escalate=(
            (lambda sampler, dim: harder(sampler, dim, trajectories=2, target=0.95, warmup=2), 4),
            (lambda sampler, dim: harder(sampler, dim, trajectories=4, target=0.98, warmup=4), 8),
        ),
        **fields,
    )


METHODS |= {
    m.name: m
    for m in (
        _collapsed(
            "collapsed",
            "exact statistics integrated out, HMC; the default. Several parties: HMC over their sums too",
            takes=is_mixture_or_has_density,
            fits=hmc_sampler,
            reference=False,
            parties=True,
            any_prior=True,
        ),
        Method(
            "normal-x",
            "Alparslan et al.'s MCMC-normalX, corrected: Wishart Metropolis-Hastings on every party's sums; no "
            "intercept",
            lambda noise: NormalX(),
            takes=is_mixture_with_density,
            view=views.origin_parties("theta", "sigma2", "tau2", full_rank=True),
            parties=True,
            thin=20,
        ),
        Method(
            "fixed-s",
            "Alparslan et al.'s MCMC-fixedS: released sums of the features taken for exact; too narrow "
            "(docs/formulas.md#fixed-s); no intercept",
            lambda noise: FixedS(),
            takes=is_mixture,
            view=views.origin_parties("theta", "sigma2"),
            parties=True,
            thin=20,
        ),
        Method(
            "fixed-s-fast",
            "Alparslan et al.'s Bayes-fixedS-fast: fixed-s with a fixed residual variance, in closed form; no "
            "intercept",
            lambda noise: FixedSFast(),
            view=views.origin_parties("theta"),
            parties=True,
        ),
        Method(
            "clt",
            "Alparslan et al.'s MCMC-B&S, corrected: the papers' Gibbs sampler over several parties; no intercept",
            lambda noise: Clt(),
            takes=is_mixture,
            view=views.origin_parties("theta", "sigma2", "tau2"),
            parties=True,
            thin=20,
        ),
        _collapsed(
            "prior",
            "collapsed, with covariates of a known law; the moments of a hierarchical law do not do "
            "(docs/formulas.md#dependent-records)",
            view=views.known_covariates,
        ),
        _collapsed(
            "noisy",
            "collapsed, with released third and fourth moments of the covariates and their noise",
            view=views.free_moments,
            reference=False,
        ),
        _collapsed(
            "plug-in",
            "takes the released moments of the covariates for exact (Bernstein and Sheldon's Gibbs-SS-Noisy); for "
            "comparison",
            view=views.plug_in,
        ),
        _collapsed(
            "wishart",
            "the exact law of the sums in place of the normal one: for few records",
            view=views.exact_sums,
            reference=False,
        ),
        _collapsed(
            "wishart-bounded",
            "wishart, given that the sums are those of records inside the bounds",
            view=views.exact_sums_inside,
            reference=False,
        ),
        Method(
            "individual",
            "NUTS over every record (Bernstein and Sheldon's MCMC-Ind): the reference for few records; slow",
            lambda noise: Individual(),
            takes=has_distribution,
            reference=False,
            streams=False,
        ),
        Method(
            "gibbs",
            "the papers' Gibbs sampler, corrected; mixes slowly when the noise is large",
            lambda noise: Gibbs(noise=noise),
            takes=is_mixture,
            fits=gibbs_sampler,
            thin=20,
        ),
        Method(
            "gibbs-literal",
            "the thesis's Algorithm 2 as printed (docs/formulas.md#gibbs-order, #joint-parts); wrong, for comparison",
            lambda noise: Gibbs(noise=noise, literal=True, metropolis=False, name="gibbs-literal"),
            takes=is_mixture,
            fits=literal_sampler,
            thin=20,
        ),
        Method(
            "exact",
            "independent draws from a posterior computed by enumeration or quadrature; one parameter",
            lambda noise: Quadrature(noise=noise),
            fits=exact_sampler,
            reference=False,
        ),
        Method(
            "naive",
            "takes the noisy statistics for exact; overconfident",
            lambda noise: Conjugate("naive"),
            takes=any_noise,
            view=views.all_released,
            noise_aware=False,
            parties=True,
        ),
        Method(
            "naive-untruncated",
            "naive with the noisy sums of all records, which no release holds: the thesis's baseline; simulations only",
            lambda noise: Conjugate("naive-untruncated"),
            takes=any_noise,
            noise_aware=False,
            replaces="untruncated",
        ),
        Method(
            "non-private",
            "conjugate posterior of the exact statistics; simulations and public data only",
            lambda noise: Conjugate("non-private"),
            takes=any_noise,
            view=views.conjugate,
            noise_aware=False,
            parties=True,
            replaces="exact",
        ),
        Method(
            "ops",
            "one-posterior sampling, private by itself (docs/formulas.md#one-posterior-sampling); binomial "
            "simulations only",
            lambda noise: OnePosteriorSampling(),
            fits=ops_sampler,
            noise_aware=False,
            replaces="exact",
        ),
    )
}


def default_method(model: Model) -> str:
    """The method for a model if none is named: computed where that can be done, else `collapsed`; `noisy` for a release
    with moments of few features."""
    if model.infers_moments:
        return "noisy"
    return "exact" if model.dim == 1 and model.statistic_dim == 1 else "collapsed"


def method_named(name: str) -> Method:
    """Look a method up.

    Raises:
        InputError: there is none of this name.
    """
    if name not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {name!r}")
    return METHODS[name]
