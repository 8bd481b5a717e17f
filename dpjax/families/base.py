"""What a family of distributions is, for the release (no JAX) and for the model (JAX, loaded when used).

A family describes ONE record. `v` is the value that enters the statistic (x itself, or log x); the sufficient
statistic t is a vector of powers of v, and the density of v is h(v) exp(eta . t(v) - A(eta)).

A new family gives the class attributes, `natural`, `log_partition`, the logarithms of its CDF and survival function
(or better: `log_integral`, or the points of `_quadrature.SummedFamily`) and `update` of its conjugate prior.
Statistics, sensitivities, release files, moments under truncation, samplers, calibration and the command line follow:
docs/adding_a_family.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dpjax._base.checks import check_number, shown
from dpjax.errors import InputError
from dpjax.families._jax import jax, jnp, special

_WEAK: Mapping[str, dict[str, float]] = {
    "gamma": {"shape": 1.0, "rate": 1.0},
    "beta": {"alpha": 1.0, "beta": 1.0},
    "normal-inverse-gamma": {"mean": 0.0, "kappa": 0.2, "shape": 3.0, "scale": 0.4},
}
_STUDY: Mapping[str, dict[str, float]] = {
    "gamma": {"shape": 10.0, "rate": 10.0},
    "beta": {"alpha": 10.0, "beta": 10.0},
    "normal-inverse-gamma": {"mean": 0.0, "kappa": 1.0, "shape": 20.0, "scale": 2.0},
}
#: Steps of the bisection behind `Family.quantile`.
_BISECTIONS = 60


@dataclass(frozen=True)
class Family:
    """Base class. Instances are hashable and hold what is fixed and known about the record (the shape of a gamma
    distribution); what is unknown are the `parameters`.

    Class attributes:
        kind: name in files and on the command line.
        parameters: names of the reported parameters, in the order of the prior's.
        prior: the conjugate prior: "gamma", "beta" or "normal-inverse-gamma" (`dpjax.models.priors`).
        statistics: entry name -> power of v.
        support: smallest and largest value of v.
        discrete: v takes whole numbers only.
        log: v = log x (else v = x).
        affine: the family is closed under affine maps of v: a release maps the bounds to [-1, 1].
        bernoulli: the record is 1 with the probability that is its one parameter, else 0.
    """

    kind: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    prior: ClassVar[str]
    statistics: ClassVar[Mapping[str, int]] = {"x": 1}
    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    discrete: ClassVar[bool] = False
    log: ClassVar[bool] = False
    affine: ClassVar[bool] = False
    bernoulli: ClassVar[bool] = False

    @property
    def bounded(self) -> bool:
        """Whether the statistic is bounded without truncation."""
        return all(math.isfinite(end) for end in self.support)

    @property
    def powers(self) -> tuple[int, ...]:
        """Power of v of each of the S entries."""
        return tuple(self.statistics.values())

    @property
    def options(self) -> dict[str, Any]:
        """The fields of the instance, as they stand in the model block of a release file."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    # ---- each family writes these: one record, JAX arrays, differentiable in eta ------------------------------
    def natural(self, theta):
        """Natural parameters eta [S] of the reported ones [K]."""
        raise NotImplementedError

    def log_partition(self, eta):
        """A(eta) [] (with the h(v) of `log_integral`, if that is given)."""
        raise NotImplementedError

    def log_cdf(self, eta, v):
        """log P(V <= v), accurate in the lower tail; v inside the support, a whole number if discrete."""
        raise NotImplementedError

    def log_survival(self, eta, v):
        """log P(V > v), accurate in the upper tail."""
        raise NotImplementedError

    def update(self, prior, statistic, n):
        """The conjugate posterior: `prior` with new hyperparameters, given sums [S] over n records."""
        raise NotImplementedError

    def weak_prior(self, low: float, high: float) -> dict[str, Any]:
        """Hyperparameters of the default prior of `fit`, for records (values v) that mostly lie in [low, high]."""
        return dict(_WEAK[self.prior])

    def study_prior(self) -> dict[str, Any]:
        """Hyperparameters of the default prior of calibration studies."""
        return dict(_STUDY[self.prior])

    # ---- and inherits these, unless something better is known ---------------------------------------------------
    def log_integral(self, eta, low, high):
        """log of the integral (or sum) of h(v) exp(eta . t(v)) over low <= v <= high, both finite.

        It is the log-partition of the family truncated to [low, high]: its gradient and Hessian in eta are mean
        and covariance of t there (Bernstein 2020, Lemma 1). Default: A(eta) + log(F(high) - F(low)); a form without the
        difference (`_quadrature.SummedFamily`) keeps the digits where [low, high] is narrow.
        """
        return self.log_partition(eta) + self.log_mass(eta, low, high)

    def log_base(self, v):
        """log h(v) of a discrete family: with it few counts are summed one by one, which is faster, and has more
        digits, than differences of CDFs."""
        raise NotImplementedError

    @property
    def has_base(self) -> bool:
        """Whether `log_base` is given."""
        return type(self).log_base is not Family.log_base

    def log_mass(self, eta, low, high):
        """log P(low <= V <= high), by CDF or survival function, whichever cancels less
        (docs/formulas.md#family-moments)."""
        at_end = low <= self.support[0]
        below = jnp.where(at_end, high, low - 1.0 if self.discrete else low)
        cdf_high, survival_high = self.log_cdf(eta, high), self.log_survival(eta, high)
        cdf_low, survival_low = self.log_cdf(eta, below), self.log_survival(eta, below)
        cdf_low = jnp.where(at_end, -jnp.inf, cdf_low)
        survival_low = jnp.where(at_end, jnp.zeros_like(survival_low), survival_low)
        by_cdf = special.log_difference(cdf_high, cdf_low)
        by_survival = special.log_difference(survival_low, survival_high)
        return jnp.where(cdf_high <= survival_low, by_cdf, by_survival)

    def log_mass_below(self, eta, low):
        """log P(V < low); -inf where low is the end of the support."""
        at_end = low <= self.support[0]
        safe = jnp.where(at_end, jnp.abs(low) + 1.0, low - 1.0 if self.discrete else low)
        return jnp.where(at_end, -jnp.inf, self.log_cdf(eta, safe))

    def log_mass_above(self, eta, high):
        """log P(V > high)."""
        return self.log_survival(eta, high)

    def mean_statistic(self, eta):
        """E[t] [S]: the gradient of A."""
        return jax.grad(self.log_partition)(eta)

    def statistic(self, v):
        """t(v), entries in a new leading axis."""
        return jnp.stack([v**power for power in self.powers])

    def quantile(self, theta, u):
        """Value v with P(V <= v) = u (discrete: the smallest with at least u), by bisection.

        Args:
            theta: reported parameters [K].
            u: probabilities in (0, 1), any shape.
        """
        eta = self.natural(theta)
        u = jnp.asarray(u)
        log_u = jnp.log(u)
        lower = self.support[0]
        start = lower if math.isfinite(lower) else 0.0
        cdf = jax.vmap(lambda v: self.log_cdf(eta, v))
        flat = log_u.reshape(-1)

        def reach(sign):
            def far(carry):
                width = carry
                at = cdf(jnp.full_like(flat, start) + sign * width)
                return jnp.where((at < flat) if sign > 0 else (at > flat), 2.0 * width, width)

            return jax.lax.fori_loop(0, _BISECTIONS, lambda _, w: far(w), jnp.ones_like(flat))

        high = start + reach(1.0)
        low = jnp.full_like(flat, start - 1.0 if self.discrete else start)
        low = low if math.isfinite(lower) else start - reach(-1.0)

        def halve(_, ends):
            low, high = ends
            middle = 0.5 * (low + high)
            middle = jnp.floor(middle) if self.discrete else middle
            inside = middle > (lower - 1.0 if self.discrete else lower)
            safe = jnp.where(inside, middle, high)
            less = ~inside | (cdf(safe) < flat)
            return jnp.where(less, middle, low), jnp.where(less, high, middle)

        low, high = jax.lax.fori_loop(0, 2 * _BISECTIONS, halve, (low, high))
        return high.reshape(u.shape)

    def sample_sum(self, key, theta, n):
        """Sums of t over n records [S] without drawing the records, or None where that is not known."""
        return None

    def sample(self, key, theta, shape):
        """Records: values v of independent draws at the reported parameters (simulation only)."""
        u = jax.random.uniform(key, shape, theta.dtype, jnp.finfo(theta.dtype).tiny)
        return self.quantile(theta, u)


def positive_option(name: str, value: Any) -> float:
    """An option of a family that must be a finite number above 0.

    Raises:
        InputError: it is not.
    """
    wanted = f"{name} must be a finite number above 0"
    number = check_number(value, wanted)
    if not number > 0:
        raise InputError(f"{wanted}, got {shown(value)}")
    return number
