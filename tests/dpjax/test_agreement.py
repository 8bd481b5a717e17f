"""Samplers against each other and against closed forms, on simulated problems."""

import numpy as np
import pytest
from scipy import stats

from dpjax.calibration.simulation import simulate_study
from dpjax.calibration.study_design import study_design
from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.problems import Problems
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression


def _mcse_of_sd(draws, ess):
    """Standard error of a standard deviation from draws `[N]` with `ess` effective ones (kurtosis included)."""
    centred = draws - draws.mean()
    variance = centred.var()
    return np.sqrt(((centred**2).var() / (4 * variance)) / ess)


@pytest.mark.slow
@pytest.mark.parametrize("p, n, epsilon", [(1, 10**5, 1.0), (2, 10**5, 2.0), (4, 10**5, 10.0)])
def test_gibbs_and_collapsed_agree_where_both_mix(p, n, epsilon):
    """Difference within 4 MCSE for mean and sd of each parameter wherever both have ESS > 400."""
    study = simulate_study(
        LinearRegression.s0(p), [(n, epsilon)], 2, sensitivity=study_design(features=p).sensitivity, seed=p
    )
    runs = {m: run_method(m, study.problems, seed=7, chains=4, draws=1000, rerun=False) for m in ("collapsed", "gibbs")}
    compared = 0
    for t in range(2):
        for k, name in enumerate(runs["gibbs"].names):
            a, b = (r.draws[t, :, :, k].astype(np.float64) for r in runs.values())
            ess_a, ess_b = (r.diagnostics.ess_bulk[t, k] for r in runs.values())
            # the sd is a tail quantity: antithetic chains are not antithetic for it
            spread = [diagnose(np.abs(x - x.mean())[None, :, :, None], ("d",)).ess_bulk[0, 0] for x in (a, b)]
            if min(ess_a, ess_b, *spread) <= 400:
                continue
            compared += 1
            error = np.hypot(a.std() / np.sqrt(ess_a), b.std() / np.sqrt(ess_b))
            assert abs(a.mean() - b.mean()) < 4 * error, (t, name)
            error = np.hypot(_mcse_of_sd(a.ravel(), spread[0]), _mcse_of_sd(b.ravel(), spread[1]))
            assert abs(a.std() - b.std()) < 4 * error, (t, name)
    assert compared >= len(runs["gibbs"].names)  # at least half of all: the test does test something


def _closed_form(model: LinearRegression, s: np.ndarray, n: float):
    """Moments of the conjugate posterior in NumPy, written independently of the kernels (Bernstein and Sheldon 2019, eq
    1, docs/formulas.md#normal-inverse-wishart)."""
    p = model.p
    full = np.zeros((p + 2, p + 2))
    position = [(0, i) for i in range(1, p + 1)] + [(i, j) for i in range(1, p + 1) for j in range(i, p + 1)]
    position += [(0, p + 1)] + [(i, p + 1) for i in range(1, p + 1)] + [(p + 1, p + 1)]
    for value, (i, j) in zip(s, position, strict=True):
        full[i, j] = full[j, i] = value
    full[0, 0] = n
    prior = {f: np.asarray(getattr(model, f), np.float64) for f in ("theta_mean", "theta_precision", "psi", "x_mean")}
    a0, b0, kappa, nu = (float(getattr(model, f)) for f in ("sigma2_shape", "sigma2_scale", "kappa", "nu"))
    xtx, xty, yty = full[: p + 1, : p + 1], full[: p + 1, p + 1], full[p + 1, p + 1]
    lam = prior["theta_precision"] + xtx
    mean = np.linalg.solve(lam, prior["theta_precision"] @ prior["theta_mean"] + xty)
    quadratic = prior["theta_mean"] @ prior["theta_precision"] @ prior["theta_mean"] - mean @ lam @ mean
    shape, scale = a0 + n / 2, b0 + (yty + quadratic) / 2
    xbar = full[0, 1 : p + 1] / n
    scatter = full[1 : p + 1, 1 : p + 1] - n * np.outer(xbar, xbar)
    gap = xbar - prior["x_mean"]
    psi = prior["psi"] + scatter + kappa * n / (kappa + n) * np.outer(gap, gap)
    mu = (kappa * prior["x_mean"] + n * xbar) / (kappa + n)
    tau2 = psi / (nu + n - p - 1)
    return mean, lam, shape, scale, mu, tau2


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("method", ["naive", "non-private"])
def test_naive_and_non_private_equal_the_closed_forms(method, p):
    model = LinearRegression.create(
        p, theta_mean=0.2, theta_precision=0.7, sigma2_shape=5.0, sigma2_scale=0.4, x_mean=0.1, kappa=2.0, nu=p + 6.0
    )
    study = simulate_study(model, [(200, 200.0)], 4, sensitivity=5.0, seed=3)
    run = run_method(method, study.problems, seed=5, chains=4, draws=4000)
    statistics = study.problems.z if method == "naive" else study.problems.exact
    draws = run.draws.reshape(4, -1, run.draws.shape[-1]).astype(np.float64)
    size = draws.shape[1]
    for t in range(4):
        mean, lam, shape, scale, mu, tau2 = _closed_form(model, statistics[t], 200.0)
        got = draws[t]
        sigma2 = scale / (shape - 1)
        expected = np.concatenate([mean, [sigma2], mu, tau2[np.tril_indices(p)]])
        error = got.std(0) / np.sqrt(size)
        assert (np.abs(got.mean(0) - expected) < 4.5 * error).all()
        # theta is multivariate t, sigma2 inverse gamma: compare whole distributions on thinned draws
        scales = np.sqrt(scale / shape * np.diag(np.linalg.inv(lam)))
        for k in range(p + 1):
            assert stats.kstest(got[::4, k], stats.t(2 * shape, mean[k], scales[k]).cdf).pvalue > 1e-4
        assert stats.kstest(got[::4, p + 1], stats.invgamma(shape, scale=scale).cdf).pvalue > 1e-4


@pytest.mark.slow
def test_naive_survives_an_impossible_statistic():
    """A noisy y'y below zero cannot be a sum of squares: it is projected, not passed on
    (docs/formulas.md#consistent-sums)."""
    z = np.array([[3.0, -5.0, 2.0, 40.0, -8.0]])
    run = run_method("naive", Problems(z, np.array([10.0]), np.ones((1, 5)), LinearRegression.s0(1), "laplace"), seed=1)
    assert np.isfinite(run.draws).all() and (run.draws[..., 2] > 0).all() and (run.draws[..., 4] > 0).all()
