"""Posteriors of many releases of the same model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpjax._base.signatures import no_type_check
from dpjax.diagnostics.ranks import ESS_LIMIT, RHAT_LIMIT, Diagnostics, diagnose
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import OK
from dpjax.engine.results import Run
from dpjax.errors import InputError
from dpjax.inference.fit import posterior_of
from dpjax.inference.methods import method_named
from dpjax.inference.posterior import Posterior
from dpjax.inference.prediction_at import PredictionAt, regression_draws
from dpjax.inference.prediction_rows import Point
from dpjax.inference.prior_predictive import sample_prior_report
from dpjax.inference.released import stated
from dpjax.inference.run_method import check_seed
from dpjax.inference.summary import in_user_units, of_draws
from dpjax.models import Model
from dpjax.releases.possible_sums import doubts_about_sums
from dpjax.releases.release import Release

#: A message names at most this many releases.
MOST_NAMED = 8


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
        rows = {key: value[None] for key, value in self.run.chains_of(i)._asdict().items()}
        mask = self.run.rerun_mask[i : i + 1]
        computed = None if self.run.computed is None else self.run.computed.take([i])
        alone = dataclasses.replace(self.run, **rows, rerun_mask=mask, diagnostics=None, again={}, computed=computed)
        problem = self.problems.take([i])
        used = problem.model_template()
        one = self.releases[i]
        return posterior_of(
            method_named(self.method), problem, alone, used, self._prior_of(i, used), **stated([one], one.statistic)
        )

    def __iter__(self) -> Iterator[Posterior]:
        return (self[i] for i in range(len(self)))

    @property
    def draws(self) -> np.ndarray:
        """Draws in the units of the releases, [T, C, S, K]; of a release that was run again with more chains, as many
        of its draws as there is room for (`posteriors[i].draws` has all)."""
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
        """Diagnostics in the user's units of the chains as they ran, arrays [T, K]: what each `Posterior` has."""
        if self.run.diagnostics is not None and all(release.scaling is None for release in self.releases):
            return self.run.diagnostics
        found = diagnose(self.user_draws, self.names)
        for i, draws in self._more_draws.items():
            found = found.put(np.array([i]), diagnose(draws[None], self.names))
        return found

    @cached_property
    def _more_draws(self) -> dict[int, np.ndarray]:
        """By release that was run again with more chains, their draws in the user's units [C, S, K]."""
        units = lambda i: self.releases[i].statistic.to_user_units
        return {i: units(i)(np.asarray(found.draws, np.float64)) for i, found in self.run.again.items()}

    @cached_property
    def converged(self) -> np.ndarray:
        """Whether a release's draws can be used, [T] bool: result codes, R-hat at most 1.05, bulk and tail ESS at least
        100, of its chains as they ran; sums that a table can have."""
        return ~((self.run.codes != OK).any(1) | self._doubted | self.diagnostics.unreliable())

    @cached_property
    def _doubted(self) -> np.ndarray:
        """Releases whose sums no table has, [T] bool."""
        return np.array([bool(doubts_about_sums(release)) for release in self.releases])

    def warnings(self) -> list[str]:
        """Sentences about the releases whose draws should not be trusted yet; empty when all is well."""
        failed = (self.run.codes != OK).any(1)
        sentences = []
        if failed.any():
            sentences.append(
                f"{_named(failed)}: chains ended with a failing result code; their draws must not be used: check "
                "bounds and prior, or run with another seed."
            )
        if self._doubted.any():
            sentences.append(
                f"{_named(self._doubted)}: no table can have these sums; posteriors[i].warnings() says how far off."
            )
        slow = ~self.converged & ~failed & ~self._doubted
        if slow.any():
            other = "compare with method 'gibbs'" if self.method == "collapsed" else "use method 'collapsed'"
            sentences.append(
                f"{_named(slow)}: not converged (R-hat above {RHAT_LIMIT} or ESS under {ESS_LIMIT:.0f}); run more "
                f"draws and more chains, or {other}; posteriors[i].warnings() says more."
            )
        return sentences

    def summary(self) -> dict[str, Any]:
        """Columns by release, ready for JSON: under "parameters" (user's units) and "scaled" (units of the releases)
        mean, sd, q05 and q95 of each parameter, each a list of T, of the density where it is computed; R-hat and ESS
        of the draws under "parameters"."""
        computed = None if self.run.computed is None else self.run.computed.rows()
        user = None
        if computed is not None:
            rows = [{key: x[i] for key, x in computed.items()} for i in range(len(self))]
            each = [in_user_units(r.statistic, row) for r, row in zip(self.releases, rows, strict=True)]
            user = {key: np.stack([one[key] for one in each]) for key in computed}
        parameters = _columns(self.user_draws, self.names, self._more_draws, user)
        for key in ("ess_bulk", "ess_tail", "rhat"):
            for k, name in enumerate(self.names):
                parameters[name][key] = getattr(self.diagnostics, key)[:, k].tolist()
        return {
            "parameters": parameters,
            "scaled": _columns(
                self.draws, self.names, {i: found.draws for i, found in self.run.again.items()}, computed
            ),
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

    @no_type_check
    def predict_at(self, x: Point, *, seed: int = 0) -> PredictionAt:
        """Predictive distribution of the response at one x, of every release, in the user's units.

        Args:
            x: a number for one feature, a sequence of p numbers in the order of the features, or a mapping from every
                feature's name.
            seed: of the draws of fresh responses.

        Raises:
            InputError: not a regression; wrong features, wrong number of them, or not finite.
        """
        statistic: Any = self.releases[0].statistic
        flat = self.user_draws.reshape(len(self), -1, len(self.names))
        theta, sigma2 = regression_draws(statistic, self.names, flat, self.method)
        return PredictionAt.of(statistic, theta, sigma2, x, check_seed(seed))

    def _prior_of(self, i: int, used: Model) -> np.ndarray:
        """Prior draws of release i, computed once for a prior that several releases share."""
        key = id(self.models[i])
        if key not in self._prior_draws:
            self._prior_draws[key] = sample_prior_report(used, self.seed)
        return self._prior_draws[key]


def _columns(
    draws: np.ndarray, names: Sequence[str], more: Mapping[int, np.ndarray], computed: Any = None
) -> dict[str, dict[str, list]]:
    """Moments and quantiles of every release: of its density where it is computed (`[T, K]` each), else of all of its
    draws; `more` holds those of releases that have more."""
    table = computed if computed is not None else of_draws(draws.reshape(len(draws), -1, len(names)))
    for i, own in more.items() if computed is None else ():
        for key, value in of_draws(own.reshape(-1, len(names))).items():
            table[key][i] = value
    return {name: {key: value[:, k].tolist() for key, value in table.items()} for k, name in enumerate(names)}


def _named(mask: np.ndarray) -> str:
    """The indices where the mask is set, in words."""
    found = np.flatnonzero(mask)
    shown = ", ".join(map(str, found[:MOST_NAMED]))
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"release{'s' if len(found) > 1 else ''} {shown}{more} of {len(mask)}"
