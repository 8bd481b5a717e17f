"""Random numbers for whole-loop kernels: threefry2x32 written out on lane vectors, one counter per pair of words.

The words of a chain come from that chain's key, the step's number and the word's place in the step, and from nothing
else: they do not depend on how chains are cut into programs.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .streams import threefry2x32

#: Pairs of words from this counter on serve proposals after the first ones of a step have all been rejected.
RETRY = 1 << 20
#: Giles (2012), erfinv in single precision: for w < 5 in w - 2.5 and beyond in sqrt(w) - 3, highest power first.
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 2.1858087e-04,
    -1.25372503e-03, -4.17768164e-03, 2.46640727e-01, 1.50140941e00,
)  # fmt: skip
_TAIL = (
    -2.00214257e-04, 1.00950558e-04, 1.34934322e-03, -3.67342844e-03, 5.73950773e-03,
    -7.6224613e-03, 9.43887047e-03, 1.00167406e00, 2.83297682e00,
)  # fmt: skip


def words(keys: tuple[Any, Any], step: Any, count: int, first: Any = 0, rounds: int = 20) -> list[Any]:
    """`count` words per lane for one step.

    Args:
        keys: the two words of each lane's key `[B]`.
        step: the step's number plus one, uint32 scalar: zero is left to the key derivation of JAX (`fold_in`).
        count: how many words.
        first: counter of the first pair (a number or a uint32 scalar).
    """
    first = np.uint32(first) if isinstance(first, int) else first
    out: list[Any] = []
    for pair in range(-(-count // 2)):
        place = jnp.zeros_like(keys[0]) + (first + np.uint32(pair))
        out.extend(threefry2x32(keys[0], keys[1], jnp.zeros_like(place) + step, place, rounds))
    return out[:count]


def draw(keys: tuple[Any, Any], step: Any, normals: int, uniforms: int, rounds: int) -> tuple[list[Any], list[Any]]:
    """A step's standard normals and uniforms (arguments as in `words`)."""
    made = words(keys, step, normals + uniforms, rounds=rounds)
    return [normal(word) for word in made[:normals]], [uniform(word) for word in made[normals:]]


def draw_in_loop(
    keys: tuple[Any, Any], step: Any, normals: int, uniforms: int, rounds: int, group: int = 4
) -> tuple[list[Any], list[Any]]:
    """`draw` with the same numbers and less code: a loop makes `group` normals (even) at a time.

    Written out, random numbers are most of a step's instructions, and parts of the compiler of GPU kernels take time
    that grows as their square.
    """
    turns = normals // group
    whole = turns * group

    def body(turn: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        place, *slots = carry
        made = [normal(word) for word in words(keys, step, group, first=place, rounds=rounds)]
        slots = [jnp.where(turn == k // group, made[k % group], old) for k, old in enumerate(slots)]
        return (place + np.uint32(group // 2), *slots)

    zero = jnp.zeros(keys[0].shape, jnp.float32)
    _, *first = lax.fori_loop(0, turns, body, (np.uint32(0), *[zero] * whole))
    rest = words(keys, step, normals + uniforms - whole, first=whole // 2, rounds=rounds)
    left = normals - whole
    return [*first, *(normal(word) for word in rest[:left])], [uniform(word) for word in rest[left:]]


def uniform(word: Any) -> Any:
    """Uniform on (0, 1) from the upper 23 bits of a word, centred in its cell: never 0 or 1, symmetric about 1/2."""
    high = lax.shift_right_logical(word, jnp.full_like(word, 9)).astype(jnp.int32)
    return (high.astype(jnp.float32) + 0.5) * float(2.0**-23)


def normal(word: Any) -> Any:
    """Standard normal by inversion: sqrt(2) erfinv(2 u - 1) with Giles's polynomials."""
    u = uniform(word)
    w = -jnp.log(4.0 * u * (1.0 - u))
    central, tail = w - 2.5, jnp.sqrt(w) - 3.0
    near, far = jnp.full_like(w, _CENTRAL[0]), jnp.full_like(w, _TAIL[0])
    for c, t in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        near, far = near * central + c, far * tail + t
    return jnp.where(w < 5.0, near, far) * ((2.0 * u - 1.0) * float(np.sqrt(2.0)))
