"""`fit_many`: posteriors of many releases of the same model, in one compiled call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from dpjax._base.signatures import no_type_check
from dpjax.engine.loop import Progress
from dpjax.engine.sampler import LaneSampler
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference.fit import inferred_model
from dpjax.inference.methods import default_method, method_named
from dpjax.inference.own_methods import name_of
from dpjax.inference.posteriors import Posteriors
from dpjax.inference.prediction_at import PredictionAt
from dpjax.inference.run_method import check_seed, run_method
from dpjax.models import Model
from dpjax.models.regression.problems import make_problems
from dpjax.releases.release import Release

PriorGiven = Mapping[str, Any] | str | os.PathLike | None


@no_type_check
def fit_many(
    releases: Sequence[Release | str | os.PathLike],
    *,
    method: str | LaneSampler | None = None,
    prior: PriorGiven | Sequence[PriorGiven] = None,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    exact: ArrayLike | None = None,
    devices: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Posteriors:
    """Posteriors of many releases of the same model and size, in one compiled call.

    Each release has its own number of records, bounds, noise scale and, if wanted, prior; kind of model, number of
    parameters and of statistics, and mechanism are the same. The posteriors are separate: nothing is pooled.

    Args:
        releases: T `Release`s or paths of release files.
        method: one of `dpjax.inference.methods.METHODS` or a sampler (`dpjax.samplers`); None: the model's default.
        prior: as of `dpjax.fit`, one for all; or a list or tuple of T, one each, where None beside conjugate priors is
            the conjugate default ({"kind": "conjugate"}), since models of one call have one form.
        chains, draws, thin: chains per release and kept draws per chain; keep every thin-th step.
        seed: seed of the sampler; release i is keyed by (seed, i).
        settings: sampler settings to change (fields of its dataclass).
        exact: exact statistics `[T, D]` in the units of the releases, for "non-private": public data only.
        devices, progress: as for `dpjax.engine.run.run_chains`.

    Returns:
        `Posteriors`. One `ConvergenceWarning` names the releases that have not converged after the automatic reruns
        (those alone are run again), or whose chains failed.

    Raises:
        InputError: bad argument, or a release that cannot be read or is not like the first; the message has its index.
    """
    seed, method = check_seed(seed), name_of(method)
    found = _loaded(releases)
    models = _models(found, prior, method)
    how = method_named(method or default_method(models[0]))
    if exact is not None:
        try:
            exact = np.asarray(exact, np.float64)
        except (TypeError, ValueError):
            raise InputError("exact must be finite numbers") from None
        wanted = (len(found), found[0].statistic.dim)
        if exact.shape != wanted or not np.isfinite(exact).all():
            raise InputError(f"exact must be finite numbers of shape {wanted}; got shape {exact.shape}")
    box = getattr(found[0].statistic, "box", None)
    problems = make_problems(
        np.stack([release.z for release in found]),
        np.array([float(release.records) for release in found]),
        np.stack([release.scale for release in found]),
        jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *models),
        found[0].mechanism,
        # methods that look at the bounds need one box for all
        statistic=found[0].statistic if all(getattr(r.statistic, "box", None) == box for r in found) else None,
        exact=exact,
    )
    run = run_method(
        how.name, problems, seed=seed, chains=chains, draws=draws, thin=thin, settings=settings, devices=devices,
        progress=progress,
    )  # fmt: skip
    posteriors = Posteriors(
        releases=found, method=how.name, names=run.names, run=run, problems=how.seen(problems), models=models, seed=seed
    )
    for sentence in posteriors.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posteriors


def _loaded(releases: object) -> tuple[Release, ...]:
    """The releases, read where they are paths."""
    if isinstance(releases, str | bytes | os.PathLike | Release | Mapping) or not isinstance(releases, Sequence):
        raise InputError(f"releases must be a list of releases or of their paths; got {type(releases).__name__}")
    if not releases:
        raise InputError("releases must hold at least one release")
    found = []
    for i, entry in enumerate(releases):
        if not isinstance(entry, str | os.PathLike | Release):
            raise InputError(
                f"releases[{i}] must be a Release or the path of a release file; got {type(entry).__name__}"
            )
        try:
            found.append(entry if isinstance(entry, Release) else Release.load(entry))
        except InputError as error:
            raise InputError(f"releases[{i}]: {error}") from error
    first = found[0]
    for i, release in enumerate(found):
        for what, of in (
            ("model", lambda r: r.kind),
            ("mechanism", lambda r: r.mechanism),
            ("number of statistics", lambda r: r.statistic.dim),
            ("number of parameters", lambda r: len(r.statistic.parameter_names)),
        ):
            if of(release) != of(first):
                raise InputError(
                    f"releases[{i}] has {what} {of(release)}, releases[0] has {of(first)}: all must be of one model "
                    "and size; fit them apart"
                )
    return tuple(found)


def _models(releases: Sequence[Release], prior: Any, method: str | None) -> tuple[Model, ...]:
    """The model of each release; releases that share statistic and prior share the object."""
    each = isinstance(prior, list | tuple)
    if each and len(prior) != len(releases):
        raise InputError(f"prior must be one prior, or a list of {len(releases)}, one per release; got {len(prior)}")
    # priors that are given are conjugate, unless of kind "weak": the default must then be so too, to run beside them
    given_some = each and any(p is not None and not (isinstance(p, Mapping) and p.get("kind") == "weak") for p in prior)
    made: dict[Any, Model] = {}
    models = []
    for i, release in enumerate(releases):
        given = prior[i] if each else prior
        key = (id(given), release.statistic)  # `prior` is held by the caller: its parts keep their id
        try:
            if key not in made:
                made[key] = inferred_model(release.statistic, given, method, conjugate=given_some)
        except InputError as error:
            raise InputError(f"releases[{i}]: {error}") from error
        models.append(made[key])
    shape = _shape(models[0])
    for i, model in enumerate(models):
        if _shape(model) != shape:
            raise InputError(f"releases[{i}] has another form of model than releases[0]: fit them apart")
    return tuple(models)


def _shape(model: Model) -> Any:
    """What must agree for models to be stacked."""
    leaves, tree = jax.tree.flatten(model)
    return tree, [np.shape(leaf) for leaf in leaves]


__all__ = ["PredictionAt", "fit_many"]
