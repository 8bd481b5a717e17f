"""Fixed releases of a regression with one feature against an independent reference: is a wrong answer ever silent?

    python experiments/benchmarks/sweep_regression.py [--releases 300] [--output FILE]

Releases are drawn over n (1 to 10^7), noise, Laplace or Gaussian, and priors (the default, weak, strong and right,
strong and wrong conjugate ones); sums come from the model at a truth, at its edges (feature nearly constant, R^2 near
1) or from far outside of the prior. The posterior is that of `collapsed` as `fit` runs it (4 chains x 1,000 draws,
reruns). The reference is tempered sequential Monte Carlo over the parameters and the noise variances, written here
from the model's definition and sharing no code with the package, repeated with independent particles. Compared are the
probabilities that the draws put below the reference's 5, 50 and 95% points, in Monte Carlo errors of both.

The reference has limits of its own. Where it and the draws differ by more than 3 errors it is run again with twelve
times as many moves. Where they still differ, the masses of the modes near both are compared by Laplace's approximation
over parameters and noise variances: tempering from the prior may leave a mode behind that holds nearly everything. A
reference that did so is no reference, and the release is not judged.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.optimize import minimize

from dpjax.engine.problems import Problems
from dpjax.inference.run_method import run_method
from dpjax.models import LinearRegression, WeakRegression

LEVELS = np.array([0.05, 0.5, 0.95])
NAMES = ("theta[0]", "theta[1]", "sigma2", "mu_x[1]", "tau2[1,1]")
#: Deviation in Monte Carlo errors that is a wrong answer.
LIMIT = 5.0
#: A mode that holds exp(this) times as much as the reference's was missed by the reference.
MISSED = 5.0
PRIORS = ("default", "weak", "right", "wrong")


# ---- the reference: definition of the model, nothing of the package ------------------------------------------------
def _record(phi, weak):
    """Mean and covariance of (x, y), and the reported parameters, from five unconstrained numbers."""
    if weak:
        m, sx, sy, r = phi[:2], jnp.exp(phi[2]), jnp.exp(phi[3]), jnp.tanh(phi[4])
        vx, vy, cxy = sx * sx, sy * sy, r * sx * sy
        slope, rest = r * sy / sx, vy / jnp.cosh(phi[4]) ** 2
        return m, vx, cxy, vy, jnp.stack([m[1] - slope * m[0], slope, rest, m[0], vx])
    mx, t0, t1, s2, vx = phi[0], phi[1], phi[2], jnp.exp(phi[3]), jnp.exp(phi[4])
    m = jnp.stack([mx, t0 + t1 * mx])
    return m, vx, t1 * vx, t1 * t1 * vx + s2, jnp.stack([t0, t1, s2, mx, vx])


def _log_prior(phi, weak, h):
    if weak:  # m ~ N(0, .75^2); s: s^.5 exp(-s^2 / .72), level under .006; R^2 ~ Beta(1/2, 3/4), level under .005
        log_s, z = phi[2:4], phi[4]
        s2 = jnp.exp(2.0 * log_s)
        scales = 0.25 * jnp.log(s2 + 0.006**2) - 0.5 * s2 / 0.36 + log_s
        left = 1.0 / jnp.cosh(z) ** 2
        return -0.5 * (phi[:2] ** 2).sum() / 0.75**2 + scales.sum() + 0.25 * jnp.log(left + 0.005) + 0.5 * jnp.log(left)
    mx, theta, ls2, lv = phi[0], phi[1:3], phi[3], phi[4]
    off = theta - h["theta_mean"]
    value = -h["shape"] * ls2 - jnp.exp(-ls2) * (h["scale"] + 0.5 * h["precision"] * (off * off).sum()) - ls2
    return (
        value - 0.5 * h["nu"] * lv - 0.5 * jnp.exp(-lv) * (h["psi"] + h["kappa"] * (mx - h["x_mean"]) ** 2) - 0.5 * lv
    )


def _log_likelihood(phi, log_w, weak, z, n, b):
    """log N(z; n mu, n Sigma + diag(w b^2)) by the moments of normal products (Isserlis)."""
    m, vx, cxy, vy, _ = _record(phi, weak)
    mx, my = m[0], m[1]
    mean = jnp.stack([mx, vx + mx * mx, my, cxy + mx * my, vy + my * my])
    c = jnp.stack([jnp.stack([vx, cxy]), jnp.stack([cxy, vy])])
    full_m = jnp.stack([jnp.ones_like(mx), mx, my])
    full_c = jnp.zeros((3, 3), c.dtype).at[1:, 1:].set(c)
    one, two = np.array([0, 1, 0, 1, 2]), np.array([1, 1, 2, 2, 2])
    cov = jnp.stack(
        [
            jnp.stack(
                [
                    full_c[i, k] * full_c[j, h] + full_c[i, h] * full_c[j, k] + full_c[i, k] * full_m[j] * full_m[h]
                    + full_c[i, h] * full_m[j] * full_m[k] + full_c[j, k] * full_m[i] * full_m[h]
                    + full_c[j, h] * full_m[i] * full_m[k]
                    for k, h in zip(one, two, strict=True)
                ]
            )
            for i, j in zip(one, two, strict=True)
        ]
    )  # fmt: skip
    a = cov * (n / (b * b)) + jnp.diag(jnp.exp(log_w))
    r = (z - n * mean) / b
    log_det = jnp.zeros_like(mx)
    for k in range(5):  # elimination of the bordered matrix
        pivot = a[k, k]
        log_det = log_det + jnp.log(pivot)
        factor = a[k + 1 :, k] / pivot
        a = a.at[k + 1 :, k + 1 :].add(-factor[:, None] * a[k, k + 1 :][None])
        r = r.at[k + 1 :].add(-factor * r[k])
        a = a.at[k, k].set(pivot)
    quadratic = sum(r[k] ** 2 / a[k, k] for k in range(5))
    value = -0.5 * (log_det + quadratic)
    return jnp.where(jnp.isfinite(value), value, -1e30)


def _start(key, weak, h, count):
    """Draws from the prior `[count, 5]` (weak: from a law near it; the first temperatures mend the rest)."""
    k = jax.random.split(key, 6)
    normal = partial(jax.random.normal, shape=(count,), dtype=jnp.float64)
    if weak:
        log_s = [jnp.log(jnp.sqrt(2.0 * 0.36 * jax.random.gamma(i, 0.75, (count,), jnp.float64))) for i in k[:2]]
        ratio = jnp.tanh(0.5 * (jax.random.logistic(k[2], (count,), jnp.float64)))
        return jnp.stack([0.75 * normal(k[3]), 0.75 * normal(k[4]), *log_s, 1.3 * jnp.arctanh(0.999 * ratio)], 1)
    s2 = h["scale"] / jax.random.gamma(k[0], h["shape"], (count,), jnp.float64)
    v = 0.5 * h["psi"] / jax.random.gamma(k[1], 0.5 * h["nu"], (count,), jnp.float64)
    theta = [h["theta_mean"][i] + jnp.sqrt(s2 / h["precision"]) * normal(k[2 + i]) for i in range(2)]
    return jnp.stack([h["x_mean"] + jnp.sqrt(v / h["kappa"]) * normal(k[4]), *theta, jnp.log(s2), jnp.log(v)], 1)


@partial(jax.jit, static_argnames=("weak", "laplace", "count", "temperatures", "moves"))
def smc(key, weak, laplace, h, z, n, b, count=1000, temperatures=50, moves=12):
    """Particles of the posterior: reported parameters `[count, 5]` and the last temperature (1: done)."""
    k_start, k_w, k_run = jax.random.split(key, 3)
    phi = _start(k_start, weak, h, count)
    # the reference law of the first temperature is this sample's own; weak: it is re-weighted to the prior below
    log_w = jnp.log(2.0 * jax.random.exponential(k_w, (count, 5), jnp.float64)) if laplace else jnp.zeros((count, 5))
    x = jnp.concatenate([phi, log_w], 1) if laplace else phi

    def prior(x):
        value = _log_prior(x[:5], weak, h)
        return value + (x[5:] - 0.5 * jnp.exp(x[5:])).sum() if laplace else value

    def likelihood(x):
        return _log_likelihood(x[:5], x[5:] if laplace else jnp.zeros(5), weak, z, n, b)

    many_prior, many_likelihood = jax.vmap(prior), jax.vmap(likelihood)

    def move(carry, key, power, factor):
        x, p, like = carry
        k_step, k_size, k_accept = jax.random.split(key, 3)
        size = jnp.exp(jax.random.uniform(k_size, (len(x), 1), jnp.float64, -3.5, 0.3))
        proposed = x + size * jax.random.normal(k_step, x.shape, jnp.float64) @ factor.T
        p2, like2 = many_prior(proposed), many_likelihood(proposed)
        ratio = p2 - p + power * (like2 - like)
        take = jnp.log(jax.random.uniform(k_accept, ratio.shape, jnp.float64)) < ratio
        return (
            jnp.where(take[:, None], proposed, x),
            jnp.where(take, p2, p),
            jnp.where(take, like2, like),
        ), take.mean()

    def factor_of(x):
        apart = x - x.mean(0)
        c = apart.T @ apart / len(x) + 1e-12 * jnp.eye(x.shape[1])
        out = jnp.zeros_like(c)
        for j in range(x.shape[1]):  # Cholesky, written out: no batched LAPACK on a CPU cut into devices
            column = c[:, j] / jnp.sqrt(jnp.maximum(c[j, j], 1e-14))
            column = jnp.where(jnp.arange(len(c)) >= j, column, 0.0)
            out = out.at[:, j].set(column)
            c = c - column[:, None] * column[None]
        return out

    def stage(carry, key):
        x, p, like, power = carry

        def effective(step):
            w = jnp.exp(step * (like - like.max()))
            return w.sum() ** 2 / (w * w).sum()

        def halve(_, ends):
            middle = 0.5 * (ends[0] + ends[1])
            good = effective(middle) > 0.6 * count
            return jnp.where(good, middle, ends[0]), jnp.where(good, ends[1], middle)

        rest = 1.0 - power
        low, _ = lax.fori_loop(0, 50, halve, (jnp.zeros_like(rest), rest))
        step = jnp.where(effective(rest) > 0.6 * count, rest, low)
        k_choose, k_move = jax.random.split(key)
        w = jnp.exp(step * (like - like.max()))
        cdf = jnp.cumsum(w) / w.sum()
        u = (jnp.arange(count) + jax.random.uniform(k_choose, (), jnp.float64)) / count
        index = jnp.clip(jnp.searchsorted(cdf, u), 0, count - 1)
        x, p, like = x[index], p[index], like[index]
        power = power + step
        factor = factor_of(x)
        (x, p, like), accept = lax.scan(
            lambda c, k: move(c, k, power, factor), (x, p, like), jax.random.split(k_move, moves)
        )
        return (x, p, like, power), accept.mean()

    k_warm, k_stages = jax.random.split(k_run)
    carry = (x, many_prior(x), many_likelihood(x))
    factor = factor_of(x)
    carry, _ = lax.scan(lambda c, k: move(c, k, 0.0, factor), carry, jax.random.split(k_warm, 40))
    (x, _, _, power), _ = lax.scan(stage, (*carry, jnp.zeros(())), jax.random.split(k_stages, temperatures))
    return jax.vmap(lambda y: _record(y, weak)[4])(x[:, :5]), power


# ---- the releases ---------------------------------------------------------------------------------------------------
def releases(count: int, seed: int = 3):
    """Rows with prior, hyperparameters, mechanism, sums, records and scale."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        prior, laplace = PRIORS[i % 4], bool(rng.random() < 0.7)
        n = float(np.round(10 ** rng.uniform(0.0, 7.0)))
        kind = ("typical", "edge", "far")[int(rng.integers(3))]
        mean, sd = rng.uniform(-0.8, 0.8, 2), 10 ** rng.uniform(-0.9, -0.2, 2)
        r = rng.uniform(-0.9, 0.9)
        if kind == "edge":
            sd[0], r = 10 ** rng.uniform(-2.0, -1.0), np.sign(r) * rng.choice([0.0, 0.995])
        # the noise from a thousandth of a sum's sampling deviation to hundreds of times it
        b = float(np.sqrt(n) * 10 ** rng.uniform(-2.0, 2.5))
        slope, s2 = r * sd[1] / sd[0], sd[1] ** 2 * (1 - r * r)
        theta = np.array([mean[1] - slope * mean[0], slope])
        h = {"theta_mean": np.zeros(2), "precision": 0.15, "shape": 3.0, "scale": 0.3, "x_mean": 0.0, "kappa": 1.0,
             "psi": 1.0, "nu": 6.0}  # fmt: skip
        if prior in ("right", "wrong"):
            off = 0.0 if prior == "right" else 1.0
            h |= {"theta_mean": theta + off, "precision": 4.0, "shape": 20.0, "scale": 20.0 * s2 * (4.0 if off else 1.0),
                  "x_mean": mean[0] + 0.3 * off, "kappa": 5.0, "psi": 20.0 * sd[0] ** 2 * (4.0 if off else 1.0),
                  "nu": 20.0}  # fmt: skip
        c = np.array([[sd[0] ** 2, r * sd[0] * sd[1]], [r * sd[0] * sd[1], sd[1] ** 2]])
        total = n * mean + np.sqrt(n) * rng.multivariate_normal(np.zeros(2), c)
        # sums of squares by their normal law: n E + deviations is enough for a fixed release
        second = n * (c + np.outer(mean, mean)) + np.sqrt(n) * np.outer(sd, sd) * rng.normal() * 0.5
        s = np.array([total[0], second[0, 0], total[1], second[0, 1], second[1, 1]])
        noise = b * (rng.laplace(size=5) if laplace else rng.normal(size=5))
        if kind == "far":
            noise *= 4.0
        rows.append({"prior": prior, "laplace": laplace, "kind": kind, "n": n, "b": b, "z": s + noise, "h": h})
    return rows


def posteriors(rows, indices):
    """A run of `collapsed` over rows of one kind of prior and noise."""
    weak, laplace = rows[indices[0]]["prior"] == "default", rows[indices[0]]["laplace"]
    if weak:
        model = WeakRegression.create(1)
    else:
        made = [rows[i]["h"] for i in indices]
        each = [
            LinearRegression.create(
                1, theta_mean=h["theta_mean"], theta_precision=h["precision"] * np.eye(2), sigma2_shape=h["shape"],
                sigma2_scale=h["scale"], x_mean=h["x_mean"], kappa=h["kappa"], psi=h["psi"], nu=h["nu"],
            )
            for h in made
        ]  # fmt: skip
        model = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
    z, n, b = (np.array([rows[i][key] for i in indices]) for key in ("z", "n", "b"))
    problems = Problems(z, n, np.repeat(b[:, None], 5, 1), model, "laplace" if laplace else "gaussian")
    return run_method("collapsed", problems, seed=1, chains=4, draws=1000)


def _coordinates(values, weak):
    """The five unconstrained numbers of reported parameters (intercept, slope, residual variance, mean, variance)."""
    t0, t1, s2, mx, vx = values
    if not weak:
        return np.array([mx, t0, t1, np.log(s2), np.log(vx)])
    vy = s2 + t1 * t1 * vx
    r = np.clip(t1 * np.sqrt(vx / vy), -1 + 1e-9, 1 - 1e-9)
    return np.array([mx, t0 + t1 * mx, 0.5 * np.log(vx), 0.5 * np.log(vy), np.arctanh(r)])


@partial(jax.jit, static_argnames=("weak", "laplace"))
def _log_joint(x, weak, laplace, h, z, n, b):
    value = _log_prior(x[:5], weak, h)
    w = x[5:] if laplace else jnp.zeros(5)
    value += (w - 0.5 * jnp.exp(w)).sum() if laplace else 0.0
    return value + _log_likelihood(x[:5], w, weak, z, n, b)


_slope = jax.jit(jax.grad(_log_joint), static_argnames=("weak", "laplace"))
_bend = jax.jit(jax.hessian(_log_joint), static_argnames=("weak", "laplace"))


def log_mass(values, row):
    """Laplace's approximation of the mass of the mode near reported parameters `[5]` (minus infinity: none found)."""
    weak, laplace = row["prior"] == "default", row["laplace"]
    h = {name: jnp.asarray(value, jnp.float64) for name, value in row["h"].items()}
    args = (weak, laplace, h, jnp.asarray(row["z"]), jnp.asarray(row["n"]), jnp.asarray(row["b"]))
    phi = _coordinates(values, weak)
    if laplace:  # a noise of r scales is best explained by a variance of about |r|
        t0, t1, s2, mx, vx = values
        my = t0 + t1 * mx
        mean = np.array([mx, vx + mx * mx, my, t1 * vx + mx * my, s2 + t1 * t1 * vx + my * my])
        phi = np.concatenate([phi, np.log(np.maximum(np.abs(row["z"] - row["n"] * mean) / row["b"], 0.5))])
    with np.errstate(all="ignore"):
        found = minimize(
            lambda x: -float(_log_joint(jnp.asarray(x), *args)), phi,
            jac=lambda x: -np.asarray(_slope(jnp.asarray(x), *args)),
            hess=lambda x: -np.asarray(_bend(jnp.asarray(x), *args)),
            method="trust-exact", options={"maxiter": 3000, "initial_trust_radius": 0.05, "max_trust_radius": 0.3},
        )  # fmt: skip
        roots = np.linalg.eigvalsh(-np.asarray(_bend(jnp.asarray(found.x), *args)))
    return -found.fun - 0.5 * np.log(roots).sum() if (roots > 0).all() else -np.inf


def judge(row, draws, ess, repeats, key):
    """As `compare`, with a better reference where the first differs; last, whether it can be judged by it."""
    found = compare(row, draws, ess, repeats, key, moves=12)
    if found[0] <= 3.0:
        return found[:3]
    size, where, done, centre = compare(row, draws, ess, repeats, jax.random.fold_in(key, 1), moves=150)
    if size > LIMIT and log_mass(np.median(draws, 0), row) > log_mass(centre, row) + MISSED:
        done = False
    return size, where, done


def compare(row, draws, ess, repeats, key, moves):
    """Largest deviation in Monte Carlo errors, where it is, whether the reference came to its end, and its medians."""
    weak = row["prior"] == "default"
    h = {name: jnp.asarray(value, jnp.float64) for name, value in row["h"].items()}
    args = (jnp.asarray(row["z"]), jnp.asarray(row["n"]), jnp.asarray(row["b"]))
    runs = [smc(k, weak, row["laplace"], h, *args, moves=moves) for k in jax.random.split(key, repeats)]
    done = all(float(power) > 1.0 - 1e-9 for _, power in runs)
    values = np.stack([np.asarray(x) for x, _ in runs])  # [R, N, 5]
    points = np.quantile(values.reshape(-1, 5), LEVELS, axis=0)  # [3, 5]
    by_run = (values[:, :, None] <= points.transpose()[None, None].transpose(0, 1, 3, 2)).mean(1)  # [R, 3, 5]
    reference, error = by_run.mean(0), by_run.std(0, ddof=1) / np.sqrt(repeats)
    mine = (draws[:, None] <= points[None]).mean(0)
    own = np.sqrt(LEVELS * (1 - LEVELS))[:, None] / np.sqrt(ess)[None]
    floor = np.sqrt(LEVELS * (1 - LEVELS))[:, None] / np.sqrt(repeats * 300.0)
    size = np.abs(mine - reference) / np.sqrt(np.maximum(error, floor) ** 2 + own**2)
    level, name = np.unravel_index(size.argmax(), size.shape)
    return float(size.max()), f"{NAMES[name]} at {LEVELS[level]:g}", done, points[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    begin = time.time()
    rows = releases(args.releases, args.seed)
    groups: dict = {}
    for i, row in enumerate(rows):
        groups.setdefault((row["prior"] == "default", row["laplace"]), []).append(i)
    found: list = [None] * len(rows)
    for indices in groups.values():
        run = posteriors(rows, indices)
        diagnostics = run.diagnostics
        marked = diagnostics.unreliable(1.05, 100.0) | (diagnostics.min_ess_tail < 100.0) | (run.codes != 0).any(1)
        with jax.enable_x64(True):
            for place, i in enumerate(indices):
                draws = np.asarray(run.draws[place], np.float64).reshape(-1, 5)
                ess = np.minimum(np.minimum(diagnostics.ess_bulk[place], diagnostics.ess_tail[place]), len(draws))
                size, where, done = judge(rows[i], draws, np.maximum(ess, 1.0), args.repeats, jax.random.key(i))
                found[i] = {
                    "prior": rows[i]["prior"], "kind": rows[i]["kind"], "laplace": rows[i]["laplace"], "n": rows[i]["n"],
                    "scale": rows[i]["b"], "deviation": round(size, 2), "where": where, "reference_done": done,
                    "marked": bool(marked[place]), "rerun": bool(run.rerun_mask[place]),
                }  # fmt: skip
    judged = [row for row in found if row["reference_done"]]
    silent = [row for row in judged if row["deviation"] > LIMIT and not row["marked"]]
    sizes = [row["deviation"] for row in judged if not row["marked"]]
    summary = {
        "releases": len(found), "judged": len(judged), "marked": sum(row["marked"] for row in found),
        "rerun": sum(row["rerun"] for row in found), "silent_deviations": len(silent),
        "largest_unmarked": max(sizes), "quantiles_of_unmarked": np.quantile(sizes, [0.5, 0.9, 0.99]).round(2).tolist(),
        "seconds": round(time.time() - begin, 1),
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    for row in sorted(judged, key=lambda row: -row["deviation"])[:15]:
        print(row)
    if args.output:
        args.output.write_text(json.dumps({"summary": summary, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
