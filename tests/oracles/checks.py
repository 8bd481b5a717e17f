"""Statistical assertions with tolerances that come from the draws themselves."""

import numpy as np
from scipy import stats


def assert_means(by_chain, truth, limit=4.0, floor=0.0):
    """Mean over chains equals `truth` within `limit` standard errors, judged by the spread of chain means.

    Args:
        by_chain: chain means of the quantity, chains first `[C, ...]`, C >= 24.
        truth: exact expectation `[...]`.
        limit: number of standard errors.
        floor: absolute tolerance, for rounding.
    """
    by_chain, truth = np.asarray(by_chain, np.float64), np.asarray(truth, np.float64)
    chains = by_chain.shape[0]
    assert chains >= 24
    # the robust scale alone is too noisy at 24 chains and the plain one alone is pulled by outliers
    robust = stats.median_abs_deviation(by_chain, axis=0, scale="normal")
    error = np.maximum(robust, by_chain.std(axis=0, ddof=1)) / np.sqrt(chains)
    worst = np.max(np.abs(by_chain.mean(axis=0) - truth) / (limit * error + floor + 1e-300))
    assert worst < 1.0, f"mean is off: {worst * limit:.2f} standard errors, limit {limit}"


def assert_law(draws, cdf, limit=1.95):
    """Kolmogorov-Smirnov distance of independent draws times sqrt(N) is under `limit` (1.95: p = 0.001)."""
    draws = np.asarray(draws, np.float64).ravel()
    distance = stats.kstest(draws, cdf).statistic * np.sqrt(draws.size)
    assert distance < limit, f"sqrt(N) KS = {distance:.2f}, limit {limit}"
