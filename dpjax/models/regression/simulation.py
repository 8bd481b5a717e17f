"""Draws from the regression model: parameters from the prior, statistics given parameters, clipped records."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dpjax.kernels.order import below_diagonal, pairs
from dpjax.kernels.symmetric import cholesky, inverse_cholesky, lower_inverse


def _coefficients(model, k_s2, k_theta):
    dtype = model.theta_mean.dtype
    s2 = model.sigma2_scale / random.gamma(k_s2, model.sigma2_shape, dtype=dtype)
    normals = random.normal(k_theta, model.theta_mean.shape, dtype)
    return model.theta_mean + jnp.sqrt(s2) * (inverse_cholesky(model.theta_precision).T @ normals), s2


def sample_theta(model, key):
    """(theta `[p + 1]`, sigma^2 `[]`) from the normal-inverse-gamma prior."""
    return _coefficients(model, *random.split(key, 2))


def inverse_wishart_factor(key, psi, nu):
    """Lower Cholesky factor `[p, p]` of a draw from InvWishart(psi, nu)."""
    return _inverse_wishart_factor(*random.split(key), psi, nu)


def _inverse_wishart_factor(k_chi, k_tri, psi, nu):
    # Bartlett: T T' ~ Wishart(I, nu), Sigma = R T^{-T} T^{-1} R' with R = chol psi is InvWishart(psi, nu)
    p, dtype = psi.shape[0], psi.dtype
    chi2 = 2.0 * random.gamma(k_chi, 0.5 * (nu - jnp.arange(p, dtype=dtype)), dtype=dtype)
    bartlett = jnp.tril(random.normal(k_tri, (p, p), dtype), -1) + jnp.diag(jnp.sqrt(chi2))
    half = lower_inverse(bartlett) @ cholesky(psi).T
    return cholesky(half.T @ half)


def sample_prior(model, key):
    """One draw of the unconstrained parameters from the prior `[P]`."""
    p, dtype = model.p, model.theta_mean.dtype
    k_s2, k_theta, k_chi, k_tri, k_mu = random.split(key, 5)
    theta, s2 = _coefficients(model, k_s2, k_theta)
    lower = _inverse_wishart_factor(k_chi, k_tri, model.psi, model.nu)
    mu = model.x_mean + lower @ random.normal(k_mu, (p,), dtype) / jnp.sqrt(model.kappa)
    diagonal = jnp.diagonal(lower)
    c = (lower / diagonal[:, None])[below_diagonal(p)]
    alpha = theta[0] + mu @ theta[1:]
    return jnp.concatenate([mu, alpha[None], theta[1:], jnp.log(s2)[None], jnp.log(diagonal), c])


def entries(total, second):
    """Entries `[D]` from the sums `[q]` and the sums of products `[q, q]` of (x, y)."""
    q = total.shape[0]
    full = jnp.zeros((q + 1, q + 1), total.dtype).at[1:, 1:].set(second).at[0, 1:].set(total)
    a, b = pairs(q - 1)
    return full[a, b]


def _one_chain(model, phi):
    """Mean, factor and covariance of one record, without the lane axis."""
    return (x[..., 0] for x in model.record_lanes(phi[:, None]))


def simulate(model, key, phi, n):
    """Sums over n records drawn exactly from the model, without drawing the records.

    The first sums are normal and the centred scatter is Wishart with n - 1 degrees of freedom (any n >= 1). Use
    64-bit arrays when n is large.
    """
    m, g, _ = _one_chain(model, phi)
    return _normal_record_sums(key, m, g, n)


def normal_sums(key, mean, lower, theta, sigma2, n):
    """As `simulate`, for covariates N(mean `[p]`, lower lower') and theta `[p + 1]`, sigma2 `[]`."""
    beta = theta[1:]
    m = jnp.concatenate([mean, (theta[0] + mean @ beta)[None]])
    g = jnp.pad(lower, ((0, 1), (0, 1))).at[-1, :-1].set(beta @ lower).at[-1, -1].set(jnp.sqrt(sigma2))
    return _normal_record_sums(key, m, g, n)


def _normal_record_sums(key, m, g, n):
    return entries(*record_sums(key, m, g, n))


def record_sums(key, m, g, n):
    """Sums `[q]` and sums of products `[q, q]` of n records N(m `[q]`, g g')."""
    q, dtype = m.shape[0], m.dtype
    k_mean, k_chi, k_tri, k_few = random.split(key, 4)
    total = n * m + jnp.sqrt(n) * (g @ random.normal(k_mean, (q,), dtype))
    dof = jnp.maximum(n - 1.0 - jnp.arange(q, dtype=dtype), 0.5)
    bartlett = jnp.tril(random.normal(k_tri, (q, q), dtype), -1)
    bartlett = bartlett + jnp.diag(jnp.sqrt(2.0 * random.gamma(k_chi, 0.5 * dof, dtype=dtype)))
    # fewer than q degrees of freedom: the scatter is the Gram matrix of n - 1 rows
    rows = random.normal(k_few, (q, q), dtype) * (jnp.arange(q, dtype=dtype) < n - 1.0).astype(dtype)[:, None]
    half = g @ jnp.where(n - 1.0 >= q, bartlett, rows.T)
    return total, half @ half.T + total[:, None] * total[None] / n


def simulate_clipped(model, key, phi, n, bounds: tuple[float, float] = (-1.0, 1.0), chunk: int = 1000):
    """Sums over n records drawn one by one and clipped to `bounds` (n traced; work grows with n)."""
    m, g, _ = _one_chain(model, phi)

    def record(key, count):
        rows = jnp.clip(m[None] + random.normal(key, (count, m.shape[0]), phi.dtype) @ g.T, *bounds)
        return rows[:, :-1], rows[:, -1]

    return sums_of_records(key, record, model.p, n, chunk=chunk)


# ---- records drawn one by one: covariates of any law, and sums of higher products --------------------------------
def standard_normals(key, shape, dtype):
    """Independent N(0, 1)."""
    return random.normal(key, shape, dtype)


def standard_uniforms(key, shape, dtype):
    """Independent, uniform, mean 0 and variance 1."""
    return random.uniform(key, shape, dtype, -np.sqrt(3.0).item(), np.sqrt(3.0).item())


def standard_exponentials(key, shape, dtype):
    """Independent, exponential, moved to mean 0; variance 1, skewness 2."""
    return random.exponential(key, shape, dtype) - 1.0


#: Laws of standardised covariates (mean 0, variance 1).
STANDARD = {"normal": standard_normals, "uniform": standard_uniforms, "skewed": standard_exponentials}


def record_of(mean, lower, theta, log_sigma2, law):
    """`(key, count) -> (x [count, p], y [count])` with x = mean + lower u, u of a law of `STANDARD` or itself such a
    function of (key, shape, dtype)."""
    draw = STANDARD[law] if isinstance(law, str) else law

    def record(key, count):
        k_x, k_y = random.split(key)
        x = mean[None] + draw(k_x, (count, mean.shape[0]), mean.dtype) @ lower.T
        noise = jnp.exp(0.5 * log_sigma2) * random.normal(k_y, (count,), mean.dtype)
        return x, theta[0] + x @ theta[1:] + noise

    return record


def sums_of_records(key, record, p: int, n, exponents: tuple[tuple[int, ...], ...] = (), chunk: int = 1000):
    """Sums of the statistic over n records drawn one by one, then of the monomials of x with these exponents.

    Work grows with n (traced).
    """
    q = p + 1

    def monomials(x):
        if not exponents:
            return jnp.zeros((x.shape[0], 0), x.dtype)
        columns = []
        for row in exponents:
            value = jnp.ones_like(x[:, 0])
            for i, power in enumerate(row):
                for _ in range(power):
                    value = value * x[:, i]
            columns.append(value)
        return jnp.stack(columns, axis=1)

    def body(k, carry):
        total, second, higher = carry
        x, y = record(random.fold_in(key, k), chunk)
        number = k.astype(x.dtype) * chunk + jnp.arange(chunk, dtype=x.dtype)
        here = (number < n).astype(x.dtype)[:, None]
        rows = jnp.concatenate([x, y[:, None]], axis=1) * here
        return total + rows.sum(0), second + rows.T @ rows, higher + (monomials(x) * here).sum(0)

    chunks = jnp.ceil(n / chunk).astype(jnp.int32)
    dtype = n.dtype
    start = (jnp.zeros(q, dtype), jnp.zeros((q, q), dtype), jnp.zeros(len(exponents), dtype))
    total, second, higher = lax.fori_loop(jnp.int32(0), chunks, body, start)
    return jnp.concatenate([entries(total, second), higher])
