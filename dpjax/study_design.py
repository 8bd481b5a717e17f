"""What a calibration study simulates: a model's statistic, its prior and the noise. All kinds of models alike."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._budget import checked_share
from .engine import Problems, precision
from .errors import InputError
from .families import Family
from .kinds import check_options, simulated_statistic
from .mechanisms import MECHANISMS, noise_scales
from .methods import default_method, method_named
from .models import KnownCovariates, LinearRegression, Model, OriginRegression, PartySums, model_for
from .models._making import family_prior
from .models.covariate_laws import marginal_moments
from .origin_statistic import OriginStatistic
from .problems import make_problems, party_problems
from .simulation import LAWS, Study, check_simulation, noise_scale, positive, simulate_study
from .statistics import MOMENTS_SHARE, RegressionStatistic, Statistic
from .views import KNOWN

#: Share of the records at the centre of the prior that the default bounds of a study hold (S4 section 4.4; fixed a
#: priori, not at each trial's true parameter: SPEC A11).
MIDDLE = 0.95
ADJACENCY = "replace-one"
#: Fields that the priors of regressions have in common.
COEFFICIENTS = ("theta_mean", "theta_precision", "sigma2_shape", "sigma2_scale")


@dataclass(frozen=True)
class StudyDesign:
    """What is simulated, whatever the numbers of records and trials.

    statistic: what is summed, with its bounds in the units of the model; model: prior and sampling law; mechanism,
    delta, sensitivity (in the mechanism's norm): the noise; simulate: one of `dpjax.simulation.LAWS`; share: of
    epsilon, for the moments of a regression that releases them. Several parties share the records evenly, all with the
    same bounds and noise; their model is a `PartySums`.
    """

    statistic: Statistic
    model: Model
    mechanism: str
    delta: float | None
    sensitivity: float
    simulate: str
    share: float | None = None

    @property
    def parties(self) -> int:
        """Number of parties."""
        return self.model.parties if isinstance(self.model, PartySums) else 1

    @property
    def moments(self) -> bool:
        """Whether third and fourth moments of the features are released beside the usual sums."""
        return isinstance(self.statistic, RegressionStatistic) and self.statistic.moments

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
            **({"parties": self.parties} if isinstance(self.model, PartySums) else {}),
        }

    def describe(self) -> str:
        """One line: what is summed, with which bounds and which sensitivity."""
        bounds = self.statistic.column_bounds or {}
        parts = [self.statistic.kind]
        if isinstance(self.statistic, OriginStatistic):
            parts.append("through the origin" + ("" if self.statistic.squares else " without the target's squares"))
        if self.parties > 1:
            parts.append(f"{self.parties} parties with equal shares of the records")
        if self.statistic.truncation is not None:
            parts.append(f"rule {self.statistic.truncation['rule']}")
        parts += [f"bounds of {name} {lo:.6g}:{hi:.6g}" for name, (lo, hi) in bounds.items()]
        parts.append(
            f"sensitivity {self.sensitivity:.6g} ({MECHANISMS[self.mechanism].statement.norm} norm, {ADJACENCY})"
        )
        if self.moments:
            parts.append(
                f"noisy and plug-in: moments of degree 3 and 4 too, for {self.share:g} of epsilon, other methods: none"
            )
        parts.append(f"{self.mechanism} noise" + (f", delta {self.delta:g}" if self.delta else ""))
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
            z = np.full((1, self.model.statistic_dim), 2.0 * records)
            try:
                problem = self._problems(z, np.array([float(records)]), np.array([epsilon]), np.zeros_like(z))
            except InputError as error:
                raise InputError(f"epsilon = {epsilon!r}: {error}") from None
            for method in methods:
                method_named(method).check(problem)

    def study(self, cells: Sequence[tuple[int, float]], trials: int, seed: int) -> Study:
        """Simulate `trials` problems per cell (`dpjax.simulation.simulate_study`)."""
        bounds = self.statistic.column_bounds or {}
        study = simulate_study(
            self.model,
            cells,
            trials,
            sensitivity=self.sensitivity,
            seed=seed,
            mechanism=self.mechanism,
            delta=self.delta,
            simulate=self.simulate,
            bounds=next(iter(bounds.values()), None),
            settings=self.settings,
            scales=self._scales if self.moments else None,
        )
        if not isinstance(self.statistic, RegressionStatistic):
            return study
        drawn = study.problems
        epsilon = np.repeat([e for _, e in study.cells], trials)
        assert drawn.exact is not None
        return replace(study, problems=self._problems(drawn.exact, drawn.n, epsilon, drawn.z - drawn.exact))

    def _scales(self, epsilon: float) -> np.ndarray:
        """Noise scale of every entry of a release that also holds moments."""
        moments = self.statistic.parts[1].sensitivity(MECHANISMS[self.mechanism].statement.norm, ADJACENCY)
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
        if isinstance(model, PartySums):
            return self._of_parties(model, z, exact, n, scale)
        made = make_problems(z, n, drawn, model, mechanism, statistic=statistic, exact=exact, untruncated=z)
        if self.moments:
            usual = slice(0, made.z.shape[1])
            assert made.exact is not None
            whole = made.exact + noise[:, usual] * (scale / drawn[:, usual])
            made = replace(made, z=whole, scale=np.broadcast_to(scale, whole.shape), untruncated=whole)
        return replace(made, views=dict(made.views) | self._marginal(made))

    def _of_parties(self, model: PartySums, z, exact, n, scale) -> Problems:
        split = lambda x: x.reshape(len(x), model.parties, model.entries)
        squares = not isinstance(self.statistic, OriginStatistic) or self.statistic.squares
        present = np.ones(model.entries)
        present[-1] = float(squares)
        return party_problems(
            split(z), n[:, None] / model.parties, scale[:, :, None], model.base,
            laplace=float(self.mechanism != "gaussian"), present=present, exact=split(exact), untruncated=split(z),
        )  # fmt: skip

    def _marginal(self, problems: Problems) -> dict[str, Problems]:
        """The view of the paper's Gibbs-SS-Prior: moments of a hierarchical law as if they were a fixed one's."""
        normal = problems.model
        if not isinstance(normal, LinearRegression) or not normal.nu > normal.p + 3:
            return {}
        eta, xi = marginal_moments(normal.x_mean, float(normal.kappa), normal.psi, float(normal.nu))
        coefficients: dict[str, Any] = {name: np.asarray(getattr(normal, name)) for name in COEFFICIENTS}
        known = KnownCovariates.create(eta, xi, **coefficients)
        return {KNOWN: replace(problems, model=known, views={})}


def study_design(
    model: str = "linear-regression",
    *,
    features: int | Any | None = None,
    bounds: tuple[float, float] | Any | None = None,
    rule: str | None = None,
    categories: int | None = None,
    released: Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    mechanism: str = "laplace",
    delta: float | Any | None = None,
    sensitivity: float | Any | None = None,
    prior: Mapping[str, Any] | str | os.PathLike | None = None,
    simulate: str = "exact",
    clip: bool = False,
    moments: bool = False,
    moments_share: float | None = None,
    intercept: bool = True,
    parties: int = 1,
    squares: bool | None = None,
) -> StudyDesign:
    """Check and put together what a study simulates.

    Args:
        model: one of `dpjax.kinds.kinds()`.
        features: number of a regression's covariates (1 if None).
        bounds: in the units of the model. Of every variable of a regression (default (-1, 1)): they set the
            sensitivity, and records are not clipped unless `clip`, as in S0. Of the records of an unbounded family,
            which are clamped or redacted: default the middle 95% at the centre of the prior.
        rule: "clamp" (default) or "redact", of unbounded families.
        categories, released: of a multinomial.
        options: of the family, such as the shape of a gamma distribution.
        mechanism, delta: of the noise; delta for gaussian noise only.
        sensitivity: replaces the statistic's own in the mechanism's norm.
        prior: None for that of calibration studies; parameters are drawn from it and it is the prior of the inference.
        simulate: "exact" or "clt" (statistics from the samplers' own normal approximation).
        clip: clip the records of a regression to `bounds` (the model is then misspecified by construction).
        moments: of a regression: methods noisy and plug-in get releases that also hold the third and fourth moments of
            the features; simulate is then also one of "normal", "uniform", "skewed", the law of the covariates.
        moments_share: share of epsilon that the moments get (0.5 if None, as in S0); the other methods get releases
            without moments for the whole epsilon.
        intercept: False for regressions through the origin.
        parties: number of parties that share the records of a regression evenly.
        squares: without an intercept: whether the sums of y^2 are released too (True if None).

    Raises:
        InputError: an argument that is missing, has no place in this model, or a wrong value.
    """
    if simulate not in (known := [law for law in LAWS if law != "clipped"]):
        raise InputError(f"simulate must be one of {', '.join(known)}; got {simulate!r}")
    if clip and simulate != "exact":
        raise InputError("clip needs simulate = 'exact': there are no records to clip otherwise")
    if mechanism not in MECHANISMS:
        raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}; got {mechanism!r}")
    check_options(options or {})
    chosen = {"rule": rule, "categories": categories, "released": released} | dict(options or {})
    if moments:
        chosen["moments"] = True
    elif moments_share is not None:
        raise InputError(f"moments_share is for moments = true; got {moments_share!r}")
    share = (
        checked_share(MOMENTS_SHARE if moments_share is None else moments_share, "moments_share") if moments else None
    )
    if isinstance(parties, bool) or not isinstance(parties, int) or parties < 1:
        raise InputError(f"parties must be a whole number, at least 1; got {parties!r}")
    if not intercept:
        chosen["intercept"] = False
    if squares is not None:
        chosen["squares"] = squares
    statistic = simulated_statistic(
        model,
        features=features,
        bounds=bounds,
        middle=lambda family: middle_of_records(family, prior),
        **{name: value for name, value in chosen.items() if value is not None},
    )
    inferred = model_for(statistic, prior, default="calibration")
    if parties > 1 and not isinstance(inferred, LinearRegression | OriginRegression):
        raise InputError(
            f"parties = {parties} is for regressions with normal covariates of unknown mean and covariance"
        )
    if isinstance(inferred, OriginRegression) or (parties > 1 and isinstance(inferred, LinearRegression)):
        if moments or clip or simulate != "exact":
            raise InputError("studies of parties or without an intercept are simulated exactly, without moments")
        inferred = PartySums.create(inferred, np.ones(parties), laplace=float(mechanism != "gaussian"))
    law = "clipped" if clip else simulate
    check_simulation(inferred, law)
    noise = MECHANISMS[mechanism]
    if noise.whole_numbers and not statistic.integer:
        raise InputError(f"mechanism {mechanism!r} is for sums of whole numbers, which those of {model} are not")
    if sensitivity is None:
        usual = statistic.base if isinstance(statistic, RegressionStatistic) else statistic
        size = positive("the sensitivity of these bounds", usual.sensitivity(noise.statement.norm, ADJACENCY))
    else:
        size = positive("sensitivity", sensitivity)
    noise_scale(mechanism, size, 1.0, delta)  # a delta that is missing or superfluous
    return StudyDesign(statistic, inferred, mechanism, delta, size, law, share)


def middle_of_records(family: Family, prior: Any = None, share: float = MIDDLE) -> tuple[float, float]:
    """Bounds of x that hold the middle `share` of the records of a family at the centre of a study's prior.

    Whole numbers for counts. Known a priori: no data enter.
    """
    made = family_prior(family, prior, family.study_prior())
    with precision(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), made)
        tails = jnp.asarray([(1 - share) / 2, (1 + share) / 2], jnp.float64)
        values = np.asarray(family.quantile(wide.constrain(wide.center()), tails))
    low, high = np.exp(values) if family.log else values
    return float(low), float(high)
