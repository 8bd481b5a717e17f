"""`fit`: from a release to a posterior."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpjax._base.checks import check_choice
from dpjax.engine.checkpoint import Checkpoint
from dpjax.engine.loop import Progress
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import NON_FINITE
from dpjax.engine.results import Run
from dpjax.errors import ConvergenceError, ConvergenceWarning, InputError, ModelWarning
from dpjax.inference.method import Method
from dpjax.inference.methods import default_method, method_named
from dpjax.inference.own_methods import name_of
from dpjax.inference.posterior import Posterior
from dpjax.inference.released import stated, together
from dpjax.inference.remarks import doubts_about, notes_on
from dpjax.inference.run_method import check_seed, run_method
from dpjax.inference.summary import CONFLICT, describe_conflict
from dpjax.models import Model, model_for
from dpjax.releases.parties import PARTY_LAWS, load_parties
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic


def inferred_model(
    statistic: Statistic,
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
    method: Any = None,
    conjugate: bool = False,
) -> Model:
    """The model and prior behind a release's statistic, in the units of the release.

    Args:
        statistic: what was released.
        prior: None for the kind's weak default, that of the method; a mapping or a TOML file of hyperparameters by
            name. What is not given keeps its default. Regression: theta_mean, theta_precision (a PRECISION:
            docs/formulas.md#prior-precision), sigma2_shape, sigma2_scale and a table covariates with mean, kappa, psi,
            nu; or kind = "weak" and fields of `dpjax.models.WeakRegression`. Families: the conjugate prior's alpha and
            beta, concentration, shape and rate, or mean, kappa, shape and scale. units: "user" for the units of the
            columns; and other words for the same (`dpjax.models.prior_units.translated`).
        method: the method that it is for; None: the one that is run by default.
        conjugate: whether the default must be conjugate whatever the method (several parties).

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign; no prior for a release
            that the default is not made for.
    """
    any_prior = not conjugate and (method is None or method_named(method).any_prior)
    fits = statistic.default_prior_fits if any_prior else statistic.conjugate_prior_fits
    if prior is None and not fits:
        raise InputError(
            "prior is missing: the release is in raw units (scaling null), which the default is not made for; give one "
            "in those units",
            where="prior",
        )
    return model_for(statistic, prior, "fit" if any_prior else "conjugate")


def fit(
    release: Release | str | os.PathLike | Sequence[Release | str | os.PathLike] | Any,
    *,
    method: str | None = None,
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
    parties: str | Any = "shared",
    chains: int = 4,
    draws: int = 1000,
    thin: int | None = None,
    seed: int | Any = 0,
    settings: dict | None = None,
    exact: np.ndarray | None = None,
    devices: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Posterior:
    """Posterior of the parameters given a release, the noise accounted for.

    Args:
        release: a `Release`, the path of a release file or of a folder of them, or several: those of parties with
            disjoint tables, each with its own records, bounds and noise (`dpjax.releases.parties`).
        method: one of `dpjax.inference.methods.METHODS`, a sampler (`dpjax.samplers.from_blackjax`), or None for the
            model's default: exact where that is cheap, else "collapsed". "non-private" only together with `exact`.
        prior: see `inferred_model`; None is the weak default.
        parties: of several releases: "shared", the records of all parties have one law; "own", the features of every
            party have a mean and a covariance of their own, and only theta and sigma2 are shared.
        chains, draws, thin: chains and kept draws per chain; keep every thin-th step.
        seed: seed of the sampler.
        settings: sampler settings to change (fields of its dataclass).
        exact: exact statistics `[D]` (of J parties `[J, D]`) in the units of the release, of all records as they are,
            for "non-private": public data only.
        devices, progress, checkpoint: as for `dpjax.engine.run.run_chains`.

    Returns:
        `Posterior`. A `ConvergenceWarning` is issued when R-hat > 1.05 or ESS < 100 after the automatic reruns, and
        when no table can have the released sums (`dpjax.releases.possible_sums`).

    Raises:
        InputError: bad argument or release.
        ConvergenceError: a chain ended with non-finite numbers.
    """
    if isinstance(release, str | os.PathLike | Release):
        release = [release]
    if not isinstance(release, Sequence) or not all(isinstance(r, str | os.PathLike | Release) for r in release):
        raise InputError(f"release must be a Release or the path of a release file; got {type(release).__name__}")
    seed, method = check_seed(seed), name_of(method)
    check_choice("parties", parties, PARTY_LAWS)
    releases = load_parties(release)
    if not releases:
        raise InputError("release: at least one is needed")
    released = together(releases, parties)
    model = inferred_model(released.statistic, prior, method, conjugate=released.conjugate)
    name = method if method is not None else default_method(model)
    entry = method_named(name)
    problems = released.problems(model, None if exact is None else np.asarray(exact, np.float64)[None])
    seen = entry.seen(problems)
    released = released.compared(entry, seed)
    if own := released.settings(entry):
        settings = own | (settings or {})
    run = run_method(
        name,
        problems,
        seed=seed,
        chains=chains,
        draws=draws,
        thin=thin,
        settings=settings,
        devices=devices,
        progress=progress,
        checkpoint=checkpoint,
        rerun=not released.doubts,
    )
    check_finite(run)
    prior_draws, prior_p = released.under_prior(seen, entry, seed)
    of_releases = stated(releases, released.statistic)
    posterior = posterior_of(entry, seen, run, seen.model_template(), prior_draws, prior_p=prior_p, **of_releases)
    posterior = released.finished(posterior)
    for sentence in posterior.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    if posterior.prior_p is not None and posterior.prior_p < CONFLICT:
        warnings.warn(describe_conflict(posterior.prior_p), ModelWarning, stacklevel=2)
    return posterior


def check_finite(run: Run) -> None:
    """Refuse draws of chains that ended with numbers that are not finite.

    Raises:
        ConvergenceError: there are such chains.
    """
    if (run.codes == NON_FINITE).any():
        raise ConvergenceError(
            f"{int((run.codes == NON_FINITE).sum())} of {run.codes.size} chains ended with non-finite numbers; "
            "look at the scale of the statistics and of the prior, or try another seed"
        )


def posterior_of(
    method: Method, problems: Problems, run: Run, model: Model, prior_draws: np.ndarray | None, **released: Any
) -> Posterior:
    """The posterior from a run of one problem, under the prior `model`; released: statistic, records, mechanism,
    epsilon, delta, adjacency, doubts (and parties), as of `Posterior`."""
    return Posterior(
        draws=run.draws[0],
        names=run.names,
        method=method.name,
        seconds=run.seconds,
        codes=run.codes[0],
        prior=model.as_dict(),
        prior_draws=prior_draws,
        compile_seconds=run.compile_seconds,
        rerun=bool(run.reruns),
        rerun_seconds=run.rerun_seconds,
        notes=notes_on(method, problems, run),
        doubts=(*released.pop("doubts", ()), *doubts_about(method, problems, run)),
        computed=None if run.computed is None else {key: x[0] for key, x in run.computed.rows().items()},
        **released,
    )


__all__ = ["fit", "inferred_model"]
