"""`fit_many`: posteriors of many releases of the same model, in one compiled call."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import ndtr

from .diagnostics import ESS_LIMIT, RHAT_LIMIT, Diagnostics, diagnose
from .engine import OK, Problems, Progress, Run
from .errors import ConvergenceWarning, InputError
from .inference import inferred_model, make_posterior, sample_prior_report
from .methods import check_seed, default_method, method_named, run_method
from .models import Model
from .posterior import Posterior
from .problems import make_problems
from .release import Release
from .statistics import RegressionStatistic

#: A message names at most this many releases.
MOST_NAMED = 8
PriorGiven = Mapping[str, Any] | str | os.PathLike | None


@dataclass(frozen=True)
class PredictionAt:
    """Predictive distribution of the response at one point of covariates, for T releases, in the user's units.

    x: the point, [p]; line: draws of the value of the regression line there, [T, N] with N = chains times draws;
    sd: the residual standard deviation of the same draws, [T, N]; seed: of the draws `y`.
    """

    x: np.ndarray
    line: np.ndarray
    sd: np.ndarray
    seed: int = 0

    @cached_property
    def y(self) -> np.ndarray:
        """Draws of a fresh response, [T, N]."""
        return self.line + self.sd * np.random.default_rng(self.seed).standard_normal(self.line.shape)

    @property
    def mean(self) -> np.ndarray:
        """Predictive mean, which is that of the line, [T]."""
        return self.line.mean(1)

    def interval(self, level: float | Any, of: str = "y") -> np.ndarray:
        """Central interval, [T, 2], of a fresh response ("y") or of the line ("line").

        Raises:
            InputError: level outside (0, 1), or another `of`.
        """
        if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1; got {level!r}")
        tail = (1.0 - float(level)) / 2
        return np.quantile(self._draws(of), [tail, 1.0 - tail], axis=1).T

    def cdf(self, value: Any, of: str = "y") -> np.ndarray:
        """Predictive probability of at most `value` (a number, or one for each release), [T]; for "y" the residual is
        integrated out, not drawn. InputError for another `of` than "y" or "line", or what is no number."""
        try:
            value = np.broadcast_to(np.asarray(value, np.float64), self.line.shape[:1])[:, None]
        except (TypeError, ValueError):
            value = np.full((1, 1), np.nan)
        if np.isnan(value).any():
            raise InputError(f"value must be a number, or one for each of the {len(self.line)} releases")
        if of == "y":
            return ndtr((value - self.line) / self.sd).mean(1)
        draws = self._draws(of)
        return (draws < value).mean(1) / 2 + (draws <= value).mean(1) / 2

    def _draws(self, of: str) -> np.ndarray:
        if of not in ("y", "line"):
            raise InputError(f"of must be 'y' (a fresh response) or 'line'; got {of!r}")
        return self.y if of == "y" else self.line


@dataclass(frozen=True, eq=False, kw_only=True)
class Posteriors(Sequence):
    """Posteriors of T releases. A sequence: `posteriors[i]` is the `Posterior` of release i.

    releases: what was fitted; method: sampler; names: the K parameters; run: result of the engine; problems: as the
    method saw them; models: the prior of each release (those with the same prior share one object); seed: of the run.
    """

    releases: tuple[Release, ...]
    method: str
    names: tuple[str, ...]
    run: Run
    problems: Problems
    models: tuple[Model, ...]
    seed: int = 0
    _prior_draws: dict = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Posteriors({len(self)} releases, {self.method}, draws {self.draws.shape})"

    def __len__(self) -> int:
        return len(self.releases)

    def __getitem__(self, index: Any) -> Any:
        """Posterior of one release; IndexError where there is none, InputError for what is not a whole number."""
        if isinstance(index, bool) or not isinstance(index, int | np.integer):
            raise InputError(f"index of a release must be a whole number; got {index!r}")
        i = range(len(self))[int(index)]
        run, one = self.run, slice(i, i + 1)
        rows = {key: getattr(run, key)[one] for key in ("draws", "codes", "accept", "divergences", "rerun_mask")}
        alone, problem = dataclasses.replace(run, **rows, diagnostics=None), self.problems.take([i])
        used = problem.model_template()
        return make_posterior(
            self.releases[i], method_named(self.method), problem, alone, used, self._prior_of(i, used)
        )

    def __iter__(self) -> Iterator[Posterior]:
        return (self[i] for i in range(len(self)))

    @property
    def draws(self) -> np.ndarray:
        """Draws in the units of the releases, [T, C, S, K]."""
        return self.run.draws

    @cached_property
    def user_draws(self) -> np.ndarray:
        """Draws in the user's units, [T, C, S, K] float64."""
        out = np.array(self.draws, dtype=np.float64)
        for i, release in enumerate(self.releases):
            if release.scaling is not None:
                out[i] = release.statistic.to_user_units(out[i])
        return out

    @property
    def records(self) -> np.ndarray:
        """Number of records of each release, [T]."""
        return np.array([release.records for release in self.releases])

    @property
    def epsilon(self) -> np.ndarray:
        """Epsilon of each release, [T]; NaN where it is not stated."""
        return np.array([r.privacy.epsilon if r.privacy else np.nan for r in self.releases])

    @property
    def seconds(self) -> float:
        """Seconds of the compiled run, reruns included, compilation apart."""
        return self.run.seconds

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Diagnostics of the draws in the user's units, arrays [T, K]: what each `Posterior` has."""
        scaled = any(release.scaling is not None for release in self.releases)
        if scaled or self.run.reruns or self.run.diagnostics is None:
            return diagnose(self.user_draws, self.names)
        return self.run.diagnostics

    @cached_property
    def converged(self) -> np.ndarray:
        """Whether a release's draws can be used, [T] bool: result codes, R-hat at most 1.05, bulk and tail ESS at least
        100, of the draws here and, of a release that was run again, of all its more numerous chains."""
        bad = (self.run.codes != OK).any(1)
        for found in (self.diagnostics, self.run.diagnostics):
            if found is not None:
                bad = bad | found.unreliable(RHAT_LIMIT, ESS_LIMIT) | (found.min_ess_tail < ESS_LIMIT)
        return ~bad

    def warnings(self) -> list[str]:
        """Sentences about the releases whose draws should not be trusted yet; empty when all is well."""
        failed = (self.run.codes != OK).any(1)
        sentences = []
        if failed.any():
            sentences.append(
                f"{_named(failed)}: chains ended with a failing result code; their draws must not be used: check "
                "bounds and prior, or run with another seed."
            )
        slow = ~self.converged & ~failed
        if slow.any():
            other = "compare with method 'gibbs'" if self.method == "collapsed" else "use method 'collapsed'"
            sentences.append(
                f"{_named(slow)}: not converged (R-hat above {RHAT_LIMIT} or ESS under {ESS_LIMIT:.0f}); run more "
                f"draws and more chains, or {other}; posteriors[i].warnings() says more."
            )
        return sentences

    def summary(self) -> dict[str, Any]:
        """Columns by release, ready for JSON: under "parameters" (user's units) and "scaled" (units of the releases)
        mean, sd, q05 and q95 of each parameter, each a list of T; R-hat and ESS under "parameters"."""
        parameters = _columns(self.user_draws, self.names)
        for key in ("ess_bulk", "ess_tail", "rhat"):
            for k, name in enumerate(self.names):
                parameters[name][key] = getattr(self.diagnostics, key)[:, k].tolist()
        return {
            "parameters": parameters,
            "scaled": _columns(self.draws, self.names),
            "records": self.records.tolist(),
            "epsilon": self.epsilon.tolist(),
            "converged": self.converged.tolist(),
            "rerun": self.run.rerun_mask.tolist(),
            "method": self.method,
            "chains": self.draws.shape[1],
            "draws": self.draws.shape[2],
            "seconds": self.seconds,
            "compile_seconds": self.run.compile_seconds,
            "rerun_seconds": self.run.rerun_seconds,
            "warnings": self.warnings(),
        }

    def predict_at(self, x: Any, *, seed: int = 0) -> PredictionAt:
        """Predictive distribution of the response at one x, of every release, in the user's units.

        Args:
            x: a number for one feature, a sequence of p numbers in the order of the features, or a mapping from every
                feature's name.
            seed: of the draws of fresh responses.

        Raises:
            InputError: not a regression; wrong features, wrong number of them, or not finite.
        """
        statistic = self.releases[0].statistic
        if not isinstance(statistic, RegressionStatistic):
            raise InputError(f"predict_at is for linear-regression; these are releases of {statistic.kind}")
        point = _point(x, statistic.features)
        flat = self.user_draws.reshape(len(self), -1, len(self.names))
        p = statistic.p
        line = flat[..., 0] + flat[..., 1 : p + 1] @ point
        return PredictionAt(point, line, np.sqrt(flat[..., p + 1]), check_seed(seed))

    def _prior_of(self, i: int, used: Model) -> np.ndarray:
        """Prior draws of release i, computed once for a prior that several releases share."""
        key = id(self.models[i])
        if key not in self._prior_draws:
            self._prior_draws[key] = sample_prior_report(used, self.seed)
        return self._prior_draws[key]


def fit_many(
    releases: Sequence[Release | str | os.PathLike] | Any,
    *,
    method: str | None = None,
    prior: PriorGiven | Sequence[PriorGiven] | Any = None,
    chains: int = 2,
    draws: int = 500,
    thin: int | None = None,
    seed: int | Any = 0,
    settings: dict | None = None,
    exact: np.ndarray | Any | None = None,
    devices: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Posteriors:
    """Posteriors of many releases of the same model and size, in one compiled call.

    Each release has its own number of records, bounds, noise scale and, if wanted, prior; kind of model, number of
    parameters and of statistics, and mechanism are the same. The posteriors are separate: nothing is pooled.

    Args:
        releases: T `Release`s or paths of release files.
        method: one of `dpjax.methods.METHODS`; None: the model's default.
        prior: as of `dpjax.fit`, one for all; or a list or tuple of T, one each.
        chains, draws, thin: chains per release and kept draws per chain; keep every thin-th step.
        seed: seed of the sampler; release i is keyed by (seed, i).
        settings: sampler settings to change (fields of its dataclass).
        exact: exact statistics `[T, D]` in the units of the releases, for "non-private": public data only.
        devices, progress: as for `dpjax.engine.run_chains`.

    Returns:
        `Posteriors`. One `ConvergenceWarning` names the releases that have not converged after the automatic reruns
        (those alone are run again), or whose chains failed.

    Raises:
        InputError: bad argument, or a release that cannot be read or is not like the first; the message has its index.
    """
    seed = check_seed(seed)
    found = _loaded(releases)
    models = _models(found, prior)
    name = method if method is not None else default_method(models[0])
    entry = method_named(name)
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
        name, problems, seed=seed, chains=chains, draws=draws, thin=thin, settings=settings, devices=devices,
        progress=progress,
    )  # fmt: skip
    posteriors = Posteriors(
        releases=found, method=name, names=run.names, run=run, problems=entry.seen(problems), models=models, seed=seed
    )
    for sentence in posteriors.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posteriors


def _loaded(releases: Any) -> tuple[Release, ...]:
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


def _models(releases: Sequence[Release], prior: Any) -> tuple[Model, ...]:
    """The model of each release; releases that share statistic and prior share the object."""
    each = isinstance(prior, list | tuple)
    if each and len(prior) != len(releases):
        raise InputError(f"prior must be one prior, or a list of {len(releases)}, one per release; got {len(prior)}")
    made: dict[Any, Model] = {}
    models = []
    for i, release in enumerate(releases):
        given = prior[i] if each else prior
        key = (id(given), release.statistic)  # `prior` is held by the caller: its parts keep their id
        try:
            if key not in made:
                made[key] = inferred_model(release.statistic, given)
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


def _point(x: Any, features: Sequence[str]) -> np.ndarray:
    """The covariates as a vector [p]."""
    wanted = f"{len(features)} finite number{'s' if len(features) > 1 else ''} ({', '.join(features)})"
    if isinstance(x, Mapping):
        if set(x) != set(features):
            raise InputError(f"x must hold {wanted}; got the names {', '.join(map(str, x))}")
        x = [x[name] for name in features]
    try:
        point = np.atleast_1d(np.asarray(x))
    except ValueError:  # ragged
        point = np.asarray(None)
    if point.dtype.kind not in "iuf" or point.shape != (len(features),) or not np.isfinite(point).all():
        raise InputError(f"x must be {wanted}; got {x!r}")
    return point.astype(np.float64)


def _columns(draws: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, list]]:
    flat = np.asarray(draws, np.float64).reshape(len(draws), -1, len(names))
    q05, q95 = np.quantile(flat, [0.05, 0.95], axis=1)
    table = {"mean": flat.mean(1), "sd": flat.std(1, ddof=1), "q05": q05, "q95": q95}
    return {name: {key: value[:, k].tolist() for key, value in table.items()} for k, name in enumerate(names)}


def _named(mask: np.ndarray) -> str:
    """The indices where the mask is set, in words."""
    found = np.flatnonzero(mask)
    shown = ", ".join(map(str, found[:MOST_NAMED]))
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"release{'s' if len(found) > 1 else ''} {shown}{more} of {len(mask)}"


__all__ = ["Posteriors", "PredictionAt", "fit_many"]
