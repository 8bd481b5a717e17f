"""The transition of the papers' Gibbs sampler, corrected, once: the engine, `as_blackjax` and tests run this
(Bernstein and Sheldon 2019, Algorithm 1 with Gibbs-SS-Update; Bernstein 2020, Algorithms 2, 3 and 7;
docs/formulas.md#gibbs-order, #joint-parts, #distinct-entries, #consistent-sums, #normal-inverse-wishart,
#laplace-mixture).

State: phi (unconstrained parameters) and w (noise variances in units of b^2). One step draws
 1. e = z - s, and with it s, from s | phi, w, z, the normal law of the exact statistic (Matheron's rule);
 2. the whole statistic, where records were clamped or redacted, given the released one;
 3. phi from the conjugate posterior given the whole, moved to what a table can produce;
 4. w | e, with that same s.
The conjugate draw belongs to the exact law of the statistic, s to the normal one. Models that know the ratio
(`metropolis`) accept or refuse the draw by it, so that the chain leaves the normal model's posterior invariant also at
10 records; the papers' sampler takes it always, which is right as n grows.

`model` is any object with `metropolis`, `truncated`, `complete_randoms`, `conjugate_randoms` and the lane methods
`residual_lanes(phi, observed)`, `deviation_lanes(phi, normals)`, `complete_lanes(phi, s, n, normals, independent)`,
`valid_lanes(whole)` and `conjugate_lanes(whole, n, keys, normals, uniforms)`, statistics being per record; with
`metropolis` also `log_weight_lanes(phi, s, whole, valid, n)`, and for `literal` `moments_lanes(phi)`. `observed` has z,
n_over_b and root_n_over_b in units of b, and n, lanes last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from .batching import batch_last
from .streams import normals_and_uniforms_lanes
from .suffstat import noise_draw_lanes
from .symmetric import cholesky, matvec_lanes


class State(NamedTuple):
    """One chain: unconstrained parameters `[P]` and noise variances in units of b^2 `[D]`."""

    position: Float[Array, "P *B"]
    scales: Float[Array, "D *B"]


class Info(NamedTuple):
    """Whether the drawn statistic had to be projected, and the acceptance probability of the conjugate draw."""

    projected: Bool[Array, " *B"]
    acceptance: Float[Array, " *B"]


def init(position: Float[Array, "P *B"], scales: Float[Array, "D *B"]) -> State:
    """The state of a chain at a position, with noise variances in units of b^2."""
    return State(position, scales)


def step_lanes(
    model: Any,
    observed: Any,
    keys: Key[Array, " B"],
    state: State,
    *,
    update: Callable[..., Any],
    randoms: tuple[int, int] = (1, 1),
    project: bool = True,
    metropolis: bool = True,
    independent: bool = False,
    literal: bool = False,
    always: Any = False,
) -> tuple[State, Info]:
    """One transition: statistic, whole statistic, phi, w.

    Args:
        update: (e, normals, uniforms) -> w, a draw of the noise's variances given the noise; where they are known, a
            function that returns them.
        randoms: how many normals and uniforms per entry `update` takes.
        project: move s to what a table can produce (docs/formulas.md#consistent-sums, #valid-sums: needed at small n).
        metropolis: accept the conjugate draw by the ratio, for models that know it.
        independent: complete the statistic as if regions were independent.
        literal: the thesis's Algorithm 2 as printed, whose line 10 draws the statistic behind w anew, without looking
            at z (both wrong, kept for comparison: docs/formulas.md#gibbs-order, #joint-parts).
        always: take the conjugate draw (traced, one for all lanes or one each): on the way in, where the ratio is
            hopeless.
    """
    size, work = state.scales.shape[0], state.scales.dtype
    some_normals, some_uniforms = model.conjugate_randoms
    rest = model.complete_randoms
    again = size if literal else 0
    metropolis = model.metropolis and metropolis
    a, b = randoms
    normals, uniforms = normals_and_uniforms_lanes(
        keys, (2 + a) * size + rest + again + some_normals, b * size + some_uniforms + metropolis, work
    )
    cut = np.cumsum([2 * size, a * size, rest, again])
    for_noise, for_scales, for_rest, for_again, for_phi = jnp.split(normals, cut.astype(np.int32))
    n, over_b = observed.n.astype(work), observed.n_over_b.astype(work)
    noise = noise_draw_lanes(model, observed, state.position, state.scales, for_noise)
    drawn = ((observed.z - noise.astype(observed.z.dtype)) / observed.n_over_b).astype(work)
    here = state.position.astype(work)
    whole = model.complete_lanes(here, drawn, n, for_rest, independent or literal)
    valid = model.valid_lanes(whole) if project else whole
    position = model.conjugate_lanes(valid, n, keys, for_phi, uniforms[b * size : b * size + some_uniforms])
    acceptance = jnp.ones_like(n)
    if metropolis:
        there = model.log_weight_lanes(position, drawn, whole, valid, n)
        log_ratio = there - model.log_weight_lanes(here, drawn, whole, valid, n)
        acceptance = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        position = jnp.where(((uniforms[-1] < acceptance) | always)[None], position, here)
    elif not model.truncated:  # w from the same projected s (docs/formulas.md#consistent-sums)
        noise = noise - over_b * (valid - drawn)
    if literal:
        mean, covariance = model.moments_lanes(position)
        anew = mean + matvec_lanes(cholesky.lanes(covariance), for_again) / jnp.sqrt(n)[None]
        noise = (observed.z - observed.n_over_b * anew.astype(observed.z.dtype)).astype(work)
    scales = update(noise, for_scales, uniforms[: b * size])
    usable = jnp.ones(n.shape, bool)
    if metropolis:
        # a record's moments at parameters far out may not be computable: refuse such a move, for good
        usable = jnp.isfinite(position).all(0) & jnp.isfinite(scales).all(0)
        usable = usable & jnp.isfinite(model.residual_lanes(position.astype(observed.z.dtype), observed)[1]).all((0, 1))
        position, scales = jnp.where(usable, position, here), jnp.where(usable, scales, state.scales)
    info = Info((valid != whole).any(0), jnp.where(usable, acceptance, 0.0))
    return State(position.astype(observed.z.dtype), scales), info


def step(
    model: Any, observed: Any, key: Key[Array, ""], state: State, always: Any = False, **settings: Any
) -> tuple[State, Info]:
    """`step_lanes` for one chain: a model, statistics, a key and a state without the lane axis, and its settings.

    Use it under `jax.jit`, `lax.scan` and `jax.vmap`, which runs the lane code once for all chains. Settings must be
    hashable; give the same function as `update` every time, or each call is compiled anew.
    """
    return _single(tuple(sorted(settings.items())))(model, observed, key, state, always)


@lru_cache
def _single(settings: tuple[tuple[str, Any], ...]) -> Any:
    def lanes(model, observed, keys, state, always):
        return step_lanes(model, observed, keys, state, always=always, **dict(settings))

    return batch_last(lanes)
