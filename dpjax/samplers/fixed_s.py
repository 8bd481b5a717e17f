"""Alparslan et al.'s samplers that take the released sums of the features for exact: `fixed-s` and `fixed-s-fast`
(docs/formulas.md#fixed-s)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dpjax.engine.sampler import Draw
from dpjax.errors import InputError
from dpjax.kernels import psd
from dpjax.kernels.batching import repeat_lanes
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.samplers._party_parts import (
    Coefficients,
    check_burn_in,
    check_model,
    coefficient_randoms,
    move_coefficients,
    prior_of,
    released_lanes,
    report,
    root_of,
    start_coefficients,
    theta_law,
    warm_up_gain,
)


class FixedState(NamedTuple):
    """S of every party, its square root and, where sigma2 is fixed, K of `party_steps.cross_root`, `[p, p, N]`."""

    gram: Array
    root: Array
    coefficients: Coefficients


@dataclass(frozen=True)
class FixedS:
    """Algorithm 2 (`fixed-s`): theta and sigma2 given S_j = nearest positive semi-definite matrix of S^_j. Features
    may have any law; intervals are too short, since S^ is taken for exact (docs/formulas.md#fixed-s)."""

    burn_in: int = 500
    name: str = "fixed-s"

    def __post_init__(self):
        check_burn_in(self.burn_in)

    @property
    def warmup_iterations(self) -> int:
        return self.burn_in

    def init_lanes(self, model, observed, keys, chains: int) -> FixedState:
        check_model(model, self.name, model.base.p + 1)
        seen, p = released_lanes(model, observed), model.base.p
        normals, _ = normals_and_uniforms_lanes(keys, p + 1, 0, seen.cross.dtype)
        gram = psd.clip_eigenvalues.lanes(seen.gram, jnp.zeros_like(seen.n))
        return FixedState(gram, psd.square_root.lanes(gram), start_coefficients(model, seen, gram, normals))

    def step_lanes(self, model, observed, keys, state: FixedState, gain):
        """One iteration of Algorithm 2; gain: of the adaptation, 0 after warm-up."""
        seen, p, parties = released_lanes(model, observed), model.base.p, model.parties
        normals, uniforms = normals_and_uniforms_lanes(keys, *coefficient_randoms(seen, p, parties), seen.cross.dtype)
        old = state.coefficients
        root = root_of(seen, state.gram, repeat_lanes(old.sigma2, parties), old.scales)
        law = theta_law(prior_of(model, seen.cross.dtype)[0], seen, state.gram, root, old.sigma2, parties)
        new = move_coefficients(model, seen, state.gram, state.root, root, law, old, normals, uniforms, gain)
        moved = (new.sigma2 != old.sigma2).astype(new.sigma2.dtype)
        return state._replace(coefficients=new), moved

    def iterate_lanes(self, model, observed, carry: FixedState, keys, index, chains: int):
        carry, rate = self.step_lanes(model, observed, keys, carry, warm_up_gain(index, self.burn_in, carry.gram.dtype))
        parameters = report(model, observed, carry.coefficients)
        return carry, Draw(parameters, rate, jnp.zeros(rate.shape, bool))

    def finite_lanes(self, carry: FixedState):
        return jnp.isfinite(carry.coefficients.theta).all(0) & jnp.isfinite(carry.coefficients.sigma2)


@dataclass(frozen=True)
class FixedSFast:
    """Algorithm 3 (`fixed-s-fast`): independent draws of theta given S_j as in `FixedS` and a fixed sigma2.

    Settings (static): sigma2, in the units of the prior; None: (bound of y / 3)^2 = 1/9 with y scaled to [-1, 1]
    (docs/formulas.md#residual-variance-third: Alparslan et al. 2023 print the bound over 3, a standard deviation, for
    the variance).
    """

    sigma2: float | None = None
    name: str = "fixed-s-fast"

    def __post_init__(self):
        if self.sigma2 is not None and not (np.isfinite(self.sigma2) and self.sigma2 > 0):
            raise InputError(f"sigma2 must be positive and finite; got {self.sigma2}")

    @property
    def warmup_iterations(self) -> int:
        return 0

    def init_lanes(self, model, observed, keys, chains: int) -> FixedState:
        check_model(model, self.name, model.base.p)
        seen = released_lanes(model, observed)
        gram = psd.clip_eigenvalues.lanes(seen.gram, jnp.zeros_like(seen.n))
        lanes = observed.z.shape[-1]
        sigma2 = jnp.full((lanes,), 1.0 / 9.0 if self.sigma2 is None else self.sigma2, gram.dtype)
        scales = seen.cross_variance()
        theta = jnp.broadcast_to(model.base.theta_mean.astype(gram.dtype), (model.base.p, lanes))
        root = root_of(seen, gram, repeat_lanes(sigma2, model.parties), scales)
        return FixedState(gram, root, Coefficients(theta, sigma2, jnp.zeros_like(sigma2), scales))

    def iterate_lanes(self, model, observed, carry: FixedState, keys, index, chains: int):
        seen, dtype = released_lanes(model, observed), carry.gram.dtype
        base, old = prior_of(model, dtype)[0], carry.coefficients
        normals, _ = normals_and_uniforms_lanes(keys, model.base.p, 0, dtype)
        theta = theta_law(base, seen, carry.gram, carry.root, old.sigma2, model.parties).draw(normals)
        carry = carry._replace(coefficients=old._replace(theta=theta))
        one = jnp.ones_like(old.sigma2)
        return carry, Draw(report(model, observed, carry.coefficients), one, jnp.zeros(one.shape, bool))

    def finite_lanes(self, carry: FixedState):
        return jnp.isfinite(carry.coefficients.theta).all(0)
