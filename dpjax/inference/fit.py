"""`fit`: from a release to a posterior."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from dpjax.inference.prior_predictive import prior_predictive_p, sample_prior_report
from dpjax.inference.remarks import doubts_about, notes_on
from dpjax.inference.run_method import check_seed, run_method
from dpjax.inference.summary import CONFLICT, describe_conflict
from dpjax.models import Model, model_for
from dpjax.models.problems import make_problems, party_problems
from dpjax.releases.parties import OWN, PARTY_LAWS, gather, load_parties
from dpjax.releases.party_agreement import Agreement, agreement
from dpjax.releases.possible_sums import doubts_about_sums
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic

#: Steps per trajectory where the parties differ: noise in its tails makes the posterior one with edges.
DIFFERING_LEAPFROGS = 16
OWN_NOTE = "every party's features have a mean and a covariance of their own; theta and sigma2 are shared"


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
    one, gathered = releases[0], gather(releases) if len(releases) > 1 else None
    statistic = one.statistic if gathered is None else gathered.statistic
    model = inferred_model(statistic, prior, method, conjugate=gathered is not None)
    name = method if method is not None else default_method(model)
    entry = method_named(name)
    known = None if exact is None else np.asarray(exact, np.float64)[None]
    if gathered is None:
        problems = make_problems(
            one.z[None], np.array([float(one.records)]), one.scale[None], model, one.mechanism, statistic=statistic,
            exact=known,
        )  # fmt: skip
    else:
        problems = party_problems(
            gathered.z[None], gathered.records[None], gathered.scale[None], model, gathered.mechanisms,
            centre=gathered.centre, half=gathered.half, present=gathered.present, own=parties == OWN, exact=known,
        )  # fmt: skip
    seen = entry.seen(problems)
    agreed = None if gathered is None else agreement(gathered, seed)
    doubts = [] if agreed is None or not entry.noise_aware else agreed.doubts(parties == OWN)
    if doubts and name == "collapsed":
        settings = {"leapfrogs": DIFFERING_LEAPFROGS} | (settings or {})
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
        rerun=not doubts,
    )
    check_finite(run)
    used = seen.model_template()
    if gathered is None and entry.noise_aware:
        draws_of_prior, prior_p = prior_predictive_p(seen, seed)
    else:
        draws_of_prior, prior_p = sample_prior_report(used, seed), None
    if gathered is None:
        posterior = replace(make_posterior(one, entry, seen, run, used, draws_of_prior), prior_p=prior_p)
    else:
        posterior = posterior_of(entry, seen, run, used, draws_of_prior, **_of_parties(releases, statistic))
        posterior = _with_agreement(posterior, agreed, doubts, parties == OWN)
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


def make_posterior(
    release: Release, method: Method, problems: Problems, run: Run, model: Model, prior_draws: np.ndarray
) -> Posterior:
    """The posterior of one release from a run of that one problem, under the prior `model`."""
    privacy = release.privacy
    return posterior_of(
        method, problems, run, model, prior_draws,
        statistic=release.statistic, records=release.records, mechanism=release.mechanism,
        epsilon=privacy.epsilon if privacy else float("nan"), delta=privacy.delta if privacy else float("nan"),
        adjacency=privacy.adjacency if privacy else "not stated", doubts=doubts_about_sums(release),
        releases=(release,),
    )  # fmt: skip


def posterior_of(
    method: Method, problems: Problems, run: Run, model: Model, prior_draws: np.ndarray, **released: Any
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


def _of_parties(releases: Sequence[Release], statistic: Statistic) -> dict[str, Any]:
    """What `posterior_of` takes of several releases; the guarantee is that of the weakest one, as parties are disjoint
    (docs/formulas.md#composition)."""
    stated = [one.privacy for one in releases]
    weakest = lambda name: max(getattr(p, name) for p in stated) if all(stated) else float("nan")
    parties = tuple(
        {"records": one.records, "mechanism": one.mechanism, "epsilon": p.epsilon if p else None,
         "delta": p.delta if p else None}
        for one, p in zip(releases, stated, strict=True)
    )  # fmt: skip
    doubts = [f"party {j}: {text}" for j, one in enumerate(releases, start=1) for text in doubts_about_sums(one)]
    return {
        "statistic": statistic, "records": sum(one.records for one in releases), "epsilon": weakest("epsilon"),
        "delta": weakest("delta"), "mechanism": ", ".join(sorted({one.mechanism for one in releases})),
        "adjacency": stated[0].adjacency if stated[0] and all(stated) else "not stated", "parties": parties,
        "doubts": doubts,
        "releases": tuple(releases),
    }  # fmt: skip


def _with_agreement(posterior: Posterior, agreed: Agreement | None, doubts: list[str], own: bool) -> Posterior:
    """The posterior of several parties with what is known of their agreement."""
    assert agreed is not None
    notes = [*posterior.notes, *([OWN_NOTE] if own else []), agreed.note]
    return replace(posterior, notes=tuple(notes), doubts=(*posterior.doubts, *doubts), agreement=agreed.as_dict())


__all__ = ["fit", "inferred_model"]
