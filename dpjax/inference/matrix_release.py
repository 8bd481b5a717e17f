"""Posteriors given a Gram matrix with Wishart or inverse Wishart noise (Zhang and Reiter, who have no sampler of their
own for them; docs/formulas.md#wishart-mechanism)."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from dpjax._base.checks import check_number, shown
from dpjax.engine.loop import Progress
from dpjax.engine.problems import Problems
from dpjax.errors import ConvergenceWarning, InputError
from dpjax.inference.fit import check_finite, posterior_of
from dpjax.inference.methods import method_named
from dpjax.inference.posterior import Posterior
from dpjax.inference.prior_predictive import sample_prior_report
from dpjax.inference.run_method import check_seed, run_method
from dpjax.kernels.order import origin_places
from dpjax.mechanisms import GAUSSIAN
from dpjax.mechanisms.matrix import InverseWishart, MatrixMechanism, Wishart
from dpjax.models import MatrixSums, OriginRegression, model_for
from dpjax.models.regression.problems import party_problems
from dpjax.models.regression.wishart import MatrixFacts
from dpjax.releases.file import LARGEST_COUNT
from dpjax.statistics.base import SCALING
from dpjax.statistics.origin import OriginStatistic

#: Methods for matrix noise: the others would take it for noise of independent entries.
METHODS = ("collapsed", "naive")


def matrix_problems(
    released: Any,
    records: Any,
    mechanism: Wishart | InverseWishart,
    base: OriginRegression | Any,
    *,
    exact: Any = None,
) -> Problems:
    """T problems whose releases are noisy Gram matrices.

    Args:
        released: M `[T, q, q]`, q = p + 1, of rows (x, y), in the units of the rows.
        records: `[T]` or a number.
        mechanism: one `Wishart` or `InverseWishart` for all.
        base: prior, in units of the row bound B (theta is the same in any, sigma2 and Sigma_x are divided by B^2).
        exact: Gram matrices without noise `[T, q, q]`, in simulations.

    Raises:
        InputError: shapes that do not fit, a matrix that is not finite and symmetric, or, of an inverse Wishart, not
            positive definite.
    """
    _check_mechanism(mechanism)
    try:
        matrix = np.asarray(released, np.float64)
    except (TypeError, ValueError):
        raise InputError("released must hold numbers only") from None
    q = mechanism.dim
    if base.psi.shape[-1] != q - 1:
        raise InputError(f"released is of {q - 1} features, the prior of {base.psi.shape[-1]}")
    if matrix.ndim != 3 or matrix.shape[1:] != (q, q) or not len(matrix):
        raise InputError(f"released must have shape [problems, {q}, {q}]; got {matrix.shape}")
    if not np.isfinite(matrix).all() or np.abs(matrix - np.swapaxes(matrix, 1, 2)).max() > 1e-6 * np.abs(matrix).max():
        raise InputError("released must be finite and symmetric")
    n = np.broadcast_to(np.asarray(records, np.float64), len(matrix))
    if not (np.isfinite(n).all() and (n >= 1).all()):
        raise InputError("records must be finite and at least 1 in every problem")
    unit = float(mechanism.bound) ** 2
    inverse, dof, ridge = mechanism.inverse, float(mechanism.dof), float(mechanism.ridge) / unit
    if inverse and not (np.linalg.eigvalsh(matrix)[:, 0] > 0).all():
        raise InputError("released must be positive definite: a draw from an inverse Wishart law is")
    matrix = matrix / unit
    i, j = origin_places(q - 1)
    if inverse:
        estimate, psi = matrix * (dof - q - 1) - ridge * np.eye(q), matrix * dof
        diagonal = np.diagonal(psi, axis1=1, axis2=2)
        deviation = np.sqrt((diagonal[:, :, None] * diagonal[:, None] + psi**2) / dof)
    else:
        estimate, deviation = matrix - dof * np.eye(q), np.sqrt(dof * (1 + np.eye(q))) * np.ones_like(matrix)
    known = None if exact is None else np.asarray(exact, np.float64)[:, None, i, j] / unit
    problems = party_problems(
        estimate[:, None, i, j], n[:, None], deviation[:, None, i, j], base, GAUSSIAN.kind, exact=known
    )
    facts = MatrixFacts(*problems.facts, *(np.full(len(matrix), x) for x in (dof, ridge)))
    return dataclasses.replace(problems, model=MatrixSums(base, 1, inverse=inverse), facts=facts)


def _check_mechanism(mechanism: Any) -> None:
    """Refuse what is no mechanism, or was put together by hand from numbers that it cannot have.

    Raises:
        InputError: the first of them.
    """
    if not isinstance(mechanism, MatrixMechanism):
        raise InputError(f"mechanism must be a Wishart or an InverseWishart; got {type(mechanism).__name__}")
    words = f"of the {mechanism.kind} mechanism must be a finite number > 0"
    for name in mechanism.numbers:
        value = getattr(mechanism, name)
        if not check_number(value, f"{name} {words}") > 0:
            raise InputError(f"{name} {words}, got {shown(value)}")
    least, inverse = mechanism.dim + 1, mechanism.inverse
    if mechanism.dof < least or (inverse and mechanism.dof == least):  # an inverse Wishart law has a mean only above
        words = "above" if inverse else "at least"
        raise InputError(f"dof of the {mechanism.kind} must be {words} p + 2 = {least}; got {shown(mechanism.dof)}")


def _check_arguments(mechanism: Any, released: Any, records: Any, epsilon: Any, delta: Any) -> None:
    """What `matrix_problems` does not look at, before anything is compiled.

    Raises:
        InputError: the first argument that is wrong.
    """
    q = mechanism.dim
    if np.shape(released) != (q, q):
        raise InputError(f"released must have shape [{q}, {q}]; got {np.shape(released)}")
    if isinstance(records, bool) or not isinstance(records, int | np.integer) or not 1 <= records <= LARGEST_COUNT:
        raise InputError(f"records must be a whole number from 1 to 2^53; got {shown(records)}")
    if epsilon is not None and not check_number(epsilon, "epsilon must be a finite number > 0") > 0:
        raise InputError(f"epsilon must be a finite number > 0, got {shown(epsilon)}")
    if delta is not None and not 0 <= check_number(delta, "delta must lie in [0, 1)") < 1:
        raise InputError(f"delta must lie in [0, 1), got {shown(delta)}")


def fit_matrix(
    released: Float64[np.ndarray, "q q"] | Any,
    mechanism: Wishart | InverseWishart | Any,
    *,
    records: int | Any,
    features: Sequence[str] | Any,
    target: str | Any,
    prior: Mapping[str, Any] | Any = None,
    epsilon: float | Any | None = None,
    delta: float | Any | None = None,
    method: str = "collapsed",
    chains: int = 4,
    draws: int = 1000,
    seed: int = 0,
    settings: dict | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Posterior:
    """Posterior of a regression through the origin given a noisy Gram matrix.

    Args:
        released: M `[q, q]` of rows (x_1, ..., x_p, y), in their units.
        mechanism: what the noise was (`dpjax.mechanisms.matrix`).
        records, features, target: number of records and names of the variables.
        prior: as for `dpjax.fit` without an intercept, in units of the row bound or (`units`) of the rows.
        epsilon, delta: of the release, for the record; None if they are not known.
        method: "collapsed", or "naive" for the debiased matrix taken for exact.
        chains, draws, seed, settings, progress: as for `dpjax.fit`.

    Raises:
        InputError: bad argument; see `matrix_problems`.
        ConvergenceError: a chain ended with non-finite numbers.

    Warns:
        ConvergenceWarning: R-hat > 1.05 or ESS < 100 after the automatic reruns.
    """
    _check_mechanism(mechanism)
    _check_arguments(mechanism, released, records, epsilon, delta)
    plain = OriginStatistic(features, target)
    bound = float(mechanism.bound)
    statistic = dataclasses.replace(plain, bounds=dict.fromkeys(plain.variables, (-bound, bound)), scaling=SCALING)
    if plain.p != mechanism.dim - 1:
        raise InputError(f"features must be {mechanism.dim - 1} names, as many as the mechanism has; got {plain.p}")
    problems = matrix_problems(np.asarray(released)[None], float(records), mechanism, model_for(statistic, prior))
    entry, seed = method_named(method), check_seed(seed)
    if method not in METHODS:
        raise InputError(f"method {method!r} does not know the noise of matrices: {' and '.join(METHODS)} do")
    seen = entry.seen(problems)
    run = run_method(method, problems, seed=seed, chains=chains, draws=draws, settings=settings, progress=progress)
    check_finite(run)
    model = seen.model_template()
    posterior = posterior_of(
        entry, seen, run, model, sample_prior_report(model, seed), statistic=statistic, records=int(records),
        epsilon=math.nan if epsilon is None else float(epsilon), delta=math.nan if delta is None else float(delta),
        mechanism=mechanism.kind, adjacency=mechanism.adjacency,
    )  # fmt: skip
    for sentence in posterior.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posterior


__all__ = ["fit_matrix", "matrix_problems"]
