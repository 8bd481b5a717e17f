"""The inference methods by name, how each is run, and the automatic rerun of problems that did not converge."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import views
from ._checkpoint import Checkpoint
from ._reruns import failed as _failed
from ._reruns import harder, merge
from .diagnostics import diagnose
from .engine import Problems, Progress, Run, run_chains
from .errors import InputError
from .mechanisms import MECHANISMS
from .models import FreeMoments, Model, PartySums
from .models.free_moments import MOST_FEATURES
from .models.party_sums import MOST_FLOAT32
from .samplers.base import KEY_BLOCK
from .samplers.collapsed import Collapsed
from .samplers.conjugate import Conjugate
from .samplers.exact import MOST_TERMS, Enumeration, OnePosteriorSampling, Quadrature, terms_needed
from .samplers.gibbs import Gibbs
from .samplers.individual import Individual
from .samplers.party_gibbs import Clt, FixedS, FixedSFast, NormalX
from .samplers.party_hmc import PartyHmc

#: Fields of samplers that are no plain data, or known otherwise.
HIDDEN = ("noise", "covariates")


@dataclass(frozen=True)
class Method:
    """How a method is run.

    make: noise in units of its scale -> sampler; view: problems as the method sees them (`dpjax.views`), or what it
    lacks; fits: problems -> the sampler with what depends on them, or why the method does not fit them; thin: default
    thinning; replaces: the field of `Problems` that stands in the place of z; reference: a comparison whose convergence
    does not set the exit code; streams: it can keep running sums in place of draws;
    noise_aware: the posterior is one given the release; parties: it takes several parties and regressions through the
    origin (`PartySums`);
    escalate: for successive reruns, (sampler, dimension) -> harder sampler, each with how many times more chains.
    """

    name: str
    summary: str
    make: Callable[[Any], Any]
    view: Callable[[Problems], Problems | str] = lambda problems: problems
    fits: Callable[[Any, Problems], Any] = lambda sampler, problems: sampler
    thin: int = 1
    replaces: str | None = None
    reference: bool = True
    noise_aware: bool = True
    streams: bool = True
    parties: bool = False
    escalate: tuple[tuple[Callable[[Any, int], Any], int], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it needs the exact statistics."""
        return self.replaces is not None

    def check(self, problems: Problems) -> Any:
        """The sampler for these problems (settings not applied), where the method is made for them.

        Raises:
            InputError: it does not fit the model, or needs exact statistics or a view that are not there.
        """
        problems = self.seen(problems)
        sampler = self.sampler(problems)
        if self.replaces is not None and getattr(problems, self.replaces) is None:
            raise InputError(f"method {self.name!r} needs the exact statistics, which a release does not hold")
        return sampler

    def seen(self, problems: Problems) -> Problems:
        """The problems as the method sees them.

        Raises:
            InputError: something that it needs is missing.
        """
        if isinstance(problems.model, PartySums) and not self.parties:
            takes = ", ".join(method.name for method in METHODS.values() if method.parties)
            raise InputError(
                f"method {self.name!r} is not for several parties or regressions without an intercept; {takes} are"
            )
        found = self.view(problems)
        if isinstance(found, str):
            raise InputError(f"method {self.name!r} {found}")
        return found

    def sampler(self, problems: Problems) -> Any:
        """The sampler for problems as the method sees them (settings not applied).

        Raises:
            InputError: the method does not fit the model.
        """
        found = self.fits(self.make(MECHANISMS[problems.mechanism].unit_noise), problems)
        if isinstance(found, str):
            raise InputError(f"method {self.name!r} {found}")
        return found


def _exact(sampler: Quadrature, problems: Problems) -> Any:
    model = problems.model_template()
    if model.dim != 1 or model.statistic_dim != 1:
        return f"is for models of one parameter and one statistic; this one has {model.dim} and {model.statistic_dim}"
    if model.sum_is_binomial:
        terms = terms_needed(problems.n, problems.scale)
        return Enumeration(noise=sampler.noise, terms=terms) if terms <= MOST_TERMS else sampler
    return dataclasses.replace(sampler, lattice=problems.model.lattice_length(problems.n))


def _hmc(sampler: Collapsed, problems: Problems) -> Any:
    """For parties the sampler that does not form covariances of the sums; in 64 bits where these dwarf the noise."""
    if not isinstance(problems.model, PartySums):
        return sampler
    largest = np.abs(problems.z / problems.scale).max(initial=0.0)
    return PartyHmc(float64=bool(largest > MOST_FLOAT32), name=sampler.name)


def _literal(sampler: Gibbs, problems: Problems) -> Any:
    if not problems.model.truncated:
        return "is the thesis's sampler for statistics that are clamped or redacted: use gibbs"
    return sampler


def _ops(sampler: OnePosteriorSampling, problems: Problems) -> Any:
    if problems.model.kind != "binomial" or problems.mechanism == "gaussian":
        return "is defined for the binomial model and pure epsilon only"
    return sampler


def _collapsed(name: str, summary: str, **fields: Any) -> Method:
    """A method that runs `Collapsed` on a model of its own."""
    return Method(
        name,
        summary,
        lambda noise: Collapsed(noise=noise, name=name),
        escalate=(
            (lambda sampler, dim: harder(sampler, dim, trajectories=2, target=0.95, warmup=2), 4),
            (lambda sampler, dim: harder(sampler, dim, trajectories=4, target=0.98, warmup=4), 8),
        ),
        **fields,
    )


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        _collapsed(
            "collapsed",
            "exact statistics integrated out, HMC; the default. Several parties: HMC over their sums too",
            fits=_hmc,
            reference=False,
            parties=True,
        ),
        Method(
            "normal-x",
            "S3's MCMC-normalX, corrected: Wishart Metropolis-Hastings on every party's sums; no intercept",
            lambda noise: NormalX(),
            view=views.origin_parties("theta", "sigma2", "tau2", full_rank=True),
            parties=True,
            thin=20,
        ),
        Method(
            "fixed-s",
            "S3's MCMC-fixedS: released sums of the features taken for exact; too narrow (SPEC D8); no intercept",
            lambda noise: FixedS(),
            view=views.origin_parties("theta", "sigma2"),
            parties=True,
            thin=20,
        ),
        Method(
            "fixed-s-fast",
            "S3's Bayes-fixedS-fast: fixed-s with a fixed residual variance, in closed form; no intercept",
            lambda noise: FixedSFast(),
            view=views.origin_parties("theta"),
            parties=True,
        ),
        Method(
            "clt",
            "S3's MCMC-B&S, corrected: the papers' Gibbs sampler over several parties; no intercept",
            lambda noise: Clt(),
            view=views.origin_parties("theta", "sigma2", "tau2"),
            parties=True,
            thin=20,
        ),
        _collapsed(
            "prior",
            "collapsed, with covariates of a known law; the moments of a hierarchical law do not do (SPEC C5)",
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
            "takes the released moments of the covariates for exact (S0's Gibbs-SS-Noisy); for comparison",
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
            "NUTS over every record (S0's MCMC-Ind): the reference for few records; slow",
            lambda noise: Individual(),
            reference=False,
            streams=False,
        ),
        Method(
            "gibbs",
            "the papers' Gibbs sampler, corrected; mixes slowly when the noise is large",
            lambda noise: Gibbs(noise=noise),
            thin=20,
        ),
        Method(
            "gibbs-literal",
            "the thesis's Algorithm 2 as printed (SPEC B1, B2); wrong, for comparison",
            lambda noise: Gibbs(noise=noise, literal=True, metropolis=False, name="gibbs-literal"),
            fits=_literal,
            thin=20,
        ),
        Method(
            "exact",
            "independent draws from a posterior computed by enumeration or quadrature; one parameter",
            lambda noise: Quadrature(noise=noise),
            fits=_exact,
            reference=False,
        ),
        Method(
            "naive",
            "takes the noisy statistics for exact; overconfident",
            lambda noise: Conjugate("naive"),
            view=views.all_released,
            noise_aware=False,
            parties=True,
        ),
        Method(
            "naive-untruncated",
            "naive with the noisy sums of all records, which no release holds: the thesis's baseline; simulations only",
            lambda noise: Conjugate("naive-untruncated"),
            noise_aware=False,
            replaces="untruncated",
        ),
        Method(
            "non-private",
            "conjugate posterior of the exact statistics; simulations and public data only",
            lambda noise: Conjugate("non-private"),
            view=views.conjugate,
            noise_aware=False,
            parties=True,
            replaces="exact",
        ),
        Method(
            "ops",
            "one-posterior sampling, private by itself (SPEC A18); binomial simulations only",
            lambda noise: OnePosteriorSampling(),
            fits=_ops,
            noise_aware=False,
            replaces="exact",
        ),
    )
}


def default_method(model: Model) -> str:
    """The method for a model if none is named: computed where that can be done, else `collapsed`; `noisy` for a release
    with moments of few features."""
    if isinstance(model, FreeMoments) and model.p <= MOST_FEATURES:
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


def check_seed(seed: Any) -> int:
    """Check a seed: a whole number from 0 to 2^31 - 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}; got {seed!r}")
    return int(seed)


def run_method(
    name: str,
    problems: Problems,
    *,
    seed: int,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    rerun: bool = True,
    settings: dict | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> Run:
    """Run a method on T problems, diagnose it, and run again, harder, what did not converge.

    Args:
        name: one of `METHODS`.
        problems: T problems; `exact` is needed for "non-private".
        seed, chains, draws, thin, progress, checkpoint: as for `dpjax.engine.run_chains`; `thin` defaults to the
            method's, 20 at least when streaming.
        rerun: run problems with R-hat > 1.05, bulk ESS < 100 or a bad result code again (methods that say how).
        settings: fields of the sampler's settings to change.
        options: further arguments of `run_chains`.

    Returns:
        `Run` with `diagnostics` per problem. A rerun problem's diagnostics are those of its own, more numerous
        chains. Seconds include the reruns.

    Raises:
        InputError: unknown method or settings, or exact statistics missing.
    """
    method = method_named(name)
    sampler = method.check(problems)
    problems = method.seen(problems)
    known = {f.name for f in dataclasses.fields(sampler)} - {"name", "noise"}  # type: ignore[arg-type]
    unknown = set(settings or {}) - known
    if unknown:
        raise InputError(f"{name} has no setting {sorted(unknown)[0]!r}; it has {', '.join(sorted(known)) or 'none'}")
    try:
        sampler = dataclasses.replace(sampler, **(settings or {}))  # type: ignore[type-var]
    except TypeError:
        raise InputError(f"settings of {name}: a value has the wrong type: {settings}") from None
    if method.replaces is not None:
        problems = dataclasses.replace(problems, z=getattr(problems, method.replaces))
    if thin is None:  # sums over every step cost more than they tell
        thin = KEY_BLOCK if options.get("stream") and method.thin == 1 else method.thin
    run_here = getattr(sampler, "run", None) or partial(run_chains, sampler)
    run = run_here(
        problems, seed=seed, chains=chains, draws=draws, thin=thin, progress=progress, checkpoint=checkpoint,
        **options,
    )  # fmt: skip
    if run.draws is None or options.get("compile_only"):
        return run
    run.diagnostics = diagnose(run.draws, run.names)
    run.settings["method"] = {k: v for k, v in dataclasses.asdict(sampler).items() if k not in HIDDEN}  # type: ignore[call-overload]
    if not rerun:
        return run
    options = {k: v for k, v in options.items() if k not in ("chains_per_batch", "first_problem")}
    for stage, (make_harder, factor) in enumerate(method.escalate, start=1):
        bad = np.flatnonzero(_failed(run, draws * chains))
        if not len(bad):
            break
        again = run_chains(
            make_harder(sampler, problems.model_template().dim),
            problems.take(bad),
            seed=seed + 7919 * stage,
            chains=chains * factor,
            draws=draws,
            thin=thin,
            first_problem=bad,
            checkpoint=None if checkpoint is None else checkpoint.child(f"rerun{stage}"),
            **options,
        )
        again.diagnostics = diagnose(again.draws, again.names)
        run.rerun_mask[bad] = True
        run.rerun_seconds += again.seconds
        run = merge(run, bad, again)
    return run
