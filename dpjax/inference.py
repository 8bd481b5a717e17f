"""`fit`: from a release to a posterior."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._checkpoint import Checkpoint
from .engine import NON_FINITE, Problems, Progress, Run
from .errors import ConvergenceError, ConvergenceWarning, InputError
from .methods import Method, check_seed, default_method, method_named, run_method
from .models import Model, model_for
from .modes import can_find_modes, describe_modes, doubt_about_modes, find_modes
from .parties import gather, load_parties
from .posterior import Posterior
from .problems import make_problems, party_problems
from .release import Release
from .statistics import Statistic

#: Prior draws behind the reported prior standard deviations.
PRIOR_DRAWS = 20_000


def inferred_model(statistic: Statistic, prior: Mapping[str, Any] | str | os.PathLike | None = None) -> Model:
    """The model and prior behind a release's statistic, in the units of the release.

    Args:
        statistic: what was released.
        prior: None for the kind's weak default; a mapping or a TOML file of hyperparameters by name. What is not
            given keeps its default. Regression: theta_mean, theta_precision (a PRECISION: SPEC C8), sigma2_shape,
            sigma2_scale and a table covariates with mean, kappa, psi, nu. Families: the conjugate prior's alpha and
            beta, concentration, shape and rate, or mean, kappa, shape and scale.

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign; no prior for a release
            that the default is not made for.
    """
    if prior is None and not statistic.default_prior_fits:
        raise InputError(
            "prior is missing: the release is in raw units (scaling null), which the default is not made for; give one "
            "in those units"
        )
    return model_for(statistic, prior)


@jax.jit  # of the module, with the prior as an argument: compiled once for any number of fits
def _prior_report(model: Model, keys):
    return jax.vmap(lambda key: model.report(model.sample_prior(key)))(keys)


def fit(
    release: Release | str | os.PathLike | Sequence[Release | str | os.PathLike] | Any,
    *,
    method: str | None = None,
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
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
            disjoint tables, each with its own records, bounds and noise (`dpjax.parties`).
        method: one of `dpjax.methods.METHODS`, None for the model's default: the exact law where it is cheap, else
            "collapsed". "non-private" only together with `exact`.
        prior: see `inferred_model`; None is the weak default.
        chains, draws, thin: chains and kept draws per chain; keep every thin-th step.
        seed: seed of the sampler.
        settings: sampler settings to change (fields of its dataclass).
        exact: exact statistics `[D]` (of J parties `[J, D]`) in the units of the release, of all records as they are,
            for "non-private": public data only.
        devices, progress, checkpoint: as for `dpjax.engine.run_chains`.

    Returns:
        `Posterior`. A `ConvergenceWarning` is issued when R-hat > 1.05 or ESS < 100 after the automatic reruns.

    Raises:
        InputError: bad argument or release.
        ConvergenceError: a chain ended with non-finite numbers.
    """
    if isinstance(release, str | os.PathLike | Release):
        release = [release]
    if not isinstance(release, Sequence) or not all(isinstance(r, str | os.PathLike | Release) for r in release):
        raise InputError(f"release must be a Release or the path of a release file; got {type(release).__name__}")
    seed = check_seed(seed)
    releases = load_parties(release)
    if not releases:
        raise InputError("release: at least one is needed")
    one, gathered = releases[0], gather(releases) if len(releases) > 1 else None
    statistic = one.statistic if gathered is None else gathered.statistic
    model = inferred_model(statistic, prior)
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
            gathered.z[None], gathered.records[None], gathered.scale[None], model, laplace=gathered.laplace,
            centre=gathered.centre, half=gathered.half, present=gathered.present, exact=known,
        )  # fmt: skip
    seen = entry.seen(problems)
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
    )
    check_finite(run)
    used = seen.model_template()
    draws_of_prior = sample_prior_report(used, seed)
    if gathered is None:
        posterior = make_posterior(one, entry, seen, run, used, draws_of_prior)
    else:
        posterior = posterior_of(entry, seen, run, used, draws_of_prior, **_of_parties(releases, statistic))
    for sentence in posterior.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posterior


def sample_prior_report(model: Model, seed: int) -> np.ndarray:
    """Draws of the reported parameters from the prior, [N, K], scaled: what prior standard deviations are estimated
    from."""
    return np.asarray(_prior_report(model, jax.random.split(jax.random.key(seed + 1), PRIOR_DRAWS)))


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
        adjacency=privacy.adjacency if privacy else "not stated",
    )  # fmt: skip


def posterior_of(
    method: Method, problems: Problems, run: Run, model: Model, prior_draws: np.ndarray, **released: Any
) -> Posterior:
    """The posterior from a run of one problem, under the prior `model`; released: statistic, records, mechanism,
    epsilon, delta, adjacency (and parties), as of `Posterior`."""
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
        notes=_notes(method, problems, run),
        **released,
    )


def _of_parties(releases: Sequence[Release], statistic: Statistic) -> dict[str, Any]:
    """What `posterior_of` takes of several releases; the guarantee is that of the weakest one, as parties are disjoint
    (SPEC A17)."""
    stated = [one.privacy for one in releases]
    weakest = lambda name: max(getattr(p, name) for p in stated) if all(stated) else float("nan")
    parties = tuple(
        {"records": one.records, "mechanism": one.mechanism, "epsilon": p.epsilon if p else None,
         "delta": p.delta if p else None}
        for one, p in zip(releases, stated, strict=True)
    )  # fmt: skip
    return {
        "statistic": statistic, "records": sum(one.records for one in releases), "epsilon": weakest("epsilon"),
        "delta": weakest("delta"), "mechanism": ", ".join(sorted({one.mechanism for one in releases})),
        "adjacency": stated[0].adjacency if stated[0] and all(stated) else "not stated", "parties": parties,
    }  # fmt: skip


def _notes(method: Method, problems: Problems, run: Run) -> tuple[str, ...]:
    """Which law of the sum an exact posterior is of, and whether the posterior has several modes."""
    law = getattr(method.sampler(problems), "law", None)
    notes = [f"computed from the {law}"] if law else []
    if not method.noise_aware:
        return tuple(notes)
    if can_find_modes(problems):
        modes = find_modes(problems)[0]
        notes += [describe_modes(modes, problems.model.parameter_names[0])] if len(modes) > 1 else []
    elif problems.model.may_have_modes:
        notes.append(doubt_about_modes(run.draws[0]))
    return tuple(notes)


__all__ = ["fit", "inferred_model"]
