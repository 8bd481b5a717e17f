"""Releases of several parties as lanes, and the moves that Alparslan et al.'s samplers share (`party_gibbs`,
`fixed_s`, `party_clt`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from dpjax.errors import InputError
from dpjax.kernels import party_steps as steps
from dpjax.kernels.batching import repeat_lanes, split_lanes
from dpjax.kernels.psd import clip_eigenvalues
from dpjax.kernels.random import gamma_from
from dpjax.kernels.streams import normals_and_uniforms_lanes
from dpjax.kernels.symmetric import diagonal_lanes, matvec_lanes, matvec_transposed_lanes
from dpjax.kernels.wishart import acceptance, degrees_of_freedom_lanes, inverse_draw_from

#: Parallel gamma proposals (`kernels.random.gamma_from` loops where all fail).
PROPOSALS = 2
#: Acceptance rates aimed at: of S (Alparslan et al. 2023, section 4.1), of sigma2 (best for one dimension).
S_TARGET, SIGMA2_TARGET = 0.2, 0.44

#: Smallest eigenvalue that S starts with: this share of the mean one, but no less than the noise's scale.
START_FLOOR = 1e-3


class Released(NamedTuple):
    """What J parties released, in units of the prior; lanes last, N = J B lanes, party j of lane b at j B + b."""

    gram: Float[Array, "P P N"]
    gram_scale: Float[Array, "P P N"]
    gram_seen: Float[Array, "P P N"]
    cross: Float[Array, "P N"]
    cross_scale: Float[Array, "P N"]
    cross_seen: Float[Array, "P N"]
    n: Float[Array, " N"]
    gram_noise: Any
    cross_noise: Any

    def gram_log_density(self, gram):
        """log p(S^ | S) of every party up to a constant `[N]`; entries on or above the diagonal count once
        (docs/formulas.md#party-triangle)."""
        noise = steps.gram_noise.lanes(gram, self.gram, self.gram_scale, self.gram_seen)
        return self.gram_noise.log_density_and_grad(noise)[0].sum((0, 1))

    def cross_variance(self):
        """Variances of the noise of z^, in squares of its scale `[p, N]`: where mixing variances start."""
        return jnp.broadcast_to(self.cross_noise.variance(self.cross.dtype), self.cross.shape)


def released_lanes(model: Any, observed: Any) -> Released:
    """The releases as matrices, from a `PartySums` through the origin."""
    model = model.given(observed)
    z, scale = model.common_lanes(observed)
    dtype, p = z.dtype, model.base.p
    lanes = lambda x: fold(jnp.moveaxis(x.astype(dtype), 0, -2))
    z, scale, noise = lanes(z), lanes(scale), model.released_lanes(observed)[2]
    seen = noise.seen.astype(dtype)
    count = p * (p + 1) // 2
    upper = np.triu(np.ones((p, p)))[..., None]
    square = lambda x: steps.symmetric_lanes(x[:count], p)
    gram_seen = square(seen) * jnp.asarray(upper, dtype)
    rest = slice(count, count + p)
    return Released(
        square(z * seen), square(scale), gram_seen, z[rest], scale[rest], seen[rest],
        model.records.astype(dtype).reshape(-1), noise.over(square), noise.over(lambda x: x[rest]),
    )  # fmt: skip


def fold(x: Float[Array, "*S J B"]) -> Float[Array, "*S N"]:
    """Parties and lanes as one axis."""
    return x.reshape(*x.shape[:-2], -1)


def total(x: Float[Array, "*S N"], parties: int) -> Float[Array, "*S B"]:
    """Sum over parties."""
    return split_lanes(x, parties).sum(-2)


def check_model(model: Any, name: str, parameters: int | None = None) -> None:
    """Refuse models that these samplers are not for.

    Raises:
        InputError: an intercept, or parameters that this sampler does not draw.
    """
    if model.intercept:
        raise InputError(f"method {name} is for regressions without an intercept")
    known = model.base.parameter_names[:parameters]
    if not set(model.parameter_names) <= set(known):
        raise InputError(f"method {name} draws {', '.join(known)} and nothing else; ask for those (`reports`)")


class Coefficients(NamedTuple):
    """theta `[p, B]`, sigma2 `[B]`, width of sigma2's random walk `[B]`, mixing variances of the noise `[p, N]`."""

    theta: Array
    sigma2: Array
    width: Array
    scales: Array


def draw_numbers(keys, sizes: list[tuple[int, int]], dtype) -> tuple[list[Array], list[Array]]:
    """Standard normals and uniforms for each of the uses, which take `(normals, uniforms)` of them."""
    many, few = ([size[k] for size in sizes] for k in (0, 1))
    normals, uniforms = normals_and_uniforms_lanes(keys, sum(many), sum(few), dtype)
    return cut(normals, *many), cut(uniforms, *few)


def prior_of(model: Any, dtype):
    base = model.base.astype(dtype)
    return base, 0.0 if base.independent else 1.0


def scaled_precision(base: Any, sigma2):
    """Precision of theta given sigma2."""
    return base.theta_precision if base.independent else base.theta_precision / sigma2[None, None]


def root_of(seen: Released, gram, sigma2, scales):
    """`cross_root` with w = `scales`, which are 1 for Gaussian noise."""
    return steps.cross_root.lanes(gram, sigma2, scales * seen.cross_scale**2, seen.cross_seen)


class ThetaLaw(NamedTuple):
    """theta given S, sigma2 and z^: mean `[p, B]`, R with R' R its covariance `[p, p, B]`."""

    mean: Array
    root: Array

    def draw(self, normals):
        return self.mean + matvec_transposed_lanes(self.root, normals)


def theta_law(base, seen: Released, gram, root, sigma2, parties: int) -> ThetaLaw:
    information, linear = steps.coefficient_information.lanes(root, gram, seen.cross, seen.cross_seen)
    precision = scaled_precision(base, sigma2)
    return ThetaLaw(
        *steps.coefficient_law.lanes(base.theta_mean, precision, total(information, parties), total(linear, parties))
    )


def log_marginal(base, seen: Released, gram, root, sigma2, law: ThetaLaw, parties: int):
    """log p(z^ of all parties | S, sigma2), theta integrated out, up to a constant `[B]`.

    The joint density at the mean of theta and the determinant of its law: large quadratic forms would cancel.
    """
    offset = law.mean - base.theta_mean
    prior = -0.5 * (offset * matvec_lanes(scaled_precision(base, sigma2), offset)).sum(0)
    at = steps.cross_log_density.lanes(root, gram, repeat_lanes(law.mean, parties), seen.cross, seen.cross_seen)
    return total(at, parties) + prior + jnp.log(diagonal_lanes(law.root)).sum(0)


def move_coefficients(
    model, seen: Released, gram, gram_factor, root, law: ThetaLaw, state: Coefficients, normals, uniforms, adapting
):
    """theta, sigma2 (random walk, refused at or below 0: docs/formulas.md#party-variance-walk) and w, given S; root,
    law: at the current state.

    normals, uniforms: as many as `coefficient_randoms`, `[.., B]`; adapting: gain of the width's adaptation, 0
    after warm-up.
    """
    p, parties, dtype = model.base.p, model.parties, gram.dtype
    base, tied = prior_of(model, dtype)
    theta = law.draw(normals[:p])
    proposed = state.sigma2 + state.width * normals[p]
    inside = proposed > 0
    proposed = jnp.where(inside, proposed, state.sigma2)
    there = root_of(seen, gram, repeat_lanes(proposed, parties), state.scales)

    def target(sigma2, root):
        likelihood = steps.cross_log_density.lanes(
            root, gram, repeat_lanes(theta, parties), seen.cross, seen.cross_seen
        )
        prior = steps.log_prior_variance.lanes(
            sigma2, base.sigma2_shape, base.sigma2_scale, theta, base.theta_mean, base.theta_precision,
            jnp.full_like(sigma2, tied),
        )  # fmt: skip
        return prior + total(likelihood, parties)

    rate = jnp.where(inside, acceptance(target(proposed, there) - target(state.sigma2, root)), 0.0)
    taken = uniforms[0] < rate
    sigma2 = jnp.where(taken, proposed, state.sigma2)
    width = state.width * jnp.exp(adapting * (rate - SIGMA2_TARGET))

    def augment(_):
        root_now = steps.accept_lanes(repeat_lanes(taken, parties), there, root)
        some, few = seen.cross_noise.randoms
        own = normals[p + 1 :].reshape((2 + some) * p, -1)
        noise = steps.cross_noise_draw.lanes(
            gram, gram_factor, root_now, repeat_lanes(theta, parties), repeat_lanes(sigma2, parties), state.scales,
            seen.cross_scale, seen.cross, seen.cross_seen, own[: 2 * p],
        )  # fmt: skip
        return seen.cross_noise.update_lanes(noise, own[2 * p :], uniforms[1:].reshape(few * p, -1))

    some_are = seen.cross_noise.augmented()
    if some_are is not False:
        scales = augment(None) if some_are is True else lax.cond(some_are, augment, lambda _: state.scales, None)
    else:
        scales = state.scales
    return Coefficients(theta, sigma2, width, scales)


def coefficient_randoms(seen: Released, p: int, parties: int) -> tuple[int, int]:
    """Standard normals and uniforms that `move_coefficients` takes."""
    some, few = seen.cross_noise.randoms
    return p + 1 + (2 + some) * p * parties, 1 + few * p * parties


def start_coefficients(model, seen: Released, gram, normals) -> Coefficients:
    """sigma2 around its prior's centre, theta from its law given S and that; normals `[p + 1, B]`."""
    p, parties, dtype = model.base.p, model.parties, gram.dtype
    base, _ = prior_of(model, dtype)
    center = base.sigma2_scale / base.sigma2_shape
    sigma2 = center * jnp.exp(0.5 * normals[p])
    scales = seen.cross_variance()
    root = root_of(seen, gram, repeat_lanes(sigma2, parties), scales)
    theta = theta_law(base, seen, gram, root, sigma2, parties).draw(normals[:p])
    return Coefficients(theta, sigma2, 0.5 * center, scales)


def bartlett_randoms(p: int) -> tuple[int, int]:
    """Standard normals and uniforms that `bartlett` takes for one matrix."""
    return PROPOSALS * p + p * (p - 1) // 2, (PROPOSALS + 1) * p


def bartlett(keys, dof, p: int, normals, uniforms, reverse: bool = False):
    """Chi-squares `[p, N]` and the normals below the diagonal of a Bartlett factor, for dof `[N]`.

    Args:
        keys: `[B]`, of the lanes, each for one use; N is a multiple of B.
        normals, uniforms: as many as `bartlett_randoms` for each matrix, `[.., B]`.
    """
    lanes = keys.shape[0]
    shapes = 0.5 * split_lanes(degrees_of_freedom_lanes(dof, p, reverse), dof.shape[0] // lanes)
    count = shapes.size // lanes
    gammas = gamma_from.lanes(
        keys, shapes, normals[: PROPOSALS * count].reshape(PROPOSALS, *shapes.shape),
        uniforms.reshape(PROPOSALS + 1, *shapes.shape),
    )  # fmt: skip
    return 2.0 * fold(gammas), normals[PROPOSALS * count :].reshape(p * (p - 1) // 2, dof.shape[0])


def other_keys(keys, number: int):
    """Keys for the rare retries of the gamma draws, of one place in an iteration."""
    return jax.vmap(lambda key: jax.random.fold_in(key, np.uint32(0xFFFF0000 + number)))(keys)


def draw_covariance(model, grams, n, keys, normals, uniforms):
    """Sigma_x | S_1..S_J ~ InvWishart(psi + sum S_j, nu + n) (Alparslan et al. 2023, eq 11): an
    `InverseWishartDraw`."""
    p, dtype = model.base.p, grams.dtype
    numbers = bartlett(keys, model.base.nu.astype(dtype) + n, p, normals, uniforms, reverse=True)
    return inverse_draw_from.lanes(model.base.psi.astype(dtype) + grams, *numbers)


def cut(x, *sizes: int):
    return jnp.split(x, np.cumsum(sizes[:-1]).astype(np.int32))


def report(model, observed, coefficients, covariance=None):
    parts = [coefficients.theta, coefficients.sigma2[None]]
    if covariance is not None:
        row, column = (x.astype(np.int32) for x in np.tril_indices(model.base.p))
        parts.append(covariance[row, column])
    return model.select_lanes(jnp.concatenate(parts).astype(observed.root_n_over_b.dtype))


def check_burn_in(burn_in: int) -> None:
    if burn_in < 0:
        raise InputError(f"burn_in must be at least 0; got {burn_in}")


def warm_up_gain(index, burn_in: int, dtype):
    """Gain of the proposals' adaptation; 0 after warm-up."""
    return jnp.where(index < burn_in, steps.robbins_monro(index, dtype), jnp.zeros((), dtype))


def start_gram(seen: Released, base):
    """The released S, drawn towards n psi / nu where the noise drowns it, and made positive definite `[p, p, N]`."""
    p, parties = seen.gram.shape[0], seen.n.shape[0] // base.nu.shape[0]
    center = repeat_lanes(base.psi / base.nu[None, None], parties) * seen.n[None, None]
    size = jnp.trace(center) / p
    spread = size * size * (2.0 / repeat_lanes(base.nu, parties) + 2.0 / seen.n)
    known = seen.gram_seen + jnp.swapaxes(seen.gram_seen, 0, 1) > 0
    weight = jnp.where(known, spread[None, None] / (spread[None, None] + seen.gram_scale**2), 0.0)
    gram = center + weight * (seen.gram - center)
    return clip_eigenvalues.lanes(gram, jnp.maximum(START_FLOOR * jnp.abs(jnp.trace(gram)) / p, 0.1 * size))
