"""A model of any exponential family, its statistic whole, clamped or redacted (Bernstein 2020, ch. 4;
docs/formulas.md#exponential-families).

What is released is the sum over records of c = t(v) where v lies in [low, high], and outside of it
- clamp: t(low) or t(high) (the record is winsorised): E c is monotone in a one-parameter family;
- redact: nothing (the thesis): E c is not monotone and the posterior may have two modes (docs/formulas.md#two-modes).
Given the parameters, the mean of c and the mean of t over n records are jointly normal with the moments of one record
(random-sum CLT): that is the one approximation. Moments inside [low, high] are derivatives of the truncated
log-partition by `jax.grad` and `jax.hessian` (Bernstein 2020, Lemma 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.engine.model import Observed, over_lanes
from dpjax.families import Family, SummedFamily
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.kernels.symmetric import cholesky, sweep
from dpjax.kernels.truncated import mixture_cross_covariance, mixture_moments, truncated_moments
from dpjax.models.families import lattice, simulation
from dpjax.models.families.landmarks import landmarks
from dpjax.models.families.prior_model import PriorModel
from dpjax.models.families.sums import summed_lanes
from dpjax.models.families.truncation import Joint, only_inside, regions, tail_means

#: Variance of the untruncated statistic given the released one, never taken smaller than this share of its own:
#: its exact size does not matter for the posterior (see `FamilyModel.log_weight`), a number that is all rounding does.
SMALLEST_REST = 1e-5
#: Counts are summed one by one up to this many.
MOST_COUNTS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FamilyModel(PriorModel):
    """Prior (a pytree), bounds of v as leaves `[]`; static: the family, the rule ("none", "clamp", "redact") and, for
    counts from 0 with few of them up to `high`, how many (0: not so), which are then summed one by one; starts: where
    even and odd chains start `[2, P]`, where that is known (`dpjax.samplers.basins`).
    """

    prior: Any
    low: Any
    high: Any
    family: Family = field(metadata={"static": True})
    rule: str = field(metadata={"static": True})
    counts: int = field(default=0, metadata={"static": True})
    starts: Any = None

    @property
    def kind(self) -> str:
        return self.family.kind

    @property
    def finite(self) -> tuple[float, float]:
        return self.prior.finite

    @property
    def truncated(self) -> bool:
        """Whether records outside of bounds enter otherwise than by t."""
        return self.rule != "none"

    @property
    def may_have_modes(self) -> bool:
        return self.rule == "redact"

    @property
    def statistic_dim(self) -> int:
        return len(self.family.powers)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.family.parameters

    # ---- prior --------------------------------------------------------------------------------------------------
    def prior_starts(self):
        """Two starts [2, P]: a redacted statistic can have come from small parameters or from large ones
        (docs/formulas.md#two-modes)."""
        if self.starts is not None:
            return self.starts
        center = self.prior_center()
        if not self.truncated:
            return jnp.stack([center, center])
        sd = 1.0 / jnp.sqrt(jnp.diagonal(self.prior_precision()))
        return jnp.stack([center - 2.0 * sd, center + 2.0 * sd])

    def natural(self, phi):
        """Natural parameters eta [S]."""
        return self.family.natural(self.prior.constrain(phi))

    def sum_summaries(self, per_record, noise):
        """Mean and variance where both sums are released."""
        if self.family.powers != (1, 2):
            return per_record
        return np.column_stack([per_record[:, 0], per_record[:, 1] - per_record[:, 0] ** 2])

    # ---- moments of one record ------------------------------------------------------------------------------------
    def _whole(self, eta):
        """Mean [S] and covariance [S, S] of t."""
        return truncated_moments(self.family.log_partition, eta)

    def moments(self, phi):
        eta = self.natural(phi)
        if not self.truncated:
            return self._whole(eta)
        masses, means, covariance = regions(self.astype(phi.dtype), eta)
        return mixture_moments(masses, means, only_inside(covariance))

    def joint(self, phi) -> Joint:
        """Joint moments of the released and the whole statistic of one record (docs/formulas.md#joint-parts)."""
        eta = self.natural(phi)
        whole_mean, whole_covariance = self._whole(eta)
        masses, means, covariance = regions(self, eta)
        inside = only_inside(covariance)
        released_mean, released_covariance = mixture_moments(masses, means, inside)
        tails = tail_means(self, eta, masses, means[1], whole_mean)
        cross = mixture_cross_covariance(masses, jnp.stack([tails[0], means[1], tails[1]]), means, inside)
        return Joint(released_mean, released_covariance, whole_mean, whole_covariance, cross)

    # ---- the same over lanes, where something is faster -----------------------------------------------------------
    @property
    def _summed(self) -> bool:
        """Whether the moments of c are a plain sum over points: one parameter, one statistic, few counts or nodes."""
        family = self.family
        return self.truncated and family.powers == (1,) and (self.counts > 0 or isinstance(family, SummedFamily))

    def moments_lanes(self, phi):
        if not self._summed:
            return super().moments_lanes(phi)
        mean, variance, _, _ = summed_lanes(self, phi)
        return mean[None], variance[None, None]

    def mean_jacobian_lanes(self, phi):
        return summed_lanes(self, phi)[2][None, None] if self._summed else super().mean_jacobian_lanes(phi)

    def log_density_and_grad_lanes(self, phi, w, observed: Observed):
        """As the base class; one parameter takes one forward derivative instead of a backward pass."""
        if self.dim != 1 or self.statistic_dim != 1:
            return super().log_density_and_grad_lanes(phi, w, observed)
        one = jnp.ones_like(phi)
        if self._summed:
            mean, variance, d_mean, d_variance = summed_lanes(self, phi)
        else:
            (mean, variance), (d_mean, d_variance) = jax.jvp(self.moments_lanes, (phi,), (one,))
            mean, variance, d_mean, d_variance = mean[0], variance[0, 0], d_mean[0], d_variance[0, 0]
        prior, d_prior = jax.jvp(self.log_prior_lanes, (phi,), (one,))
        root = observed.root_n_over_b
        residual = (observed.z[0] - observed.n_over_b[0] * mean).astype(root.dtype)
        covariance = variance.astype(root.dtype) * root[0] ** 2
        value, by_mean, by_covariance = gaussian_marginal.lanes(residual[None], covariance[None, None], w)
        gradient = by_mean[0] * observed.n_over_b[0].astype(root.dtype) * d_mean.astype(root.dtype)
        gradient = gradient + by_covariance[0, 0] * root[0] ** 2 * d_variance.astype(root.dtype)
        return value + prior.astype(root.dtype), (gradient + d_prior.astype(root.dtype))[None]

    def landmarks_lanes(self, observed: Observed):
        """Where the mean of an untruncated record is that of the release, or an end of the bounds, and one sd of a
        record there: the mean of a truncated one bends nowhere else, and nowhere faster."""
        return over_lanes(landmarks)(self, observed)

    # ---- exact laws of the sum ------------------------------------------------------------------------------------
    @property
    def sum_is_binomial(self) -> bool:
        return self.family.bernoulli

    def lattice_lengths(self, n):
        return lattice.lengths(self, n)

    def lattice_log_likelihood(self, phi, observed: Observed, length: int, laplace: bool):
        """log p(z | phi) with the exact law of the sum (`dpjax.models.families.lattice.log_likelihood`)."""
        return lattice.log_likelihood(self, phi, observed, length, laplace)

    def lattice_log_likelihood_lanes(self, phi, observed: Observed, length: int, laplace: bool):
        """`lattice_log_likelihood`, last axis over chains."""
        return over_lanes(lambda model, x, o: model.lattice_log_likelihood(x, o, length, laplace))(self, phi, observed)

    def released_statistic(self, v):
        """What records with values v contribute to the released sums: t(v), clamped or redacted."""
        if self.rule == "clamp":
            return self.family.statistic(jnp.clip(v, self.low, self.high))
        t = self.family.statistic(v)
        if self.rule == "none":
            return t
        return jnp.where(jnp.broadcast_to((v >= self.low) & (v <= self.high), t.shape), t, jnp.zeros_like(t))

    # ---- simulation -------------------------------------------------------------------------------------------------
    def simulate(self, key, phi, n):
        return simulation.simulate(self, key, phi, n)

    def simulate_clt(self, key, phi, n):
        return simulation.simulate_clt(self, key, phi, n)

    # ---- the conjugate half: what Gibbs samplers use ------------------------------------------------------------
    @property
    def complete_randoms(self) -> int:
        """Standard normals that `complete_lanes` takes."""
        return self.statistic_dim if self.truncated else 0

    def valid_lanes(self, mean_statistic):
        """Nearest mean of t that records could have: inside the support, mean of squares at least the square
        (docs/formulas.md#valid-sums)."""
        out: list[Any] = []
        powers = self.family.powers
        for entry, power in zip(mean_statistic, powers, strict=True):
            low, high = _range(self.family.support, power)
            entry = jnp.clip(entry, low, high)
            if power == 2 and 1 in powers:
                entry = jnp.maximum(entry, out[powers.index(1)] ** 2)
            out.append(entry)
        return jnp.stack(out)

    def conjugate_lanes(self, mean_statistic, n, keys, normals, uniforms):
        posterior = self.family.update(self.prior, mean_statistic * n[None], n)
        return posterior.draw_lanes(keys, normals, uniforms)

    def _given_released(self, phi, c, n, independent: bool):
        """Mean and factor of the whole mean statistic given the released one `c` [S], n records."""
        joint = self.joint(phi)
        if independent:  # the thesis: the regions' sums as if they were independent
            mean = joint.whole_mean + (c - joint.released_mean)
            rest = joint.whole_covariance + joint.released_covariance - joint.cross - joint.cross.T
        else:
            _, inverse, gain = sweep(joint.released_covariance, c - joint.released_mean)
            mean = joint.whole_mean + joint.cross @ gain
            rest = joint.whole_covariance - joint.cross @ inverse @ joint.cross.T
        floor = SMALLEST_REST * jnp.diagonal(joint.whole_covariance)
        rest = 0.5 * (rest + rest.T) + jnp.diag(jnp.maximum(floor - jnp.diagonal(rest), 0.0) + floor)
        return joint, mean, rest / n

    def complete(self, phi, c, n, normals, independent: bool = False):
        """Draw the whole mean statistic [S] given the released one `c` [S] (both per record) at phi."""
        _, mean, covariance = self._given_released(phi, c, n, independent)
        return mean + cholesky(covariance) @ normals

    def log_weight(self, phi, c, whole, valid, n):
        """log of normal model over conjugate proposal at phi, for Metropolis-Hastings; see `samplers.gibbs`.

        log N(c; released) + log N(whole | c) - n (eta . valid - A(eta)): the prior is in both and cancels. The law of
        the whole statistic given the released one may be any law, as long as it is the one that `whole` was drawn
        from: it integrates to 1 and leaves the posterior of phi alone.
        """
        eta = self.natural(phi)
        conjugate = n * ((eta * valid).sum() - self.family.log_partition(eta))
        if not self.truncated:
            mean, covariance = self._whole(eta)
            return _log_normal(c - mean, covariance / n) - conjugate
        joint, mean, covariance = self._given_released(phi, c, n, False)
        released = _log_normal(c - joint.released_mean, joint.released_covariance / n)
        return released + _log_normal(whole - mean, covariance) - conjugate

    def complete_lanes(self, phi, c, n, normals, independent: bool = False):
        if not self.truncated:
            return c
        return over_lanes(lambda model, *args: model.complete(*args, independent=independent))(self, phi, c, n, normals)

    def log_weight_lanes(self, phi, c, whole, valid, n):
        return over_lanes(lambda model, *args: model.log_weight(*args))(self, phi, c, whole, valid, n)


def _log_normal(residual, covariance):
    log_det, _, gain = sweep(covariance, residual)
    return -0.5 * (log_det + (residual * gain).sum())


def _range(support: tuple[float, float], power: int) -> tuple[float, float]:
    """Range of v^power over the support."""
    with np.errstate(over="ignore"):
        ends = sorted(float(np.float64(end) ** power) for end in support)
    return (0.0 if power % 2 == 0 and support[0] <= 0 <= support[1] else ends[0]), ends[1]
