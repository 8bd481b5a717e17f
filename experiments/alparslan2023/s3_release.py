"""Simulated releases of Alparslan et al.'s experiments: noise as in the paper and as it has to be, and what the methods
infer.

The noise is seeded and the bounds may come from the data: nothing here protects anybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from adassp import AdaSSPNoise, adassp_noise

from dpjax.privacy.gaussian import analytic_gaussian_sigma
from dpjax.privacy.row_norms import l2_sensitivity

#: The methods by the paper's names; ours has none there.
PAPER_NAMES = {
    "normal-x": "MCMC-normalX",
    "fixed-s": "MCMC-fixedS",
    "fixed-s-fast": "Bayes-fixedS-fast",
    "clt": "MCMC-B&S",
    "adassp": "adaSSP",
}
#: Kinds of noise, and what is to be said wherever one of them is used.
NOISES = {
    "authors": (
        "noise of the authors' code: NOT (epsilon, delta)-differentially private as claimed. The sensitivity is the "
        "add-remove value where the paper's neighbours are replace-one (docs/formulas.md#row-norm-sensitivity), and "
        "the code's analytic Gaussian "
        "mechanism has sqrt(epsilon) u in place of sqrt(epsilon u)"
    ),
    "paper": (
        "noise of the paper's sensitivity: NOT (epsilon, delta)-differentially private as claimed; it is the "
        "add-remove value, the paper's neighbours are replace-one (docs/formulas.md#row-norm-sensitivity)"
    ),
    "replace-one": "sensitivities of replaced records (docs/formulas.md#row-norm-sensitivity, #adassp), analytic "
    "Gaussian mechanism",
}


def noise_checks(config: Any) -> list[tuple[str, bool, str]]:
    """Rows of `_common.check_values` for the noise of a config's variants: noise that is not private as claimed
    must be asked for by its name."""
    unsafe = [name for name, variant in config.variants.items() if variant.noise != "replace-one"]
    return [
        ("variants", all(v.noise in NOISES for v in config.variants.values()), f"noise of {', '.join(NOISES)}"),
        (
            "unsafe_paper_sensitivity",
            config.unsafe_paper_sensitivity or not unsafe,
            f"true where a variant has noise that is not private as claimed ({', '.join(unsafe)})",
        ),
    ]


def authors_sigma(epsilon: float, delta: float) -> float:
    """Noise multiplier of the authors' public code, for repeating the paper's numbers: too small to be private.

    Balle and Wang's Algorithm 1 for small delta asks for the root u of Phi(-sqrt(epsilon u)) - e^epsilon
    Phi(-sqrt(epsilon (u + 2))) = delta and gives (sqrt(1 + u / 2) + sqrt(u / 2)) / sqrt(2 epsilon); the code has
    sqrt(epsilon) u in the first term. (For delta above Phi(0) - e^epsilon Phi(-sqrt(2 epsilon)) another branch applies,
    which is not needed here.)

    Raises:
        ValueError: a delta for which the other branch would apply.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    if delta >= norm.cdf(0) - math.exp(epsilon) * norm.cdf(-2 * math.sqrt(epsilon)):
        raise ValueError("delta is too large for this branch")
    root = math.sqrt(epsilon)
    excess = lambda u: norm.cdf(-root * u) - math.exp(epsilon) * norm.cdf(-math.sqrt(epsilon * (u + 2))) - delta
    high = 1.0
    while excess(high) > 0:
        high *= 2
    u = brentq(excess, 0.0, high)
    return (math.sqrt(1 + u / 2) + math.sqrt(u / 2)) / math.sqrt(2 * epsilon)


@dataclass(frozen=True)
class Level:
    """How much noise, and what goes with it.

    noise: of `NOISES`. "authors" and "paper" have the paper's sensitivities (add-remove values, too small), adaSSP as
    in the authors' code, and the bound of y over 3 as the residual VARIANCE of fixed-s-fast
    (docs/formulas.md#residual-variance-third); "replace-one" has those of replaced records
    (docs/formulas.md#row-norm-sensitivity), exact adaSSP (docs/formulas.md#adassp), and the square of that third.
    theta_variance: of the prior.
    """

    noise: str
    d: int
    bound_x: float
    bound_y: float
    epsilon: float
    delta: float
    theta_variance: float

    def _multiplier(self, share: float = 1.0) -> float:
        of = authors_sigma if self.noise == "authors" else lambda e, d: analytic_gaussian_sigma(1.0, e, d)
        return of(self.epsilon * share, self.delta * share)

    def sensitivity(self, squares: bool) -> float:
        """L2 sensitivity of (S, z), or with y'y. The paper's (section 3.1, C.1) is that of adding or removing a record,
        while its neighbours differ in a replaced one: noise of this scale is too small, without y'y by a factor of
        sqrt(2) to 2 (docs/formulas.md#row-norm-sensitivity)."""
        adjacency = "replace-one" if self.noise == "replace-one" else "add-remove"
        return l2_sensitivity(self.d, self.bound_x, self.bound_y, squares=squares, adjacency=adjacency)

    def scale(self, squares: bool) -> float:
        """Standard deviation of every entry's noise."""
        return self.sensitivity(squares) * self._multiplier()

    @property
    def fast_sigma2(self) -> float:
        return (self.bound_y / 3) ** (2 if self.noise == "replace-one" else 1)

    def adassp(self, parties: int) -> AdaSSPNoise:
        """Noise of adaSSP. The authors' code: its multiplier at a third of (epsilon, delta) times X^2 and X Y
        (add-remove values) for S and z, Wang's own constant for the smallest eigenvalue and the ridge."""
        own = (self.d, self.bound_x, self.bound_y, self.epsilon, self.delta)
        if self.noise == "replace-one":
            return adassp_noise(*own, parties=parties)
        wang = adassp_noise(*own, parties=parties, constants="published")
        full = lambda value: np.full(parties, self._multiplier(1 / 3) * value)
        return AdaSSPNoise(
            wang.eigenvalue, full(self.bound_x**2), full(self.bound_x * self.bound_y), wang.shift, wang.ridge
        )


def wishart_scale(d: int, seed: Sequence[int]) -> np.ndarray:
    """Lambda = V'V with V standard normal `[d, d]`."""
    v = np.random.default_rng(seed).standard_normal((d, d))
    return v.T @ v


def prior_of(prior: Any, theta_variance: Any, scale: np.ndarray, *, conjugate: bool) -> Any:
    """Alparslan et al.'s prior, for problems with these variances of theta `[T]`; conjugate: theta | sigma2 ~ N(0,
    sigma2 (a - 1) / b I), which is what clt has in the authors' code in both of its versions."""
    import jax

    from dpjax.models import OriginRegression

    d, variance = scale.shape[-1], np.asarray(theta_variance, np.float64)
    if conjugate:
        variance = np.full(variance.shape, (prior.sigma2_shape - 1) / prior.sigma2_scale)
    one = OriginRegression.create(
        d, sigma2_shape=prior.sigma2_shape, sigma2_scale=prior.sigma2_scale, psi=scale, nu=d + 1.0,
        independent=not conjugate,
    )  # fmt: skip
    many = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), (len(variance), *leaf.shape)), one)
    return replace(many, theta_precision=(np.eye(d) / variance[:, None, None]).astype(np.float32))


def releases(sums: np.ndarray, levels: Sequence[Level], repetitions: int, squares: bool, seed: Sequence[int]) -> Any:
    """z and noise scale `[levels * R, J, D]`, level after level, from exact sums `[J, D]`; without `squares` no y'y.

    All levels have the same standard normals.
    """
    kept = sums if squares else sums[:, :-1]
    normals = np.random.default_rng([*seed, int(squares)]).standard_normal((repetitions, *kept.shape))
    scale = np.array([level.scale(squares) for level in levels])[:, None, None, None]
    scale = np.broadcast_to(scale, (len(levels), *normals.shape))
    flat = lambda a: a.reshape(-1, *kept.shape)
    return flat(kept + scale * normals), flat(scale)


@dataclass(frozen=True)
class Posterior:
    """Draws of theta `[T, C, S, d]` and their diagnostics; mean `[T, d]` where it is known without draws."""

    draws: np.ndarray
    diagnostics: Any
    seconds: float
    compile_seconds: float
    mean: np.ndarray | None = None

    @property
    def estimate(self) -> np.ndarray:
        """Posterior mean `[T, d]`."""
        return self.draws.mean((1, 2)) if self.mean is None else self.mean


def infer(
    method: str, sums: np.ndarray, n: np.ndarray, levels: Sequence[Level], repetitions: int, prior: Any,
    scale: np.ndarray, options: Any, seed: Sequence[int],
) -> Posterior:  # fmt: skip
    """One call for all repetitions of all levels.

    `clt` has releases of its own, with y'y and its larger noise; all others share theirs.
    """
    from dpjax.inference.run_method import run_method
    from dpjax.models.regression.problems import party_problems

    squares = method == "clt"
    z, noise = releases(sums, levels, repetitions, squares, [*seed, 0])
    if method == "fixed-s-fast":
        return fast(z, noise, levels, repetitions, options.draws, [*seed, 3])
    variances = np.repeat([level.theta_variance for level in levels], repetitions)
    base = prior_of(prior, variances, scale, conjugate=squares)
    problems = party_problems(z, n, noise, base, "gaussian", squares=squares)
    run = run_method(
        method, problems, seed=int(np.random.default_rng([*seed, 1]).integers(2**31)), chains=options.chains,
        draws=options.draws, thin=options.thin, rerun=False, settings=dict(options.settings),
    )  # fmt: skip
    places = [k for k, name in enumerate(run.names) if name.startswith("theta[")]
    draws = np.asarray(run.draws[..., places], np.float64)
    return Posterior(draws, run.diagnostics, run.seconds, run.compile_seconds)


def fast(
    z: np.ndarray, noise: np.ndarray, levels: Sequence[Level], repetitions: int, draws: int, seed: Sequence[int]
) -> Posterior:
    """Bayes-fixedS-fast in closed form (Algorithm 3), all releases at once, and independent draws from it."""
    import jax
    import jax.numpy as jnp

    from dpjax.kernels.party_steps import coefficient_information, coefficient_law, cross_root
    from dpjax.kernels.psd import clip_eigenvalues

    d = levels[0].d
    per_level = lambda values: np.repeat(np.asarray(values, np.float32), repetitions)
    gram, cross = (part.astype(np.float32) for part in matrices(z, d))
    one = np.float32(1.0)

    def posterior(gram, cross, variance, sigma2, theta_variance):
        seen = jnp.ones(d, jnp.float32)

        def party(gram, cross):
            near = clip_eigenvalues(gram, jnp.float32(0.0))
            return coefficient_information(cross_root(near, sigma2, variance * seen, seen), near, cross, seen)

        information, linear = (part.sum(0) for part in jax.vmap(party)(gram, cross))
        return coefficient_law(0.0 * seen, jnp.eye(d, dtype=jnp.float32) / theta_variance, information, linear)

    arguments = (
        gram, cross, (noise[:, 0, 0] ** 2).astype(np.float32), per_level([x.fast_sigma2 for x in levels]) * one,
        per_level([level.theta_variance for level in levels]),
    )  # fmt: skip
    compiled = jax.jit(jax.vmap(posterior))
    mean, root = (np.asarray(part, np.float64) for part in compiled(*arguments))
    start = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    seconds = time.perf_counter() - start
    normals = np.random.default_rng(seed).standard_normal((len(mean), 1, draws, d))
    made = mean[:, None, None] + np.einsum("tcsi,tij->tcsj", normals, root)
    return Posterior(made, None, seconds, 0.0, mean)


def adassp_estimates(sums: np.ndarray, level: Level, repetitions: int, seed: Sequence[int], parties: int) -> np.ndarray:
    """theta `[R, d]` of adaSSP, all repetitions in one call."""
    import jax
    from adassp import simulate_adassp

    gram, cross = matrices(sums, level.d)
    noise = level.adassp(parties)
    keys = jax.random.split(jax.random.key(int(np.random.default_rng([*seed, 2]).integers(2**31))), repetitions)
    many = jax.jit(jax.vmap(lambda key, gram, cross: simulate_adassp(key, gram, cross, noise), in_axes=(0, None, None)))
    return np.asarray(many(keys, gram.astype(np.float32), cross.astype(np.float32)).theta, np.float64)


def matrices(sums: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """S `[..., d, d]` and z `[..., d]` from entries."""
    i, j = np.triu_indices(d)
    gram = np.zeros((*sums.shape[:-1], d, d))
    gram[..., i, j] = sums[..., : len(i)]
    gram[..., j, i] = sums[..., : len(i)]
    return gram, sums[..., len(i) : len(i) + d]


def convergence(posterior: Posterior, rows: slice) -> dict[str, Any]:
    """R-hat and ESS of theta over these problems; nothing where the draws are independent."""
    found = posterior.diagnostics
    if found is None:
        return {}
    places = [k for k, name in enumerate(found.names) if name.startswith("theta[")]
    rhat = np.nan_to_num(found.rhat[rows][:, places], nan=np.inf)
    ess = np.nan_to_num(found.capped_bulk[rows][:, places])
    return {
        "rhat_above_1_05": float((rhat.max(1) > 1.05).mean()),
        "largest_rhat": float(rhat.max()),
        "smallest_ess": float(ess.min()),
        "median_ess": float(np.median(ess.min(1))),
    }


def summary(values: np.ndarray, level: float = 0.9) -> dict[str, Any]:
    """Mean over repetitions `[R]`, their standard deviation and the t interval of the mean (as the paper's Table 2)."""
    from scipy.stats import t

    values = np.asarray(values, np.float64)
    count = len(values)
    sd = float(values.std(ddof=1)) if count > 1 else math.nan
    reach = float(t.ppf((1 + level) / 2, count - 1)) * sd / math.sqrt(count) if count > 1 else math.nan
    mean = float(values.mean())
    return {"mean": mean, "sd": sd, "interval": [mean - reach, mean + reach]}


def chain_length(draws: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """What the length of the chains adds to the mean squared error of predictions at x with mean xx' `gram` `[d, d]`:
    the variance of the chains' means over their number, averaged over x `[T]`; draws `[T, C, S, d]`."""
    chains = draws.shape[1]
    if chains < 2:
        return np.full(len(draws), math.nan)
    means = draws.mean(2)
    off = means - means.mean(1, keepdims=True)
    return np.einsum("tci,ij,tcj->t", off, gram, off) / (chains - 1) / chains
