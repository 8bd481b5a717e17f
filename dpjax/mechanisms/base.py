"""What a noise mechanism is, for the release (no JAX) and for the analysis (JAX, loaded when used).

A mechanism adds independent noise of one law to every released sum: z = s + e, e of scale b. A new one gives the class
attributes, `scale`, `tail` and the methods of the second half that its methods of inference need; with `draw` there can
be releases with it, without it only the analysis of what others released. One `register` line in
`dpjax/mechanisms/__init__.py` makes it known: release files, calibration studies, samplers and the command line follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpjax._base.checks import LARGEST_RELEASED, check_number
from dpjax.errors import InputError

#: Smallest scale of a release: below, quotients of sensitivity and scale are no longer rounded to 53 bits.
SMALLEST_SCALE = 2.0**-1000
#: Relative slack where a stated guarantee is judged; files written by hand round their numbers.
SLACK = 1e-9


@dataclass(frozen=True)
class PrivacyStatement:
    """What a mechanism promises, in OpenDP's terms: inputs at distance d_in give outputs at distance at most
    `privacy_map` of d_in. The adjacency of records enters through the sensitivity of the statistic."""

    input_domain: str
    input_metric: str
    output_measure: str
    privacy_map: str
    norm: str
    adjacency: tuple[str, ...]
    reference: str


@dataclass(frozen=True)
class Mechanism:
    """Base class. Instances are hashable, as samplers hold them in their settings; they hold no data.

    Class attributes:
        kind: name in files and on the command line.
        norm: of the sensitivity, "l1" or "l2".
        formula: what the scale must be at least, in words, for messages.
        needs_delta: whether the guarantee has a delta.
        integer: whether noise, and the sums that it is for, are whole numbers.
        released: whether `draw` is there, so that `dpjax.release` offers the mechanism.
        statement: what is promised, where that is written down.
        variance: of the noise, in squares of its scale.
        mixing: the law of w where e | w ~ N(0, w), in squares of the scale, and what follows from it: "point" (w is 1),
            "exponential" (of rate 1/2, the Laplace law), "other"; None: the noise is not used as such a mixture.
        randoms: standard normals and uniforms per entry that `update_lanes` takes.
    """

    kind: ClassVar[str]
    norm: ClassVar[str]
    formula: ClassVar[str]
    needs_delta: ClassVar[bool] = False
    integer: ClassVar[bool] = False
    released: ClassVar[bool] = False
    statement: ClassVar[PrivacyStatement | None] = None
    variance: ClassVar[float]
    mixing: ClassVar[str | None] = None
    randoms: ClassVar[tuple[int, int]] = (1, 1)

    # ---- the owner's half: no JAX ----------------------------------------------------------------------------
    def scale(self, sensitivity: float, epsilon: float, delta: float | None = None) -> float:
        """Scale that spends (epsilon, delta) on a statistic of this sensitivity, in the mechanism's norm.

        Raises:
            InputError: a delta where there is none, or none where one is needed.
        """
        raise NotImplementedError

    def spent(self, scale: float, sensitivity: float, delta: float = 0.0) -> float:
        """The privacy map: epsilon of noise of this scale on a statistic of this sensitivity."""
        raise NotImplementedError

    def tail(self, scales: float) -> float:
        """Upper bound on the probability that the noise of one entry is `scales` or more, in units of its scale."""
        raise NotImplementedError

    def draw(
        self, values: np.ndarray, sensitivity: float, epsilon: float, delta: float = 0.0
    ) -> tuple[np.ndarray, float, float]:
        """Noise of a real release, from the operating system's randomness; there is no seed.

        Args:
            values: [D] finite numbers, D public.
            sensitivity: of `values` in the mechanism's norm, finite, > 0.
            epsilon, delta: the budget.

        Returns:
            noised values [D]; scale; epsilon spent.

        Raises:
            InputError: there are no releases with this noise, or what the mechanism cannot do. The message holds no
                value.
        """
        raise InputError(f"{self.kind} noise is for analysis: there is no release with it")

    def release_scale(self, sensitivity: float, epsilon: float, delta: float = 0.0) -> float:
        """Scale of a release before what draws the noise rounds it.

        Raises:
            InputError: it is beyond the range of a float.
        """
        scale = self.scale(sensitivity, epsilon, delta)
        # with room above, or it would depend on the draw and on the table whether a noised sum is a float
        if not SMALLEST_SCALE <= scale <= LARGEST_RELEASED:
            raise InputError(f"epsilon = {epsilon!r} asks for noise beyond the range of a float")
        return scale

    def holds(self, scale: float, sensitivity: float, epsilon: float, delta: float) -> bool:
        """Whether noise of this scale has the guarantee, to rounding; a delta > 0 that it does not need is not judged.

        The slack never turns an invalid number into a valid one: all numbers are finite and > 0.
        """
        return delta > 0 or scale * (1 + SLACK) >= self.scale(sensitivity, epsilon)

    def sum_tail(self, scales: float, entries: int) -> float:
        """Upper bound on the probability that the noise of all entries adds up to `scales` > 0 or more."""
        return min(1.0, entries * self.tail(scales / entries))

    def no_delta(self, delta: Any) -> None:
        """Refuse a delta above 0 where there is none.

        Raises:
            InputError: there is one.
        """
        if delta:
            raise InputError(f"delta is for gaussian noise; {self.kind} noise has none, got {delta!r}")

    # ---- the analyst's half: JAX -----------------------------------------------------------------------------
    def simulate(self, key: Any, scale: Any, shape: tuple[int, ...] = (), dtype: Any = None) -> Any:
        """Draw noise for a simulation; it protects nobody.

        Args:
            key: typed key.
            scale: b [D], > 0, in the units of the statistic (leading axes allowed under `vmap`).
            shape: leading axes of independent draws.
            dtype: of the result; that of `scale` if None.

        Returns:
            z - s, [*shape, D], in the units of the statistic.
        """
        raise NotImplementedError

    def sample(self, rng: Any, scale: Any, shape: tuple[int, ...]) -> np.ndarray:
        """As `simulate`, on the host by a NumPy generator: noise [*shape] of a scale that broadcasts to it."""
        from dpjax.mechanisms._jax import jax

        scale = np.broadcast_to(np.asarray(scale, np.float32), shape)
        return np.asarray(self.simulate(jax.random.key(int(rng.integers(2**31))), scale), np.float64)

    def log_density_and_grad(self, e: Any) -> tuple[Any, Any]:
        """Log density of noise e, in units of its scale, up to a constant, and its derivative; entry by entry."""
        raise NotImplementedError

    def update_lanes(self, residual: Any, normals: Any, uniforms: Any) -> Any:
        """Draw the mixing variances w | e [D, B], in squares of the scale.

        Args:
            residual: noise e in units of its scale [D, B].
            normals, uniforms: [a D, B] and [b D, B], (a, b) = `randoms`.
        """
        raise NotImplementedError

    def distribution(self, loc: Any, scale: Any) -> Any:
        """The law of loc + noise as a NumPyro distribution.

        Raises:
            InputError: it is not written.
        """
        raise InputError(f"method 'individual' does not know {self.kind} noise")

    @property
    def density(self) -> Mechanism:
        """The mechanism whose density, as a function of the sums, this one has: what samplers take in its place."""
        return self

    @property
    def has_density(self) -> bool:
        """Whether the density of the noise is written (`log_density_and_grad`)."""
        return type(self).log_density_and_grad is not Mechanism.log_density_and_grad

    @property
    def augmented(self) -> bool:
        """Whether there are mixing variances to draw."""
        return self.mixing not in (None, "point")

    @property
    def exponential(self) -> bool:
        """Whether the noise has Laplace's density; if not it is Gaussian.

        Raises:
            InputError: it is neither.
        """
        if not self.closed_form:
            raise InputError(f"noise must be laplace or gaussian here, got {self.kind!r}")
        return self.mixing == "exponential"

    @property
    def closed_form(self) -> bool:
        """Whether the noise plus a normal variable has a density in closed form: Laplace's and the Gaussian law."""
        return self.mixing in ("point", "exponential")


def check_sensitivity(value: Any) -> float:
    """A sensitivity, a finite number > 0.

    Raises:
        InputError: it is not.
    """
    number = check_number(value, "sensitivity must be a finite number > 0")
    if not number > 0:
        raise InputError(f"sensitivity must be a finite number > 0, got {value!r}")
    return number


def chernoff_of_laplace(scales: float, entries: int) -> float:
    """Chernoff's bound on the probability that independent Laplace noise of so many entries adds up to `scales` > 0 or
    more; it holds for discrete noise too, whose moment generating function is smaller."""
    slope = (math.sqrt(entries**2 + scales**2) - entries) / scales
    return math.exp(-slope * scales - entries * math.log1p(-(slope**2)))
