"""Numbers drawn in one call per chain have their laws, and belong to the chain alone."""

import jax
import numpy as np
from oracles.checks import assert_law
from scipy import stats

from dpjax.kernels.streams import normals_and_uniforms, normals_and_uniforms_lanes


def test_laws_and_independence():
    z, u = normals_and_uniforms_lanes(jax.random.split(jax.random.key(5), 20_000), 3, 2)
    z, u = np.asarray(z, np.float64), np.asarray(u, np.float64)
    for x in z:
        assert_law(x, stats.norm.cdf)
    for x in u:
        assert_law(x, stats.uniform.cdf)
    together = np.corrcoef(np.concatenate([z, u]))
    assert np.abs(together - np.eye(5)).max() < 4 / np.sqrt(20_000)


def test_uniforms_are_never_zero_or_one_and_normals_finite():
    z, u = normals_and_uniforms_lanes(jax.random.split(jax.random.key(1), 4096), 256, 256)
    assert 0 < float(u.min()) and float(u.max()) < 1
    assert np.isfinite(np.asarray(z)).all() and float(np.abs(z).max()) > 4.5


def test_a_chain_draws_the_same_alone_and_among_others():
    keys = jax.random.split(jax.random.key(2), 7)
    many = normals_and_uniforms_lanes(keys, 5, 2)
    alone = normals_and_uniforms(keys[3], 5, 2)
    for a, b in zip(alone, many, strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b)[:, 3])
