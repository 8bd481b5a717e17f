"""What a sampler conditions on: released statistics, in units of their noise."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array, Float


class Observed(NamedTuple):
    """Released statistics in units of the noise scale b (per entry): what a sampler conditions on.

    z: `z / b` `[D]`; n_over_b: `n / b` `[D]`; root_n_over_b: `sqrt(n) / b` `[D]`; n: number of records `[]`.
    z, n_over_b and n have the dtype of positions, root_n_over_b that of the algebra (float32; they differ only for
    very large n, where z - n mu cancels).
    noise: law and presence of every entry (`dpjax.mechanisms.noise.Noise`, arrays `[D]`) where these differ; None: all
    entries are there, and the sampler knows the one law. facts: what else the model must know of the releases, a pytree
    of its own kind, or None (`Model.given`).
    """

    z: Float[Array, "D *B"]
    n_over_b: Float[Array, "D *B"]
    root_n_over_b: Float[Array, "D *B"]
    n: Float[Array, " *B"]
    noise: Any = None
    facts: Any = None
