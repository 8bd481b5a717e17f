"""Many steps of a sampler in one GPU kernel: state in registers, random numbers made where they are used.

XLA runs a step as a sequence of kernels that read and write the state of all chains; here one program holds a block
of chains through all its steps and touches memory for the draws it keeps only. Written with Pallas for its Triton
backend. On a CPU, `interpret=True` runs the same code, and `plain=True` runs it as ordinary JAX.

One model: the regression with one covariate and Laplace noise (D = 5), float32, with two transitions: that of
`Gibbs.step_lanes`, and that of `Collapsed.step_lanes` with parameters frozen after warm-up.
A chain's numbers come from its key, the step's number and the place in the step (`_whole_loop_random`), so that they
do not depend on `lanes`, on the number of chains, or on how steps are cut into calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, UInt32

from . import _whole_loop_collapsed as collapsed
from . import _whole_loop_gibbs as gibbs
from ._whole_loop_random import RETRY, draw, draw_in_loop, normal, uniform, words

#: Rows of the input arrays.
HYPER, OBSERVED, STATE, REPORTED = 11, 16, 10, 5


class LoopResult(NamedTuple):
    """What a call returns.

    state `[10, B]`; total and squares `[5, B]`: sums over the kept draws of reported parameter minus reference and of
    its square; draws `[S, 5, B]`, or None.
    """

    state: Array
    total: Array
    squares: Array
    draws: Any


def _load(ref: Any, count: int) -> list[Any]:
    """Rows of a reference by one load in a loop.

    Triton's coalescing pass walks the whole program once per load and store in the code: with one per row it takes
    half a minute, and with a handful a second.
    """

    def body(row: Any, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        x = ref[row, :]
        return tuple(jnp.where(row == k, x, old) for k, old in enumerate(rows))

    zero = jnp.zeros(ref.shape[1:], ref.dtype)
    return list(lax.fori_loop(0, count, body, (zero,) * count))


def _store(values: list[Any], put: Callable[[Any, Any], None]) -> None:
    """`put(row, value)` for every value by one store in a loop (see `_load`)."""

    def body(row: Any, _: Any) -> Any:
        chosen = values[0]
        for k, x in enumerate(values[1:], 1):
            chosen = jnp.where(row == k, x, chosen)
        put(row, chosen)
        return ()

    lax.fori_loop(0, len(values), body, ())


class Inputs(NamedTuple):
    """What a step of one block of lanes works with.

    hyper, observed: rows; keys: the two words; frozen: a row of the frozen parameters by its number; numbers:
    `numbers(counter, normals, uniforms)` gives a step's normals and uniforms.
    """

    hyper: list[Any]
    observed: list[Any]
    keys: tuple[Any, Any]
    frozen: Callable[[Any], Any]
    numbers: Callable[[Any, int, int], tuple[list[Any], list[Any]]]


def _gibbs_step(inputs: Inputs, rounds: int) -> Callable[..., Any]:
    """`step(number, state)` of one block of lanes, all lists of lane vectors; number is a uint32 scalar."""
    keys, observed = inputs.keys, inputs.observed
    h = gibbs.Hyper(*inputs.hyper)
    released = gibbs.Released(observed[:5], observed[5:10], observed[10:15], observed[15])

    def step(number: Any, state: list[Any]) -> list[Any]:
        counter = number + np.uint32(1)
        normals, uniforms = inputs.numbers(counter, gibbs.NORMALS, gibbs.UNIFORMS)

        def again(attempt: Any) -> tuple[list[Any], list[Any]]:
            more = words(keys, counter, 4, first=np.uint32(RETRY) + attempt * np.uint32(2), rounds=rounds)
            return [normal(word) for word in more[:2]], [uniform(word) for word in more[2:]]

        position, scales = gibbs.step(h, released, state[:5], state[5:], normals, uniforms, again)
        return [*position, *scales]

    return step


def _collapsed_step(inputs: Inputs, leapfrogs: int, jitter: float) -> Callable[..., Any]:
    """As `_gibbs_step`; the last row of the state adds up acceptance probabilities."""
    observed = inputs.observed
    h = gibbs.Hyper(*inputs.hyper)
    released = gibbs.Released(observed[:5], observed[5:10], observed[10:15], observed[15])

    def step(number: Any, state: list[Any]) -> list[Any]:
        normals, uniforms = inputs.numbers(number + np.uint32(1), collapsed.NORMALS, collapsed.UNIFORMS)
        position, scales, acceptance = collapsed.step(
            h, released, inputs.frozen, state[:5], state[5:10], normals, uniforms, leapfrogs, jitter
        )
        return [*position, *scales, state[10] + acceptance]

    return step


def _loop(
    step: Callable[..., Any],
    state: list[Any],
    reference: list[Any],
    first: Any,
    steps: int,
    thin: int,
    keep: Callable[[Any, list[Any]], None] | None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Run the steps; `keep(draw, reported)` is called for every kept draw."""

    def inner(k: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        number, *state = carry
        return (number + np.uint32(1), *step(number, list(state)))

    def outer(draw: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        number, state, total, squares = carry
        number, *state = lax.fori_loop(0, thin, inner, (number, *state)) if thin > 1 else inner(0, (number, *state))
        reported = gibbs.report(list(state[:5]))
        if keep is not None:
            keep(draw, reported)
        shifted = [x - c for x, c in zip(reported, reference, strict=True)]
        total = tuple(t + x for t, x in zip(total, shifted, strict=True))
        squares = tuple(t + x * x for t, x in zip(squares, shifted, strict=True))
        return number, tuple(state), total, squares

    zero = tuple(jnp.zeros_like(x) for x in reference)
    _, final, total, squares = lax.fori_loop(0, steps // thin, outer, (first, tuple(state), zero, zero))
    return list(final), list(total), list(squares)


def gibbs_regression_loop(
    hyper: Float[Array, "11 B"],
    observed: Float[Array, "16 B"],
    keys: UInt32[Array, "2 B"],
    state: Float[Array, "10 B"],
    reference: Float[Array, "5 B"],
    first: Any,
    steps: int,
    thin: int = 1,
    *,
    keep_draws: bool = True,
    interpret: bool = False,
    plain: bool = False,
    lanes: int = 128,
    num_warps: int = 4,
    rounds: int = 20,
    looped: bool = True,
) -> LoopResult:
    """Run `steps` Gibbs steps of every chain in one launch.

    Args:
        hyper: prior, one row per field of `_whole_loop_gibbs.Hyper`.
        observed: z / b (5 rows), n / b (5), sqrt(n) / b (5) and n (1).
        keys: the two words of each chain's key.
        state: phi (5 rows: mu, alpha, beta, log sigma^2, log of x's standard deviation) and w (5), float32.
        reference: what is taken from the reported parameters before they are summed (keeps float32 sums accurate).
        first: number of the first step (uint32), traced: a run cut into calls counts on.
        steps, thin: static; every thin-th step is kept.
        keep_draws: return the kept draws, or their sums alone.
        interpret: run the kernel in Pallas's interpreter (any backend).
        plain: no kernel: the same arithmetic on all lanes at once as ordinary JAX.
        lanes: chains per program, a power of two; num_warps: warps that share them.
        rounds: of threefry (20; 13 is cheaper and still passes Crush).
        looped: make normals in a loop (less code, quick to compile) or written out; the numbers are the same.

    Returns:
        `LoopResult`.

    Raises:
        ValueError: shapes or sizes that do not fit.
    """
    arrays = (hyper, observed, keys, state, reference)
    settings = _Launch(steps, thin, keep_draws, interpret, plain, lanes, num_warps, rounds, looped)
    return _run(lambda inputs: _gibbs_step(inputs, rounds), arrays, STATE, None, first, settings)


def collapsed_regression_loop(
    hyper: Float[Array, "11 B"],
    observed: Float[Array, "16 B"],
    frozen: Float[Array, "141 B"],
    keys: UInt32[Array, "2 B"],
    state: Float[Array, "11 B"],
    reference: Float[Array, "5 B"],
    first: Any,
    steps: int,
    thin: int = 1,
    *,
    leapfrogs: int = 4,
    jitter: float = 0.3,
    keep_draws: bool = True,
    interpret: bool = False,
    plain: bool = False,
    lanes: int = 128,
    num_warps: int = 4,
    rounds: int = 20,
    looped: bool = True,
) -> LoopResult:
    """Run `steps` iterations of the collapsed sampler of every chain in one launch, after its warm-up.

    Args:
        frozen: what warm-up learned (`pack_frozen`); read again in every iteration, since it does not fit registers.
        state: phi, w, and in row 10 a sum to which the acceptance probabilities are added.
        leapfrogs, jitter: settings of `Collapsed`.
        hyper, observed, keys, reference, first, steps, thin, keep_draws, interpret, plain, lanes, num_warps, rounds,
            looped: see `gibbs_regression_loop`.

    Raises:
        ValueError: shapes or sizes that do not fit.
    """
    arrays = (hyper, observed, keys, state, reference)
    settings = _Launch(steps, thin, keep_draws, interpret, plain, lanes, num_warps, rounds, looped)
    make = lambda inputs: _collapsed_step(inputs, leapfrogs, jitter)
    return _run(make, arrays, STATE + 1, frozen, first, settings)


class _Launch(NamedTuple):
    """Static settings of a call, see `gibbs_regression_loop`."""

    steps: int
    thin: int
    keep_draws: bool
    interpret: bool
    plain: bool
    lanes: int
    num_warps: int
    rounds: int
    looped: bool


def _run(make: Callable[..., Any], arrays: Any, rows: int, frozen: Any, first: Any, launch: _Launch) -> LoopResult:
    """Check, pad, and run the kernel whose step is `make(inputs)`."""
    steps, thin, lanes, keep_draws = launch.steps, launch.thin, launch.lanes, launch.keep_draws
    count = arrays[3].shape[-1]
    sizes = [HYPER, OBSERVED, 2, rows, REPORTED]
    if frozen is not None:
        arrays, sizes = (*arrays, frozen), [*sizes, collapsed.FROZEN]
    for array, size in zip(arrays, sizes, strict=True):
        if array.shape != (size, count):
            raise ValueError(f"expected shape {(size, count)}; got {array.shape}")
    if steps < 1 or thin < 1 or steps % thin:
        raise ValueError(f"steps must be a positive multiple of thin; got {steps} and {thin}")
    if lanes < 1 or lanes & (lanes - 1):
        raise ValueError(f"lanes must be a power of two; got {lanes}")
    start = jnp.asarray(first, jnp.uint32).reshape(1)
    if launch.plain:
        return _plain(make, arrays, start[0], launch)
    hyper, observed, keys, state, reference, *rest = arrays
    table = [keys, jnp.concatenate([hyper, observed, state, reference]), *rest]
    padding = -count % lanes
    table = [jnp.pad(x, ((0, 0), (0, padding)), mode="edge") for x in table]
    width, kept, dtype = count + padding, steps // thin, state.dtype
    cuts = (HYPER, HYPER + OBSERVED, HYPER + OBSERVED + rows)

    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plt

    def kernel(start_ref: Any, keys_ref: Any, table_ref: Any, *refs: Any) -> None:
        loaded = _load(table_ref, cuts[-1] + REPORTED)
        hyper, observed, state, reference = (loaded[a:b] for a, b in zip((0, *cuts), (*cuts, None), strict=True))
        keys = keys_ref[0, :], keys_ref[1, :]
        make_numbers = draw_in_loop if launch.looped else draw
        numbers = lambda counter, normals, uniforms: make_numbers(keys, counter, normals, uniforms, launch.rounds)
        step = make(Inputs(hyper, observed, keys, lambda k: refs[0][k, :], numbers))
        out = refs[len(rest) :]

        def keep(place: Any, reported: list[Any]) -> None:
            def put(row: Any, x: Any) -> None:
                out[1][place, row, :] = x

            _store(reported, put)

        parts = _loop(step, state, reference, start_ref[0], steps, thin, keep if keep_draws else None)

        def put(row: Any, x: Any) -> None:
            out[0][row, :] = x

        _store([x for part in parts for x in part], put)

    block = lambda size: pl.BlockSpec((size, lanes), lambda i: (0, i))
    size = rows + 2 * REPORTED
    shapes, specs = [jax.ShapeDtypeStruct((size, width), dtype)], [block(size)]
    if keep_draws:
        shapes.append(jax.ShapeDtypeStruct((kept, REPORTED, width), dtype))
        specs.append(pl.BlockSpec((kept, REPORTED, lanes), lambda i: (0, 0, i)))
    out = pl.pallas_call(
        kernel,
        grid=(width // lanes,),
        in_specs=[pl.BlockSpec((1,), lambda i: (0,)), *(block(x.shape[0]) for x in table)],
        out_specs=specs,
        out_shape=shapes,
        interpret=launch.interpret,
        compiler_params=plt.CompilerParams(num_warps=launch.num_warps, num_stages=1),
        name="whole_loop",
    )(start, *table)
    out = [x[..., :count] for x in out]
    state, total, squares = out[0][:rows], out[0][rows : rows + REPORTED], out[0][rows + REPORTED :]
    return LoopResult(state, total, squares, out[1] if keep_draws else None)


def _plain(make: Callable[..., Any], arrays: Any, first: Any, launch: _Launch) -> LoopResult:
    """`_run` without a kernel: all lanes at once."""
    hyper, observed, keys, state, reference = (list(x) for x in arrays[:5])
    words_of = (keys[0], keys[1])
    numbers = lambda counter, normals, uniforms: draw(words_of, counter, normals, uniforms, launch.rounds)
    step = make(Inputs(hyper, observed, words_of, lambda k: arrays[5][k], numbers))

    def one(carry: Any, _: Any) -> tuple[Any, Any]:
        number, state, total, squares = carry
        after, t, s = _loop(step, list(state), reference, number, launch.thin, launch.thin, None)
        total = tuple(a + b for a, b in zip(total, t, strict=True))
        squares = tuple(a + b for a, b in zip(squares, s, strict=True))
        kept = jnp.stack(gibbs.report(after[:5])) if launch.keep_draws else None
        return (number + np.uint32(launch.thin), tuple(after), total, squares), kept

    zero = tuple(jnp.zeros_like(x) for x in reference)
    carry, draws = lax.scan(one, (first, tuple(state), zero, zero), None, length=launch.steps // launch.thin)
    return LoopResult(jnp.stack(carry[1]), jnp.stack(carry[2]), jnp.stack(carry[3]), draws)


def pack(
    theta_mean: Float[Array, "2 B"],
    theta_precision: Float[Array, "2 2 B"],
    sigma2_shape: Float[Array, " B"],
    sigma2_scale: Float[Array, " B"],
    x_mean: Float[Array, "1 B"],
    kappa: Float[Array, " B"],
    psi: Float[Array, "1 1 B"],
    nu: Float[Array, " B"],
) -> Float[Array, "11 B"]:
    """Rows of `hyper` from a prior's fields (regression with one covariate, lanes last)."""
    precision = [theta_precision[0, 0], theta_precision[0, 1], theta_precision[1, 1]]
    rest = [sigma2_shape, sigma2_scale, x_mean[0], kappa, psi[0, 0], nu]
    return jnp.stack([theta_mean[0], theta_mean[1], *precision, *rest])


def pack_frozen(
    step_size: Float[Array, " B"],
    prior_precision: Float[Array, "5 5 B"],
    covariance: Float[Array, "5 5 B"],
    jacobian: Float[Array, "5 5 B"],
    curvature: Float[Array, "5 5 5 B"],
) -> Float[Array, "141 B"]:
    """Rows of `frozen` from the fields of `CollapsedParameters`.

    The step size; for each statistic its rows of the covariance and of the Jacobian; lower triangles of the prior's
    precision and of each statistic's curvature.
    """
    i, j = np.tril_indices(5)
    rows = jnp.concatenate([covariance, jacobian], axis=1).reshape(50, -1)
    return jnp.concatenate([step_size[None], rows, prior_precision[i, j], curvature[:, i, j].reshape(75, -1)])
