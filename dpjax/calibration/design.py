"""What a calibration study simulates: a model's statistic, its prior and the noise. All kinds of models alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpjax.calibration.scales import noise_scales
from dpjax.calibration.simulation import Study, noise_scale, simulate_study
from dpjax.calibration.truth import FixedTruth
from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.inference.methods import default_method, method_named
from dpjax.mechanisms import MECHANISMS
from dpjax.models import Model
from dpjax.models.regression.problems import make_problems, party_problems
from dpjax.models.regression.views import KNOWN
from dpjax.statistics.base import Statistic

ADJACENCY = "replace-one"


@dataclass(frozen=True)
class StudyDesign:
    """What is simulated, whatever the numbers of records and trials.

    Several parties share the records evenly, all with the same bounds and noise; their model is a `PartySums`.

    Attributes:
        statistic: what is summed, with its bounds in the units of the model.
        model: prior and sampling law.
        mechanism: kind of the noise.
        delta: of the mechanism, None where it has none.
        sensitivity: in the mechanism's norm.
        simulate: one of `dpjax.calibration.simulation.LAWS`.
        share: of epsilon, for the moments of a regression that releases them.
        truth: the model that parameters and data are drawn from, None for `model`.
    """

    statistic: Statistic
    model: Model
    mechanism: str
    delta: float | None
    sensitivity: float
    simulate: str
    share: float | None = None
    truth: Any = None

    @property
    def parties(self) -> int:
        """Number of parties."""
        return self.model.parties or 1

    @property
    def moments(self) -> bool:
        """Whether third and fourth moments of the features are released beside the usual sums."""
        return self.statistic.moments

    @property
    def settings(self) -> dict[str, Any]:
        """What was simulated, for JSON."""
        bounds = self.statistic.column_bounds
        return {
            "study": self.describe(),
            "model": self.statistic.block(),
            "simulate": self.simulate,
            "bounds": None if bounds is None else {name: list(pair) for name, pair in bounds.items()},
            "truncation": self.statistic.truncation,
            "sensitivity": self.sensitivity,
            "mechanism": self.mechanism,
            "delta": self.delta,
            "adjacency": ADJACENCY,
            **({"moments_share": self.share} if self.moments else {}),
            **({} if self.model.parties is None else {"parties": self.parties}),
        }

    def describe(self) -> str:
        """One line: what is summed, with which bounds and which sensitivity."""
        bounds = self.statistic.column_bounds or {}
        parts = [self.statistic.kind, *self.statistic.details]
        if self.parties > 1:
            parts.append(f"{self.parties} parties with equal shares of the records")
        if self.statistic.truncation is not None:
            parts.append(f"rule {self.statistic.truncation['rule']}")
        parts += [f"bounds of {name} {lo:.6g}:{hi:.6g}" for name, (lo, hi) in bounds.items()]
        parts.append(f"sensitivity {self.sensitivity:.6g} ({MECHANISMS[self.mechanism].norm} norm, {ADJACENCY})")
        if self.moments:
            parts.append(
                f"noisy and plug-in: moments of degree 3 and 4 too, for {self.share:g} of epsilon, other methods: none"
            )
        parts.append(f"{self.mechanism} noise" + (f", delta {self.delta:g}" if self.delta else ""))
        if self.truth is not None:
            fixed = isinstance(self.truth, FixedTruth)
            parts.append(f"truths {'fixed' if fixed else 'from another law than the prior'}: ranks need not be uniform")
        return ", ".join(parts)

    def default_method(self) -> str:
        """The method if none is named."""
        return default_method(self.model)

    def check(self, cells: Sequence[tuple[int, float]], methods: Sequence[str] = ()) -> None:
        """Refuse cells (records, epsilon) that cannot be computed with, and methods that do not fit the model.

        Raises:
            InputError: the first of them.
        """
        for records, epsilon in cells:
            if records % self.parties:
                raise InputError(f"records must be a multiple of the {self.parties} parties; got {records}")
            try:
                problem = self.example(1, records, epsilon)
            except InputError as error:
                raise InputError(f"epsilon = {epsilon!r}: {error}", where="epsilon") from None
            for method in methods:
                method_named(method).check(problem)

    def example(self, count: int, records: int | float, epsilon: int | float) -> Problems:
        """Problems `[count]` of this form, with made-up sums.

        Raises:
            InputError: as `dpjax.models.regression.problems.make_problems`.
        """
        z = np.full((count, self.model.statistic_dim), 2.0 * records)
        return self._problems(z, np.full(count, float(records)), np.full(count, epsilon), np.zeros_like(z))

    def study(self, cells: Sequence[tuple[int, float]], trials: int, seed: int) -> Study:
        """Simulate `trials` problems per cell (`dpjax.calibration.simulation.simulate_study`)."""
        study = simulate_study(
            self.model,
            cells,
            trials,
            sensitivity=self.sensitivity,
            seed=seed,
            mechanism=self.mechanism,
            delta=self.delta,
            simulate=self.simulate,
            bounds=self._box,
            settings=self.settings,
            scales=self._scales if self.moments else None,
            truth=self.truth,
        )
        if not self.statistic.several_views:
            return study
        drawn = study.problems
        epsilon = np.repeat([e for _, e in study.cells], trials)
        assert drawn.exact is not None
        return replace(study, problems=self._problems(drawn.exact, drawn.n, epsilon, drawn.z - drawn.exact))

    @property
    def _box(self) -> tuple[float, float] | None:
        """Bounds of every variable in the units of the model, for studies that clip."""
        limits = set(getattr(self.statistic, "box", None) or ())
        if len(limits) > 1 and self.simulate == "clipped":
            raise InputError("clip needs the same bounds for all variables, in the units of the model")
        return limits.pop() if len(limits) == 1 else None

    def _scales(self, epsilon: float) -> np.ndarray:
        """Noise scale of every entry of a release that also holds moments."""
        moments = self.statistic.parts[1].sensitivity(MECHANISMS[self.mechanism].norm, ADJACENCY)
        own = (self.sensitivity, moments)
        return noise_scales(self.statistic, self.mechanism, epsilon, self.delta, self.share, own)

    def _problems(self, exact: np.ndarray, n: np.ndarray, epsilon: np.ndarray, noise: np.ndarray) -> Problems:
        """Problems `[T]` of these exact statistics and noise, in the views of all methods.

        Methods without moments get the usual sums with the whole epsilon: the same noise, on its own scale.
        """
        model, mechanism, statistic = self.model, self.mechanism, self.statistic
        each = {e: noise_scale(mechanism, self.sensitivity, e, self.delta) for e in set(epsilon.tolist())}
        scale = np.array([each[e] for e in epsilon.tolist()])[:, None]
        drawn = scale
        if self.moments:
            split = {e: self._scales(e) for e in each}
            drawn = np.array([split[e] for e in epsilon.tolist()])
        z = exact + noise
        if model.parties is not None:
            return self._of_parties(model, z, exact, n, scale)
        made = make_problems(z, n, drawn, model, mechanism, statistic=statistic, exact=exact, untruncated=z)
        if self.moments:
            usual = slice(0, made.z.shape[1])
            assert made.exact is not None
            whole = made.exact + noise[:, usual] * (scale / drawn[:, usual])
            made = replace(made, z=whole, scale=np.broadcast_to(scale, whole.shape), untruncated=whole)
        return replace(made, views=dict(made.views) | self._marginal(made))

    def _of_parties(self, model: Any, z, exact, n, scale) -> Problems:
        split = lambda x: x.reshape(len(x), model.parties, model.entries)
        statistic: Any = self.statistic
        present = np.ones(model.entries)
        present[-1] = float(statistic.squares)
        return party_problems(
            split(z), n[:, None] / model.parties, scale[:, :, None], model.base, self.mechanism, present=present,
            exact=split(exact), untruncated=split(z),
        )  # fmt: skip

    def _marginal(self, problems: Problems) -> dict[str, Problems]:
        """The view of the paper's Gibbs-SS-Prior: moments of a hierarchical law as if they were a fixed one's."""
        known = problems.model.fixed_law()
        return {} if known is None else {KNOWN: replace(problems, model=known, views={})}
