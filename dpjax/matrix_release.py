"""Posteriors given a Gram matrix with Wishart or inverse Wishart noise (S2, which has no sampler of its own for them;
SPEC A13)."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from ._checks import check_number
from ._problems import party_problems
from .engine import NON_FINITE, Problems, Progress
from .errors import ConvergenceError, ConvergenceWarning, InputError
from .inference import sample_prior_report
from .matrix_mechanisms import InverseWishart, Wishart
from .methods import check_seed, method_named, run_method
from .models import MatrixSums, OriginRegression, origin_prior
from .origin_statistic import OriginStatistic
from .posterior import Posterior
from .statistic_base import SCALING


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
    if not isinstance(mechanism, Wishart | InverseWishart):
        raise InputError(f"mechanism must be a Wishart or an InverseWishart; got {type(mechanism).__name__}")
    matrix = np.asarray(released, np.float64)
    q = mechanism.dim
    if matrix.ndim != 3 or matrix.shape[1:] != (q, q):
        raise InputError(f"released must have shape [problems, {q}, {q}]; got {matrix.shape}")
    if not np.isfinite(matrix).all() or np.abs(matrix - np.swapaxes(matrix, 1, 2)).max() > 1e-6 * np.abs(matrix).max():
        raise InputError("released must be finite and symmetric")
    n = np.broadcast_to(np.asarray(records, np.float64), len(matrix))
    unit = float(mechanism.bound) ** 2
    inverse = isinstance(mechanism, InverseWishart)
    dof, ridge = float(mechanism.dof), float(mechanism.ridge) / unit if isinstance(mechanism, InverseWishart) else 0.0
    if inverse and not (np.linalg.eigvalsh(matrix)[:, 0] > 0).all():
        raise InputError("released must be positive definite: a draw from an inverse Wishart law is")
    if inverse and dof <= q + 1:
        raise InputError(f"dof of the inverse Wishart must be above p + 2 = {q + 1}; got {dof:g}")
    matrix = matrix / unit
    i, j = np.array([(a, b) for a in range(q - 1) for b in range(a, q - 1)] + [(a, q - 1) for a in range(q)]).T
    if inverse:
        estimate, psi = matrix * (dof - q - 1) - ridge * np.eye(q), matrix * dof
        diagonal = np.diagonal(psi, axis1=1, axis2=2)
        deviation = np.sqrt((diagonal[:, :, None] * diagonal[:, None] + psi**2) / dof)
    else:
        estimate, deviation = matrix - dof * np.eye(q), np.sqrt(dof * (1 + np.eye(q))) * np.ones_like(matrix)
    known = None if exact is None else np.asarray(exact, np.float64)[:, None, i, j] / unit
    problems = party_problems(
        estimate[:, None, i, j], n[:, None], deviation[:, None, i, j], base, laplace=0.0, exact=known
    )
    model: Any = problems.model
    fields: Any = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    full = lambda value: jnp.full(len(matrix), value, model.records.dtype)
    return dataclasses.replace(problems, model=MatrixSums(**fields, dof=full(dof), ridge=full(ridge), inverse=inverse))


def fit_matrix(
    released: Float64[np.ndarray, "q q"] | Any,
    mechanism: Wishart | InverseWishart,
    *,
    records: int,
    features: Sequence[str],
    target: str,
    prior: Mapping[str, Any] | Any = None,
    epsilon: float = float("nan"),
    delta: float = float("nan"),
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
        mechanism: what the noise was (`dpjax.matrix_mechanisms`).
        records, features, target: number of records and names of the variables.
        prior: as for `dpjax.fit` without an intercept, in units of the row bound.
        epsilon, delta: of the release, for the record.
        method: "collapsed", or "naive" for the debiased matrix taken for exact.
        chains, draws, seed, settings, progress: as for `dpjax.fit`.

    Raises:
        InputError: bad argument; see `matrix_problems`.
        ConvergenceError: a chain ended with non-finite numbers.

    Warns:
        ConvergenceWarning: R-hat > 1.05 or ESS < 100 after the automatic reruns.
    """
    features = tuple(features)
    bound = check_number(mechanism.bound, "bound of the mechanism must be a finite number > 0")
    bounds = {name: (-bound, bound) for name in (*features, target)}
    statistic = OriginStatistic(features, target, bounds, SCALING)
    problems = matrix_problems(
        np.asarray(released)[None], float(records), mechanism, origin_prior(len(features), prior)
    )
    entry, seed = method_named(method), check_seed(seed)
    seen = entry.seen(problems)
    run = run_method(method, problems, seed=seed, chains=chains, draws=draws, settings=settings, progress=progress)
    if (run.codes == NON_FINITE).any():
        raise ConvergenceError(f"{int((run.codes == NON_FINITE).sum())} of {run.codes.size} chains are not finite")
    model = seen.model_template()
    posterior = Posterior(
        draws=run.draws[0], names=run.names, statistic=statistic, records=int(records), epsilon=epsilon, delta=delta,
        mechanism=mechanism.kind, adjacency=mechanism.adjacency, method=method, seconds=run.seconds,
        codes=run.codes[0], prior=model.as_dict(), prior_draws=sample_prior_report(model, seed),
        compile_seconds=run.compile_seconds, rerun=bool(run.reruns), rerun_seconds=run.rerun_seconds,
    )  # fmt: skip
    for sentence in posterior.warnings():
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return posterior


__all__ = ["fit_matrix", "matrix_problems"]
