"""AdaSSP: Wang's (2018) private ridge regression from noisy sums, for J parties (Alparslan et al. 2023, section C.2),
corrected as in docs/formulas.md#adassp.

Each party j releases three numbers or blocks, each with a third of its epsilon and delta: the smallest eigenvalue of
S_j = X_j'X_j, S_j itself (entries i <= j, mirrored), and z_j = X_j'y_j. From the first comes its ridge:

    lam~_j = max(lam_min(S_j) + s_lam v - s_lam sqrt(log(6 / delta)), 0)          v ~ N(0, 1)
    lam_j  = max(s_S sqrt(d log(2 d^2 / rho)) - lam~_j, 0)
    theta  = (sum_j S^_j + sum_j lam_j I)^{-1} sum_j z^_j                          (Alparslan et al. 2023, eq. 15)

s_lam, s_S, s_z are the standard deviations of the three noises. Alparslan et al. 2023 print a v behind the last term of
lam~ that must go.

The noise here comes from a seedable generator in floating point: this is a simulation, for experiments, and protects
nobody. Parties are disjoint, so each one's (epsilon, delta) holds as long as a replaced record stays in its party
(docs/formulas.md#composition). Rows must be clipped to |x|_2 <= X, |y| <= Y, stated a priori
(`dpjax.privacy.clipping.clip_rows`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dpjax._base.checks import MOST_PARTIES, check_choice, check_number, check_size, shown
from dpjax.errors import InputError
from dpjax.kernels.psd import eigh_jacobi, solve_symmetric
from dpjax.privacy.gaussian import analytic_gaussian_sigma
from dpjax.privacy.row_norms import (
    cross_l2_sensitivity,
    matrix_l2_sensitivity,
    smallest_eigenvalue_sensitivity,
)

__all__ = ["AdaSSP", "AdaSSPNoise", "adassp_noise", "simulate_adassp"]

CONSTANTS = ("exact", "published")
RHO = 0.05
"""Probability with which the ridge may fail to make the noisy matrix positive definite; the value of Wang's code.
It has no bearing on privacy."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdaSSPNoise:
    """Noise of J parties and what follows from it, all [J] (`adassp_noise`).

    Args:
        eigenvalue: standard deviation s_lam of the noise on the smallest eigenvalue.
        matrix: s_S, of each entry i <= j of S.
        cross: s_z, of each entry of z.
        shift: s_lam sqrt(log(6 / delta)), taken off the noisy eigenvalue so that it hardly ever lies above the true
        one. ridge: s_S sqrt(d log(2 d^2 / rho)), which the noise on S hardly ever exceeds.
    """

    eigenvalue: Any
    matrix: Any
    cross: Any
    shift: Any
    ridge: Any


class AdaSSP(NamedTuple):
    """theta `[d]`, and the ridge of each party `[J]`."""

    theta: Array
    ridge: Array


def adassp_noise(
    d: Any,
    X: Any,
    Y: Any,
    epsilon: Any,
    delta: Any,
    *,
    parties: Any = None,
    constants: str = "exact",
    rho: Any = RHO,
) -> AdaSSPNoise:
    """Noise of every party, computed on the host.

    Args:
        d: number of features, at least 1.
        X: bound on |x|_2, > 0: one number, or one for each party.
        Y: bound on |y|, likewise.
        epsilon: > 0, of a party's three releases together; one number or one for each party.
        delta: inside (0, 1), likewise (Alparslan et al. 2023 take one that depends on the party's number of records).
        parties: J; None: as many as the longest of the above (1 if all are numbers).
        constants: "exact": each release has the smallest standard deviation that gives (epsilon / 3, delta / 3) under
            replace-one: the analytic Gaussian mechanism at the sensitivities X^2, sqrt(2) X^2 (X^2 for d = 1) and 2 X
            Y. "published": sqrt(log(6 / delta)) / (epsilon / 3) times X^2, X^2 and X Y, as in Wang's paper and the code
            of Alparslan et al. 2023, for experiments that repeat their numbers. That is not (epsilon, delta)-DP: the
            sensitivities of S and z are the add-remove ones, and the formula itself spends 2.65 times its share of
            delta at (1, 1e-6), 11 times at (3, 1e-6) (docs/formulas.md#adassp).
        rho: inside (0, 1).

    Returns:
        float64 arrays [J].

    Raises:
        InputError: an argument outside its range; sequences of different lengths.
    """
    check_choice("constants", constants, CONSTANTS)
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise InputError(f"d must be an integer of at least 1, got {shown(d)}")
    failure = check_number(rho, "rho must lie inside (0, 1)")
    if not 0 < failure < 1:
        raise InputError(f"rho must lie inside (0, 1), got {rho!r}")
    columns = _by_party({"X": X, "Y": Y, "epsilon": epsilon, "delta": delta}, parties)
    rows = [_of_party(int(d), failure, constants, *party) for party in zip(*columns, strict=True)]
    return AdaSSPNoise(*np.array(rows, np.float64).T)


def simulate_adassp(
    key: Key[Array, ""], gram: Float[Array, "J d d"] | Any, cross: Float[Array, "J d"] | Any, noise: AdaSSPNoise
) -> AdaSSP:
    """One simulated run on exact sums; pure, to be mapped over keys with `jax.vmap`. It protects nobody.

    Args:
        key: typed key.
        gram: S_j = X_j'X_j of every party, symmetric.
        cross: z_j = X_j'y_j.
        noise: from `adassp_noise`, J parties.

    Returns:
        theta and the parties' ridges, of the dtype of `gram`. With probability up to rho or so the noisy matrix is not
        positive definite; theta then solves an indefinite system.
    """
    parties, d = cross.shape
    dtype = gram.dtype
    eigenvalue, matrix, vector, shift, ridge = (
        jnp.asarray(value, dtype) for value in (noise.eigenvalue, noise.matrix, noise.cross, noise.shift, noise.ridge)
    )
    keys = jax.random.split(key, 3)
    smallest = jax.vmap(eigh_jacobi)(gram)[0].min(1)
    noisy = smallest + eigenvalue * jax.random.normal(keys[0], (parties,), dtype) - shift
    lam = jnp.maximum(ridge - jnp.maximum(noisy, 0.0), 0.0)
    upper = jnp.triu(jax.random.normal(keys[1], (parties, d, d), dtype))
    mirrored = upper + jnp.swapaxes(jnp.triu(upper, 1), 1, 2)  # averaging with the transpose would halve the variance
    total = (gram + matrix[:, None, None] * mirrored).sum(0) + lam.sum() * jnp.eye(d, dtype=dtype)
    right = (cross + vector[:, None] * jax.random.normal(keys[2], (parties, d), dtype)).sum(0)
    return AdaSSP(solve_symmetric(total, right), lam)


def _of_party(d: int, rho: float, constants: str, X: Any, Y: Any, epsilon: Any, delta: Any) -> tuple[float, ...]:
    """The fields of `AdaSSPNoise` for one party."""
    budget = check_number(epsilon, "epsilon must be a finite number > 0")
    share = check_number(delta, "delta must lie inside (0, 1)")
    if not budget > 0:
        raise InputError(f"epsilon must be a finite number > 0, got {epsilon!r}")
    if not 0 < share < 1:
        raise InputError(f"delta must lie inside (0, 1), got {delta!r}")
    third = math.nextafter(budget / 3, 0.0), math.nextafter(share / 3, 0.0)  # three of them are never above the whole
    logarithm = math.log(6 / share)
    sizes = [smallest_eigenvalue_sensitivity(X), matrix_l2_sensitivity(d, X), cross_l2_sensitivity(X, Y)]
    if constants == "exact":
        eigenvalue, matrix, cross = (analytic_gaussian_sigma(size, *third) for size in sizes)
    else:
        eigenvalue, matrix, cross = (
            math.sqrt(logarithm) / third[0] * size for size in (sizes[0], sizes[0], sizes[2] / 2)
        )
    ridge = matrix * math.sqrt(d * math.log(2 * d * d / rho))
    return eigenvalue, matrix, cross, eigenvalue * math.sqrt(logarithm), ridge


def _by_party(arguments: dict[str, Any], parties: Any) -> list[list[Any]]:
    """One list of J values for each argument."""
    listed = {name: list(value) for name, value in arguments.items() if np.ndim(value) == 1}
    if parties is None:
        parties = max((len(value) for value in listed.values()), default=1)
    check_size("parties", parties, most=MOST_PARTIES)
    for name, value in listed.items():
        if len(value) != parties:
            raise InputError(f"{name} must be one number or one for each of {parties} parties, got {len(value)}")
    return [listed.get(name, [value] * int(parties)) for name, value in arguments.items()]
