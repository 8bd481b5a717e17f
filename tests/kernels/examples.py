"""Every kernel with an example: one protocol test runs over this table, and it shows how each is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from normal_mean import SIZE, NormalMean, Observed, collapsed_step, gibbs_step

from dpjax.kernels import (
    augmentation,
    collapsed,
    gibbs,
    hmc,
    marginal,
    moments,
    nig,
    niw,
    products,
    psd,
    random,
    special,
    streams,
    suffstat,
    symmetric,
    truncated,
    wishart,
)
from dpjax.models.regression.laws import normal_moments


class Kernel(NamedTuple):
    """A single-chain function and a builder of its arguments, `example(seed, dtype) -> tuple of pytrees`."""

    function: Callable[..., Any]
    example: Callable[[int, Any], tuple]


class _Values:
    """Reproducible arguments: arrays of one dtype, and keys, from a seed."""

    def __init__(self, seed: int, dtype: Any):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.key = jax.random.key(seed)

    def array(self, x: Any) -> jax.Array:
        return jnp.asarray(np.asarray(x), self.dtype)

    def normal(self, *shape: int) -> jax.Array:
        return self.array(self.rng.normal(size=shape))

    def positive(self, *shape: int) -> jax.Array:
        return self.array(self.rng.gamma(2.0, size=shape) + 0.1)

    def uniform(self, *shape: int) -> jax.Array:
        return self.array(self.rng.uniform(size=shape))

    def definite(self, size: int, shift: float = 0.2) -> jax.Array:
        root = self.rng.normal(size=(size, size))
        return self.array(root @ root.T / size + shift * np.eye(size))

    def factor(self, size: int) -> jax.Array:
        return self.array(np.linalg.cholesky(np.asarray(self.definite(size), np.float64)))

    def moments(self, p: int) -> jax.Array:
        """Moment matrix per record of (1, x, y)."""
        m = np.concatenate([[1.0], self.rng.normal(size=p + 1) * 0.3])
        c = np.pad(np.asarray(self.definite(p + 1), np.float64), ((1, 0), (1, 0)))
        return self.array(c + np.outer(m, m))

    def nig(self, q: int) -> nig.NIG:
        return nig.NIG(self.normal(q), self.definite(q), self.positive() + 2.0, self.positive())

    def niw(self, p: int) -> niw.NIW:
        return niw.NIW(self.normal(p), self.positive(), self.definite(p), self.positive() + float(p))

    def fourth(self, p: int) -> tuple[jax.Array, jax.Array]:
        """eta and xi of (1, x) for normal x."""
        eta, xi = normal_moments(self.normal(p), self.definite(p))
        return self.array(eta), self.array(xi)


def _regression_records(v: _Values) -> tuple:
    full = v.moments(2)
    return full[:3, :3], full[:3, 3], full[3, 3], v.array(50.0)


def _suffstat(v: _Values, size: int, root: jax.Array) -> tuple:
    return v.normal(size), root, v.positive(size), v.normal(size)


def _released(v: _Values) -> tuple[NormalMean, Observed]:
    n, b = v.array(40.0), v.positive(SIZE)
    return NormalMean(v.positive()), Observed(v.normal(SIZE) / b, n / b, jnp.sqrt(n) / b, n)


def _collapsed(v: _Values) -> tuple:
    model, observed = _released(v)
    state = collapsed.init(v.normal(SIZE), v.positive(SIZE))
    return model, observed, model.parameters(observed), v.key, state


def _table() -> dict[str, tuple[Callable[..., Any], Callable[[_Values], tuple]]]:
    return {
        "random.gamma": (random.gamma, lambda v: (v.key, v.positive(3))),
        "random.gamma_from": (
            random.gamma_from,
            lambda v: (v.key, v.positive(3), v.normal(4, 3), v.uniform(5, 3)),
        ),
        "random.chi_square": (random.chi_square, lambda v: (v.key, v.positive(3))),
        "augmentation.laplace_scales": (augmentation.laplace_scales, lambda v: (v.key, v.normal(5))),
        "augmentation.laplace_scales_from": (
            augmentation.laplace_scales_from,
            lambda v: (v.normal(5), v.normal(5), v.uniform(5)),
        ),
        "nig.update": (nig.update, lambda v: (v.nig(3), *_regression_records(v))),
        "nig.update_draw_from": (
            nig.update_draw_from,
            lambda v: (v.nig(3), *_regression_records(v), v.positive(), v.normal(3)),
        ),
        "niw.update": (
            niw.update,
            lambda v: (v.niw(2), *(lambda m: (m[0, 1:], m[1:, 1:]))(v.moments(1)), v.array(50.0)),
        ),
        "niw.draw_from": (niw.draw_from, lambda v: (v.niw(3), v.positive(3), v.normal(6))),
        "niw.degrees_of_freedom": (niw.degrees_of_freedom, lambda v: (v.niw(3),)),
        "psd.eigh_jacobi": (psd.eigh_jacobi, lambda v: (v.definite(4),)),
        "psd.solve_symmetric": (psd.solve_symmetric, lambda v: (v.definite(3), v.normal(3))),
        "psd.square_root": (psd.square_root, lambda v: (v.definite(3),)),
        "psd.clip_eigenvalues": (psd.clip_eigenvalues, lambda v: (v.definite(3, -0.5), v.array(0.01))),
        "psd.clip_schur": (psd.clip_schur, lambda v: (v.moments(2) - 0.5, v.array(0.01))),
        "psd.semidefinite_factor": (psd.semidefinite_factor, lambda v: (v.definite(4, 0.0),)),
        "moments.regression_moments": (
            moments.regression_moments,
            lambda v: (v.normal(3), v.positive(), *v.fourth(2)),
        ),
        "suffstat.draw_statistic": (
            suffstat.draw_statistic,
            lambda v: (v.key, *_suffstat(v, 5, v.normal(5, 3))),
        ),
        "suffstat.draw_statistic_covariance": (
            suffstat.draw_statistic_covariance,
            lambda v: (v.key, *_suffstat(v, 5, v.definite(5))),
        ),
        "suffstat.draw_statistic_from": (
            suffstat.draw_statistic_from,
            lambda v: (v.normal(5), v.normal(5), v.definite(5), v.positive(5), v.normal(5), v.normal(5)),
        ),
        "suffstat.moment_matrix": (suffstat.moment_matrix, lambda v: (v.normal(9), v.array(1.0))),
        "suffstat.statistic_entries": (suffstat.statistic_entries, lambda v: (v.moments(2),)),
        "products.product_mean": (products.product_mean, lambda v: (v.normal(3), v.definite(3))),
        "products.product_covariance": (
            products.product_covariance,
            lambda v: (v.normal(3), v.definite(3)),
        ),
        "products.product_pullback": (
            products.product_pullback,
            lambda v: (v.normal(3), v.definite(3), v.normal(9), v.definite(9)),
        ),
        "products.product_deviation": (
            products.product_deviation,
            lambda v: (v.normal(3), v.factor(3), v.normal(9)),
        ),
        "marginal.gaussian_marginal": (
            marginal.gaussian_marginal,
            lambda v: (v.normal(5), v.definite(5), v.positive(5)),
        ),
        "special.log_sinhc": (special.log_sinhc, lambda v: (v.normal(3),)),
        "special.log1mexp": (special.log1mexp, lambda v: (v.positive(3),)),
        "special.log_difference": (special.log_difference, lambda v: (v.positive(3), -v.positive(3))),
        "special.log_gamma_term": (special.log_gamma_term, lambda v: (v.positive(3), v.positive(3))),
        "special.log_gamma_cdf": (special.log_gamma_cdf, lambda v: (v.positive(3), v.positive(3))),
        "special.log_gamma_survival": (special.log_gamma_survival, lambda v: (v.positive(3), v.positive(3))),
        "special.log_poisson_ratio": (
            special.log_poisson_ratio,
            lambda v: (v.positive(3), v.positive(3), v.positive(3)),
        ),
        "special.log_mills": (special.log_mills, lambda v: (v.positive(3),)),
        "special.normal_laplace_log_density": (
            special.normal_laplace_log_density,
            lambda v: (v.normal(3), v.positive(3)),
        ),
        "truncated.truncated_moments": (
            lambda eta: truncated.truncated_moments(lambda e: jnp.exp(e).sum(), eta),
            lambda v: (v.normal(2),),
        ),
        "truncated.log_sum": (
            lambda eta, shifts: truncated.log_sum(lambda e, t: (e.sum(), jnp.exp(e @ t), e, t), eta, shifts),
            lambda v: (v.normal(2), v.normal(2, 5)),
        ),
        "truncated.mixture_moments": (
            truncated.mixture_moments,
            lambda v: (v.uniform(3), v.normal(3, 2), v.normal(3, 2, 2)),
        ),
        "truncated.mixture_cross_covariance": (
            truncated.mixture_cross_covariance,
            lambda v: (v.uniform(3), v.normal(3, 2), v.normal(3, 2), v.normal(3, 2, 2)),
        ),
        "symmetric.sweep": (symmetric.sweep, lambda v: (v.definite(5), v.normal(5))),
        "symmetric.inverse_cholesky": (symmetric.inverse_cholesky, lambda v: (v.definite(5),)),
        "symmetric.cholesky": (symmetric.cholesky, lambda v: (v.definite(5),)),
        "symmetric.lower_inverse": (symmetric.lower_inverse, lambda v: (v.factor(4),)),
        "symmetric.matvec": (symmetric.matvec, lambda v: (v.normal(3, 4), v.normal(4))),
        "symmetric.matvec_transposed": (symmetric.matvec_transposed, lambda v: (v.normal(3, 4), v.normal(3))),
        "symmetric.matmul": (symmetric.matmul, lambda v: (v.normal(3, 4), v.normal(4, 2))),
        "symmetric.gram": (symmetric.gram, lambda v: (v.normal(3, 4), v.normal(3, 2))),
        "streams.normals_and_uniforms": (
            lambda key, like: streams.normals_and_uniforms(key, 4, 3, like.dtype),
            lambda v: (v.key, v.normal()),
        ),
        "wishart.log_density": (wishart.log_density, lambda v: (v.definite(3), v.definite(3), v.positive() + 3.0)),
        "wishart.inverse_log_density": (
            wishart.inverse_log_density,
            lambda v: (v.definite(3), v.definite(3), v.positive() + 3.0),
        ),
        "wishart.draw": (wishart.draw, lambda v: (v.key, v.definite(3), v.positive() + 3.0)),
        "wishart.draw_from": (wishart.draw_from, lambda v: (v.factor(3), v.positive(3), v.normal(3))),
        "wishart.inverse_draw": (wishart.inverse_draw, lambda v: (v.key, v.definite(3), v.positive() + 3.0)),
        "wishart.inverse_draw_from": (
            wishart.inverse_draw_from,
            lambda v: (v.definite(3), v.positive(3), v.normal(3)),
        ),
        "wishart.propose": (wishart.propose, lambda v: (v.key, v.factor(3), 20.0 + v.positive())),
        "wishart.propose_from": (
            wishart.propose_from,
            lambda v: (v.factor(3), v.array(9.0), 9.0 + v.positive(3), v.normal(3)),
        ),
        "wishart.acceptance": (wishart.acceptance, lambda v: (v.normal(),)),
        "wishart.adapt_alpha": (
            lambda alpha, rate, gain: wishart.adapt_alpha(alpha, rate, gain, 3),
            lambda v: (v.positive() + 3.0, v.uniform(), v.uniform()),
        ),
        "hmc.leapfrog": (
            lambda x, u, factor, step: hmc.leapfrog(lambda y: (-0.5 * (y * y).sum(), -y), x, u, factor, step, 3),
            lambda v: (v.normal(3), v.normal(3), v.factor(3), v.array(0.1)),
        ),
        "gibbs.step": (
            gibbs_step,
            lambda v: (*_released(v), v.key, gibbs.init(v.normal(SIZE), v.positive(SIZE))),
        ),
        "collapsed.step": (collapsed_step, _collapsed),
    }


def _kernel(function: Callable[..., Any], arguments: Callable[[_Values], tuple]) -> Kernel:
    return Kernel(function, lambda seed, dtype: arguments(_Values(seed, dtype)))


#: Name -> (function, example). Names are "module.function".
KERNELS: dict[str, Kernel] = {name: _kernel(*entry) for name, entry in _table().items()}
