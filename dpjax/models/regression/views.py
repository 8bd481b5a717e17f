"""How the methods for regressions see a problem: which model of the covariates and which of the released sums they use.

A view takes `Problems` of a `LinearRegression` (Bernstein and Sheldon's Gibbs-SS-Update: covariates normal with unknown
mean and covariance) and gives the problems that a method is run on, or a sentence that says what is missing.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpjax.engine.problems import Problems
from dpjax.errors import InputError, ModelWarning
from dpjax.models import (
    ExactSums,
    FreeMoments,
    KnownCovariates,
    LinearRegression,
    MatrixSums,
    OriginRegression,
    OwnPartySums,
    PartySums,
)
from dpjax.models.regression.free_moments import MOST_FEATURES
from dpjax.privacy.sensitivity import entry_extremes, moment_exponents

#: Keys of `Problems.views`.
MOMENTS, KNOWN = "moments", "known"
#: Smallest eigenvalue, relative to the largest entry, of moments that were released with noise.
FLOOR = 1e-6


def known_covariates(problems: Problems) -> Problems | str:
    """Moments of a known law of the covariates (Gibbs-SS-Prior)."""
    if isinstance(problems.model, KnownCovariates):
        return problems
    if KNOWN in problems.views:
        warnings.warn(
            "method prior: the law of the covariates is hierarchical and its marginal moments are used, as in the "
            "paper; posteriors will be far too narrow (docs/formulas.md#dependent-records)",
            ModelWarning,
            stacklevel=2,
        )
        return problems.views[KNOWN]
    return "needs a fixed law of the covariates: a table [covariates] with law = ... in the prior"


def free_moments(problems: Problems) -> Problems | str:
    """The released third and fourth moments as statistics with noise and a law of their own."""
    view = _with_moments(problems)
    if not isinstance(view, str) and _free(view.model_template()).p > MOST_FEATURES:
        return f"is for at most {MOST_FEATURES} features; use plug-in, or collapsed, which does not look at the moments"
    return view


def plug_in(problems: Problems) -> Problems | str:
    """The released moments taken for exact (Gibbs-SS-Noisy)."""
    view = _with_moments(problems)
    if isinstance(view, str):
        return view
    base, p = _free(view.model).base, _free(view.model_template()).p
    size = p + p * (p + 1) // 2 + p + 2
    eta, xi = released_moments(view.z, view.n, p, view.box)
    q = p + 1
    shapes = {"theta_mean": (q,), "theta_precision": (q, q), "sigma2_shape": (), "sigma2_scale": ()}
    leaves: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(getattr(base, name)), (len(view), *shape)) for name, shape in shapes.items()
    }
    dtype = base.theta_mean.dtype
    model = KnownCovariates(**leaves, eta=jnp.asarray(eta, dtype), xi=jnp.asarray(xi, dtype))
    exact = None if view.exact is None else view.exact[:, :size]
    return Problems(view.z[:, :size], view.n, view.scale[:, :size], model, view.mechanism, exact, None, view.box)


def origin_parties(*reported: str, full_rank: bool = False) -> Callable[[Problems], Problems | str]:
    """View of the methods of Alparslan et al. 2023, which are for regressions through the origin; they report
    parameters of these names (theta, sigma2, tau2). full_rank: every party must have at least as many records as
    features."""

    def view(problems: Problems) -> Problems | str:
        model = problems.model
        if not isinstance(model, PartySums) or not isinstance(model.base, OriginRegression):
            return "is for regressions without an intercept"
        if isinstance(model, OwnPartySums):
            return "is for parties that share the law of their features"
        if isinstance(model, MatrixSums):
            return "is for noise that is independent over entries, not for Wishart noise"
        p, fewest = np.shape(model.base.theta_mean)[-1], np.asarray(problems.facts.records).min()
        if full_rank and fewest < p:
            return f"needs at least {p} records in every party, as many as features; one has {fewest:g}"
        names = problems.model_template().parameter_names
        chosen = tuple(name for name in names if name.partition("[")[0] in reported)
        return dataclasses.replace(problems, model=dataclasses.replace(model, reports=chosen))

    return view


def conjugate(problems: Problems) -> Problems | str:
    """View of what takes the sums for exact: for parties, only with a conjugate prior."""
    model = problems.model
    if not model.has_conjugate:
        return "is for models whose parameters can be drawn given the exact sums; collapsed is for any"
    if isinstance(model, PartySums):
        if isinstance(model.base, OriginRegression) and model.base.independent:
            return "needs the conjugate prior, in which theta depends on sigma2 (independent = false)"
    return problems


def all_released(problems: Problems) -> Problems | str:
    """As `conjugate`, of the released sums: all of them must be there."""
    if isinstance(problems.model, PartySums) and not np.asarray(problems.noise.seen).all():
        return "needs the sum of squares of the target, which a party has not released"
    return conjugate(problems)


def _with_moments(problems: Problems) -> Problems | str:
    """The problems with all that was released, third and fourth moments included."""
    if isinstance(problems.model, KnownCovariates):
        return "takes the covariates' moments from the release; the prior states their law: leave law out, or use prior"
    view = problems if isinstance(problems.model, FreeMoments) else problems.views.get(MOMENTS)
    return "needs a release that holds third and fourth moments of the features (moments)" if view is None else view


def _free(model: Any) -> FreeMoments:
    assert isinstance(model, FreeMoments)
    return model


#: The exact law of the sums is refused from this many records on where sqrt(n) / noise scale is above this: its latent
#: variables are then pinned so tightly that R-hat was 1.2 to 3.
MANY_RECORDS, MOST_TIGHT = 10_000, 1000.0


def exact_sums(problems: Problems) -> Problems | str:
    """The sums by their exact law (docs/formulas.md#exact-sums)."""
    return _exact(problems, None)


def exact_sums_inside(problems: Problems) -> Problems | str:
    """As `exact_sums`, given that the sums are those of records inside the bounds."""
    if problems.box is None:
        return "needs bounds to which the records were clipped, the same for all releases"
    return _exact(problems, problems.box)


def _exact(problems: Problems, box: Any) -> Problems | str:
    if not isinstance(problems.model, LinearRegression):
        return "is for regressions with normal covariates of unknown mean and covariance"
    tight = np.sqrt(problems.n)[:, None] / problems.scale
    if (tight[problems.n >= MANY_RECORDS] > MOST_TIGHT).any():
        return (
            f"does not mix at {MANY_RECORDS:,} records or more with noise this small (its scale is under "
            f"sqrt(records) / {MOST_TIGHT:g}), and there the normal law of the sums is as good as the exact one: use "
            "collapsed"
        )
    base: Any = problems.batched_model()
    try:
        model = ExactSums.create(base, problems.n, box)
    except InputError as error:
        return f"does not fit: {error}"
    return dataclasses.replace(problems, model=model, views={})


def released_moments(z: Any, n: Any, p: int, box: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """eta `[T, q, q]` and xi `[T, q, q, q, q]` of one record from noisy sums, made those of some law.

    The means of the monomials are moved inside what the bounds allow, then the covariance of (x_i; x_i x_j) is made
    positive semi-definite by raising its eigenvalues; both only look at what was released. Moments that are taken for
    exact in spite of their noise need it: with noise they belong to no law more often than not.

    Args:
        z: released sums `[T, D0 + T']`, the usual ones and the monomials of degree 3 and 4.
        n: records `[T]`.
        p: number of features.
        box: bounds of the variables `[p + 1, 2]`, or None.
    """
    z, n = np.asarray(z, np.float64), np.asarray(n, np.float64)
    size = p + p * (p + 1) // 2
    rows = moment_exponents(p, 4)
    means = np.concatenate([z[:, :size], z[:, size + p + 2 :]], axis=1) / n[:, None]
    if box is not None:
        means = np.clip(means, *entry_extremes(rows, np.asarray(box)[:p]).T)
    index = {row: k for k, row in enumerate(rows)}
    one = np.ones(len(z))
    value = lambda row: one if not any(row) else means[:, index[row]]
    products = rows[:size]
    covariance = np.stack(
        [np.stack([value(_sum(a, b)) - value(a) * value(b) for b in products], -1) for a in products], -1
    )
    largest = np.maximum(np.abs(covariance).max((1, 2)), 1e-12)
    roots, vectors = np.linalg.eigh(covariance)
    roots = np.maximum(roots, FLOOR * largest[:, None])
    covariance = np.einsum("tik,tk,tjk->tij", vectors, roots, vectors)
    q = p + 1
    position = {(0, i + 1): i for i in range(p)}
    position |= {pair: p + k for k, pair in enumerate((i, j) for i in range(1, q) for j in range(i, q))}
    eta, xi = np.zeros((len(z), q, q)), np.zeros((len(z), q, q, q, q))
    mean = np.concatenate([one[:, None], means[:, :p]], axis=1)
    eta[:] = mean[:, :, None] * mean[:, None]
    eta[:, 1:, 1:] += covariance[:, :p, :p]
    for i, j in np.ndindex(q, q):
        for k, m in np.ndindex(q, q):
            a, b = position.get((min(i, j), max(i, j))), position.get((min(k, m), max(k, m)))
            if a is not None and b is not None:
                xi[:, i, j, k, m] = covariance[:, a, b]
    return eta, xi


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i + j for i, j in zip(one, other, strict=True))
