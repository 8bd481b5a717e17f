"""AdaSSP against a transcription in NumPy, the numbers of docs/formulas.md#adassp, and the privacy of its three
releases."""

import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.errors import InputError
from dpjax.privacy import clipping
from dpjax.privacy.gaussian import gaussian_delta

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "alparslan2023"))
try:
    from adassp import AdaSSP, adassp_noise, simulate_adassp
finally:
    del sys.path[0]

D, J = 3, 2


@pytest.fixture
def x64():
    """64-bit mode for one test."""
    with jax.enable_x64(True):
        yield


def parties(n=400, d=D, j=J, seed=0):
    """Exact sums of j parties: gram [j, d, d], cross [j, d]."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(j * n, d))
    y = rows @ np.linspace(1, -1, d) + 0.3 * rng.normal(size=j * n)
    rows, y = clipping.clip_rows(rows / 3, y / 3, 1, 1)
    rows, y = rows.reshape(j, n, d), y.reshape(j, n)
    return np.einsum("jni,jnk->jik", rows, rows), np.einsum("jni,jn->ji", rows, y)


def transcription(key, gram, cross, epsilon, delta, X, Y, rho=0.05):
    """Wang's algorithm with his constants as in his code, for J parties by Alparslan et al. 2023, equation (15),
    without the stray v and with the noise of S mirrored; from the same standard normals as `simulate_adassp`."""
    j, d = cross.shape
    keys = jax.random.split(key, 3)
    v = np.asarray(jax.random.normal(keys[0], (j,), jnp.float64))
    e = np.asarray(jax.random.normal(keys[1], (j, d, d), jnp.float64))
    w = np.asarray(jax.random.normal(keys[2], (j, d), jnp.float64))
    total, right, ridges = np.zeros((d, d)), np.zeros(d), []
    for p in range(j):
        eta = epsilon / 3
        log = math.log(6 / delta)
        smallest = np.linalg.eigvalsh(gram[p]).min()
        noisy = max(smallest + math.sqrt(log) / eta * X**2 * v[p] - log / eta * X**2, 0)
        lam = max(0, math.sqrt(d * log * math.log(2 * d**2 / rho)) * X**2 / eta - noisy)
        noise = np.zeros((d, d))
        for a in range(d):
            for b in range(a, d):
                noise[a, b] = noise[b, a] = e[p, a, b]
        total += gram[p] + math.sqrt(log) * X**2 / eta * noise + lam * np.eye(d)
        right += cross[p] + math.sqrt(log) * X * Y / eta * w[p]
        ridges.append(lam)
    return np.linalg.solve(total, right), np.array(ridges)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 60.0])
def test_published_constants_against_the_transcription(x64, epsilon):
    gram, cross = parties()
    noise = adassp_noise(D, 1.3, 0.7, epsilon, 1e-5, parties=J, constants="published")
    found = simulate_adassp(jax.random.key(3), jnp.asarray(gram), jnp.asarray(cross), noise)
    theta, ridge = transcription(jax.random.key(3), gram, cross, epsilon, 1e-5, 1.3, 0.7)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-9)
    np.testing.assert_allclose(found.ridge, ridge, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_both_ends_of_the_ridge(x64):
    gram, cross = (jnp.asarray(a) for a in parties())
    none = simulate_adassp(jax.random.key(0), gram, cross, adassp_noise(D, 1, 1, 60.0, 1e-5, parties=J))
    assert np.all(np.asarray(none.ridge) == 0)  # the noise is small beside the smallest eigenvalue
    noise = adassp_noise(D, 1, 1, 0.01, 1e-5, parties=J)
    full = simulate_adassp(jax.random.key(0), gram, cross, noise)
    np.testing.assert_allclose(full.ridge, noise.ridge)  # the noisy eigenvalue is 0


def test_numbers_of_the_specification():
    for epsilon, real in ((1, 2.65), (3, 11.0), (0.1, 0.23)):
        noise = adassp_noise(2, 1, 1, epsilon, 1e-6, constants="published")
        spent = gaussian_delta(noise.eigenvalue[0], 1, epsilon / 3) / (1e-6 / 3)
        assert spent == pytest.approx(real, abs=0.06)
    assert adassp_noise(2, 1, 1, 1, 1e-6, constants="published").eigenvalue[0] == pytest.approx(11.85181126, abs=1e-8)
    assert adassp_noise(2, 1, 1, 1, 1e-6).eigenvalue[0] == pytest.approx(12.47122870, abs=1e-8)


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (10.0, 1e-3)])
def test_exact_constants_spend_a_third_each(d, epsilon, delta):
    X, Y = 1.7, 0.6
    noise = adassp_noise(d, X, Y, epsilon, delta)
    sizes = (X**2, X**2 * (1 if d == 1 else math.sqrt(2)), 2 * X * Y)
    for sigma, size in zip((noise.eigenvalue, noise.matrix, noise.cross), sizes, strict=True):
        spent = gaussian_delta(sigma[0], size * (1 - 1e-15), epsilon / 3)
        assert delta / 3 * (1 - 1e-6) < spent <= delta / 3
    assert noise.shift == pytest.approx(noise.eigenvalue * math.sqrt(math.log(6 / delta)))
    assert noise.ridge == pytest.approx(noise.matrix * math.sqrt(d * math.log(2 * d**2 / 0.05)))


def test_parties_may_differ():
    together = adassp_noise(D, 1, [1, 2], [0.5, 1.0], [1e-5, 1e-6])
    for j, (Y, epsilon, delta) in enumerate([(1, 0.5, 1e-5), (2, 1.0, 1e-6)]):
        alone = adassp_noise(D, 1, Y, epsilon, delta)
        for name in ("eigenvalue", "matrix", "cross", "shift", "ridge"):
            assert getattr(together, name)[j] == getattr(alone, name)[0]


def many(repetitions, dtype=jnp.float32):
    """Noise and noisy total of many repetitions, recovered from theta's linear system at d = 2."""
    gram, cross = (jnp.asarray(a, dtype) for a in parties(d=2))
    noise = adassp_noise(2, 1, 1, 5.0, 1e-5, parties=J)
    keys = jax.random.split(jax.random.key(1), repetitions)
    run = jax.jit(jax.vmap(simulate_adassp, (0, None, None, None)))
    return run(keys, gram, cross, noise), gram, cross


@pytest.mark.slow
def test_many_repetitions_in_one_call():
    found, gram, cross = many(500)
    assert isinstance(found, AdaSSP) and found.theta.shape == (500, 2) and found.ridge.shape == (500, J)
    assert found.theta.dtype == jnp.float32
    one = simulate_adassp(
        jax.random.split(jax.random.key(1), 500)[7], gram, cross, adassp_noise(2, 1, 1, 5.0, 1e-5, parties=J)
    )
    np.testing.assert_allclose(found.theta[7], one.theta, rtol=1e-4)


@pytest.mark.slow
def test_law_of_theta_without_noise_on_the_matrix(x64):
    """With huge gram matrices theta is linear in the noise: its variance says whether off-diagonals of S carry the
    same noise as the diagonal (averaging with the transpose would halve their variance)."""
    size, d = 1e6, 2
    gram, cross = jnp.array([[[size, 0.0], [0.0, size]]]), jnp.array([[0.0, size]])
    noise = adassp_noise(d, 1, 1, 3.0, 1e-5)
    keys = jax.random.split(jax.random.key(5), 20_000)
    theta = jax.jit(jax.vmap(lambda key: simulate_adassp(key, gram, cross, noise).theta))(keys)
    moved = (np.asarray(theta) - [0, 1]) * size  # about e_z - E_S (0, 1): both entries have variance s_z^2 + s_S^2
    variance = noise.cross[0] ** 2 + noise.matrix[0] ** 2
    for entry in range(d):
        squared = moved[:, entry] ** 2
        assert abs(squared.mean() - variance) < 4 * squared.std() / math.sqrt(len(squared))


def test_exact_theta_at_little_noise(x64):
    gram, cross = parties()
    found = simulate_adassp(
        jax.random.key(0), jnp.asarray(gram), jnp.asarray(cross), adassp_noise(D, 1, 1, 1e7, 1e-5, parties=J)
    )
    np.testing.assert_allclose(found.theta, np.linalg.solve(gram.sum(0), cross.sum(0)), rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d must"),
        ({"X": 0}, "X must"),
        ({"Y": [1, -1]}, "Y must"),
        ({"epsilon": 0}, "epsilon must"),
        ({"delta": 1}, "delta must"),
        ({"delta": [0.1, 0.1, 0.1], "epsilon": [1, 1]}, "epsilon must be one number or one for each of 3"),
        ({"rho": 0}, "rho must"),
        ({"parties": 0}, "parties must"),
        ({"constants": "paper"}, "constants must"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"d": 2, "X": 1, "Y": 1, "epsilon": 1, "delta": 1e-5, **change}
    with pytest.raises(InputError, match=message):
        adassp_noise(**arguments)
