"""`fit`: from a release to a posterior."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ._files import read_toml
from .engine import NON_FINITE, Problems
from .errors import ConvergenceError, ConvergenceWarning, InputError
from .methods import METHODS, check_seed, method_named, run_method
from .models.linear_regression import LinearRegression
from .posterior import Posterior
from .release import Release

#: Prior draws behind the reported prior standard deviations.
PRIOR_DRAWS = 20_000
_REGRESSION_FIELDS = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")
_COVARIATE_FIELDS = ("mean", "kappa", "psi", "nu")


def regression_prior(p: int, prior: Mapping[str, Any] | str | os.PathLike | None = None) -> LinearRegression:
    """The prior of a regression with p features, in scaled units.

    Args:
        p: number of features.
        prior: None for the weak default; a mapping or a TOML file with any of theta_mean, theta_precision (a
            PRECISION: SPEC C8), sigma2_shape, sigma2_scale and a table covariates with any of mean, kappa, psi, nu.
            What is not given keeps its default.

    Raises:
        InputError: file missing or not TOML, unknown name, value of the wrong shape or sign.
    """
    if prior is None:
        return LinearRegression.weak(p)
    if isinstance(prior, str | os.PathLike):
        prior = read_toml(Path(prior))
    if not isinstance(prior, Mapping):
        raise InputError(f"prior must be a mapping or a file; got {type(prior).__name__}")
    covariates = prior.get("covariates", {})
    if not isinstance(covariates, Mapping):
        raise InputError("prior: covariates must be a table with mean, kappa, psi, nu")
    for given, known, where in (
        (set(prior) - {"covariates"}, _REGRESSION_FIELDS, "prior"),
        (set(covariates), _COVARIATE_FIELDS, "prior, table covariates"),
    ):
        unknown = sorted(given - set(known))
        if unknown:
            raise InputError(f"{where}: unknown name {unknown[0]!r}; allowed: {', '.join(known)}")
    default = LinearRegression.weak(p).as_dict()
    merged = default | dict(prior)
    merged["covariates"] = default["covariates"] | dict(covariates)
    table = merged.pop("covariates")
    try:
        return LinearRegression.create(
            p, x_mean=table["mean"], kappa=table["kappa"], psi=table["psi"], nu=table["nu"], **merged
        )
    except InputError as error:
        raise InputError(f"prior: {error}") from None


@jax.jit  # of the module, with the prior as an argument: compiled once for any number of fits
def _prior_report(model: LinearRegression, keys):
    return jax.vmap(lambda key: model.report(model.sample_prior(key)))(keys)


def fit(
    release: Release | str | os.PathLike | Sequence[Release | str | os.PathLike] | Any,
    *,
    method: str = "collapsed",
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
    chains: int = 4,
    draws: int = 1000,
    thin: int | None = None,
    seed: int | Any = 0,
    settings: dict | None = None,
    exact: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Posterior:
    """Posterior of the parameters given a release, the noise accounted for.

    Args:
        release: a `Release` or the path of a release file.
        method: "collapsed" (default), "gibbs", "naive"; "non-private" only together with `exact`.
        prior: see `regression_prior`; None is the weak default (`LinearRegression.weak`).
        chains, draws, thin: chains and kept draws per chain; keep every thin-th step.
        seed: seed of the sampler.
        settings: sampler settings to change (fields of its dataclass).
        exact: exact statistics `[D]` in scaled units, for "non-private": public data only.
        progress: called with (steps done, steps in all).

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
    releases = [r if isinstance(r, Release) else Release.load(r) for r in release]
    if len(releases) != 1:
        raise InputError(f"fit takes one release for now; got {len(releases)} (several parties are not supported yet)")
    one = releases[0]
    entry = method_named(method)
    if entry.exact and exact is None:
        raise InputError(f"method {method!r} needs the exact statistics, which a release does not hold")
    if one.scaling is None and prior is None:
        raise InputError(
            "the release is in raw units (scaling null), which the default prior is not made for: give a prior in "
            "those units (--prior, prior=)"
        )
    model = regression_prior(one.p, prior)
    problems = Problems(
        one.z[None],
        np.array([float(one.records)]),
        one.scale[None],
        model,
        one.mechanism,
        None if exact is None else np.asarray(exact, np.float64)[None],
    )
    run = run_method(
        method,
        problems,
        seed=seed,
        chains=chains,
        draws=draws,
        thin=thin,
        settings=settings,
        progress=progress,
    )
    if (run.codes == NON_FINITE).any():
        raise ConvergenceError(
            f"{int((run.codes == NON_FINITE).sum())} of {run.codes.size} chains ended with non-finite numbers; "
            "look at the scale of the statistics and of the prior, or try another seed"
        )
    keys = jax.random.split(jax.random.key(seed + 1), PRIOR_DRAWS)
    prior_draws = np.asarray(_prior_report(model, keys))
    privacy = one.privacy
    posterior = Posterior(
        draws=run.draws[0],
        names=run.names,
        features=tuple(one.features),
        target=one.target,
        bounds=one.bounds,
        scaling=one.scaling,
        records=one.records,
        epsilon=privacy.epsilon if privacy else float("nan"),
        delta=privacy.delta if privacy else float("nan"),
        mechanism=one.mechanism,
        adjacency=privacy.adjacency if privacy else "not stated",
        method=method,
        seconds=run.seconds,
        codes=run.codes[0],
        prior=model.as_dict(),
        prior_draws=prior_draws,
        compile_seconds=run.compile_seconds,
        rerun=bool(run.reruns),
        rerun_seconds=run.rerun_seconds,
    )
    for sentence in posterior.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posterior


__all__ = ["METHODS", "fit", "regression_prior"]
