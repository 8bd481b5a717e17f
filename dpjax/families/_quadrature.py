"""Families whose truncated moments are weighted sums over fixed points: quadrature, or the sum itself."""

from __future__ import annotations

from dpjax.families._jax import jax, jnp, truncated
from dpjax.families.base import Family


class SummedFamily(Family):
    """A family that gives `points` instead of relying on the difference of two CDFs.

    A difference of CDFs loses the moments in [low, high] where that is narrow: their covariance is the small rest of
    A'' and (log q)''. A sum of positive terms loses nothing, whatever the region.
    """

    def points(self, eta, low, high):
        """Points of a sum that stands for the probability of [low, high] at eta; it is never differentiated.

        Returns:
            `(center [], offsets [N], weights [N], log_scale [])`: P(low <= V <= high) = exp(log_scale) times the sum
            of the weights, which belong to the values center + offsets, all at or next to [low, high].
        """
        raise NotImplementedError

    def _log_sum(self, eta, low, high):
        """log P(low <= V <= high), with the derivatives in eta of `log_integral`: cumulants of t."""

        def points(eta, low, high):
            center, offsets, weights, log_scale = self.points(eta, low, high)
            shifts = jnp.stack([_difference(offsets, center, power) for power in self.powers])
            return log_scale, weights, self.statistic(center), shifts

        return truncated.log_sum(points, eta, low, high)

    def log_integral(self, eta, low, high):
        """See `Family.log_integral`; up to four derivatives in eta, none in the bounds."""
        return jax.lax.stop_gradient(self.log_partition(eta)) + self._log_sum(eta, low, high)

    def log_mass(self, eta, low, high):
        """See `Family.log_mass`; up to four derivatives in eta, none in the bounds."""
        partition = self.log_partition(eta)
        return self._log_sum(eta, low, high) - (partition - jax.lax.stop_gradient(partition))


def _difference(offset, center, power):
    """(center + offset)^power - center^power without cancellation."""
    v = center + offset
    return offset * sum(v**k * center ** (power - 1 - k) for k in range(power))
