"""Peers in one run: general samplers on the density that `collapsed` samples, side by side with it.

    python experiments/benchmarks/peers.py --output results/peers.json [--quick] [--problems 1 4 300 4096]

The problem: one feature, n = 1000, epsilon = 0.1, sensitivity 16/3, Bernstein and Sheldon's prior; z/b | phi, w is
normal with the exact statistics integrated out, w_j ~ Exponential(rate 1/2). The peers sample (phi, log w), ten
coordinates, with value and gradient in closed form by the same lane code as dpjax, in float32, on all devices where
there is more than one problem.

 numpyro-mcmc   NumPyro's MCMC(NUTS, chain_method="vectorized"), one problem after the other, as a user would run it
 numpyro-nuts   NumPyro's NUTS kernel under vmap over problems and chains
 blackjax-nuts  BlackJAX's window adaptation and NUTS under vmap over problems and chains
 blackjax-chees BlackJAX's ChEES, pooled over the chains of a problem, under vmap over problems

ESS/s: sum over problems of the smallest rank-normalised bulk ESS over the reported parameters, capped at the number of
draws, over the seconds of the compiled call, warm-up included and compilation apart. Each peer has the warm-up budget
of `collapsed` (its mode search included) and, in a second row, twice that. A row runs as many problems as it says
("run"): peers that would take longer than `--limit` seconds run fewer, and nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpjax._base.runtime import prepare_jax

os.environ.setdefault("DPJAX_CACHE", "off")  # compile times are measured
prepare_jax()  # as the command line does

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from blackjax.adaptation.base import get_filter_adapt_info_fn
from jax import lax, random
from jax.custom_batching import custom_vmap
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from numpyro.infer import MCMC, NUTS
from numpyro.infer.hmc import hmc
from run import machine, save, study

from dpjax.diagnostics.ranks import diagnose
from dpjax.engine.model import Observed
from dpjax.inference.run_method import run_method
from dpjax.kernels.marginal import gaussian_marginal
from dpjax.models import LinearRegression
from dpjax.samplers.collapsed import Collapsed

MODEL = LinearRegression.s0(1)
DIM, SIZE = MODEL.dim, MODEL.statistic_dim
RECORDS, EPSILON, SENSITIVITY = 1000, 0.1, 16 / 3
N_OVER_B = np.float32(RECORDS * EPSILON / SENSITIVITY)
ROOT_N_OVER_B = np.float32(np.sqrt(RECORDS) * EPSILON / SENSITIVITY)
RHAT_LIMIT, ESS_LIMIT = 1.05, 50.0
#: Problems side by side on a device (all lanes of a call wait for the deepest tree). Faster than 8; more than these
#: were not measured.
BLOCKS = {"numpyro-nuts": 32, "blackjax-nuts": 32, "blackjax-chees": 64}


# ---- the density ---------------------------------------------------------------------------------------------
def observed_lanes(z) -> Observed:
    """z in units of b `[D, B]` with the constants of every problem here."""
    one = jnp.ones_like(z)
    return Observed(z, one * N_OVER_B, one * ROOT_N_OVER_B, one[0] * np.float32(RECORDS))


def joint_lanes(x, z):
    """log p(phi, log w, z) `[B]` and its gradient `[P + D, B]` at x = (phi, log w), s integrated out."""
    phi, log_w = x[:DIM], x[DIM:]
    w, observed = jnp.exp(log_w), observed_lanes(z)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], MODEL)
    value, by_phi = model.log_density_and_grad_lanes(phi, w, observed)
    residual, covariance = model.residual_lanes(phi, observed)
    by_covariance = gaussian_marginal.lanes(residual, covariance, w)[2]
    by_w = jnp.stack([by_covariance[i, i] for i in range(SIZE)])
    # Exponential(1/2) and the Jacobian of the logarithm
    return value + (log_w - 0.5 * w).sum(0), jnp.concatenate([by_phi, by_w * w - 0.5 * w + 1.0])


@custom_vmap
def _flat(x, z):
    """`joint_lanes` whose batching rule makes any number of nested vmaps one lane axis."""
    return joint_lanes(x, z)


@_flat.def_vmap
def _flat_rule(size, batched, x, z):
    x, z = (
        a if is_batched else jnp.broadcast_to(a, (size, *a.shape))
        for a, is_batched in zip((x, z), batched, strict=True)
    )
    lanes = x.shape[-1]
    x, z = (jnp.moveaxis(a, 0, 1).reshape(a.shape[1], size * lanes) for a in (x, z))
    value, gradient = _flat(x, z)
    gradient = jnp.moveaxis(gradient.reshape(-1, size, lanes), 1, 0)
    return (value.reshape(size, lanes), gradient), (True, True)


def _one(x, z):
    value, gradient = _flat(x[:, None], z[:, None])
    return value[0], gradient[:, 0]


@jax.custom_vjp
def log_density(x, z):
    """log p(phi, log w, z) up to a constant for one chain: x `[P + D]`, z in units of b `[D]`."""
    return _one(x, z)[0]


log_density.defvjp(lambda x, z: _one(x, z), lambda gradient, c: (c * gradient, jnp.zeros_like(gradient[:SIZE])))


def report(x):
    """Reported parameters `[..., K]` of positions `[..., P + D]`."""
    flat = MODEL.report_lanes(x.reshape(-1, DIM + SIZE)[:, :DIM].T)
    return flat.T.reshape(*x.shape[:-1], -1)


# ---- the peers: (key, starts [C, P + D], z [D]) -> positions [C, draws, P + D] of one problem ---------------------
@dataclass(frozen=True)
class Setting:
    """A peer's settings: warm-up and kept iterations, full mass matrix, deepest tree (2^depth leapfrogs)."""

    warmup: int
    draws: int
    dense: bool = True
    depth: int = 10
    rate: float = 0.05


def numpyro_nuts(setting: Setting, key, starts, z):
    def chain(key, start):
        init, sample = hmc(potential_fn_gen=lambda z: lambda x: -log_density(x, z), algo="NUTS")
        state = init(
            start, setting.warmup, dense_mass=setting.dense, max_tree_depth=setting.depth, model_args=(z,), rng_key=key
        )

        def step(state, _):
            state = sample(state, (z,))
            return state, (state.z, state.num_steps)

        state, _ = lax.scan(lambda s, _: (sample(s, (z,)), None), state, length=setting.warmup)
        return lax.scan(step, state, length=setting.draws)[1]

    return jax.vmap(chain)(random.split(key, len(starts)), starts)


def blackjax_nuts(setting: Setting, key, starts, z):
    def chain(key, start):
        density = partial(log_density, z=z)
        k_warm, k_sample = random.split(key)
        adaptation = blackjax.window_adaptation(
            blackjax.nuts, density, is_mass_matrix_diagonal=not setting.dense,
            adaptation_info_fn=get_filter_adapt_info_fn(), max_num_doublings=setting.depth,
        )  # fmt: skip
        (state, parameters), _ = adaptation.run(k_warm, start, num_steps=setting.warmup)
        kernel = blackjax.nuts(density, **parameters).step

        def step(state, key):
            state, info = kernel(key, state)
            return state, (state.position, info.num_integration_steps)

        return lax.scan(step, state, random.split(k_sample, setting.draws))[1]

    return jax.vmap(chain)(random.split(key, len(starts)), starts)


def blackjax_chees(setting: Setting, key, starts, z):
    density = partial(log_density, z=z)
    k_warm, k_sample = random.split(key)
    adaptation = blackjax.chees_adaptation(
        density, len(starts), max_leapfrog_steps=2**setting.depth, adaptation_info_fn=get_filter_adapt_info_fn(),
        mass_matrix_estimation="diagonal" if setting.dense else None,
    )  # fmt: skip
    (states, parameters), _ = adaptation.run(
        k_warm, starts, 0.1, optax.adam(setting.rate), setting.warmup, max_sampling_steps=setting.draws
    )
    kernel = jax.vmap(blackjax.dynamic_hmc(density, **parameters).step)

    def step(states, key):
        states, info = kernel(random.split(key, len(starts)), states)
        return states, (states.position, info.num_integration_steps)

    _, out = lax.scan(step, states, random.split(k_sample, setting.draws))
    return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), out)


PEERS = {"numpyro-nuts": numpyro_nuts, "blackjax-nuts": blackjax_nuts, "blackjax-chees": blackjax_chees}


def starts_for(key, count: int, chains: int):
    """Around the prior's centre, a third of its deviation wide, and w = 2, the noise's mean variance.

    It is where dpjax starts its search for the mode. Draws from the prior leave more of the peers' chains stuck.
    """
    deviation = 1.0 / jnp.sqrt(jnp.diagonal(MODEL.prior_precision()))
    phi = MODEL.prior_center() + 0.3 * deviation * random.normal(key, (count, chains, DIM))
    return jnp.concatenate([phi, jnp.full((count, chains, SIZE), np.log(2.0), phi.dtype)], -1)


def program(peer, setting: Setting, devices: int):
    """One call on `devices` times as many problems as fit a device: vmap on each, devices side by side."""

    def one(keys, starts, z):
        positions, steps = jax.vmap(partial(peer, setting))(random.wrap_key_data(keys), starts, z)
        return report(positions), steps.astype(jnp.float32).mean((1, 2))

    if devices == 1:
        return jax.jit(one)
    mesh, spec = Mesh(np.array(jax.devices()[:devices]), ("problems",)), Spec("problems")
    return jax.jit(jax.shard_map(one, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False))


def place(tree, devices: int):
    if devices == 1:
        return tree
    mesh = Mesh(np.array(jax.devices()[:devices]), ("problems",))
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a), NamedSharding(mesh, Spec("problems"))), tree)


# ---- rows ----------------------------------------------------------------------------------------------------
def row(name, asked, ran, draws, seconds, compiling, **more) -> dict:
    """One line of the table; `draws` `[T, C, S, K]`."""
    diagnostics = diagnose(np.asarray(draws, np.float64), MODEL.parameter_names)
    ess = diagnostics.min_ess
    return {
        "sampler": name, "problems": asked, "problems_run": ran, "extrapolated": False, "chains": draws.shape[1],
        "draws": draws.shape[2], **more, "seconds": seconds, "compile_seconds": compiling,
        "ess_per_second": float(ess.sum() / seconds), "median_min_ess": float(np.median(ess)),
        "rhat_above_1_05": float((diagnostics.max_rhat > RHAT_LIMIT).mean()),
        "min_ess_below_50": float((ess < ESS_LIMIT).mean()),
    }  # fmt: skip


def show(r: dict) -> None:
    print(
        f"{r['sampler']:16s} {r['problems_run']:5d} {r['chains']:3d} {r.get('warmup', 0):5d} {r['draws']:5d} "
        f"{r['seconds']:9.3f} {r['compile_seconds']:8.1f} {r['ess_per_second']:11,.1f} {r['median_min_ess']:7.0f} "
        f"{r['rhat_above_1_05']:7.3f} {r['min_ess_below_50']:7.3f} {r.get('leapfrogs', float('nan')):9.1f}",
        flush=True,
    )


def timed(call, repeats: int, limit: float):
    """(last result, median seconds): up to `repeats` runs, no more once they took `limit` seconds together."""
    times, out = [], None
    while not times or (len(times) < repeats and sum(times) < limit):
        start = time.perf_counter()
        out = jax.block_until_ready(call(len(times) + 1))
        times.append(time.perf_counter() - start)
    return out, statistics.median(times), len(times)


def run_peer(name, setting: Setting, z, chains, asked, repeats, limit, block) -> dict:
    """Calls of `devices * block` problems, one after the other, until all are done or the limit is reached.

    The first call warms the machine up and is not counted.
    """
    devices = min(len(jax.devices()), len(z))
    size = devices * min(block, -(-len(z) // devices))
    compiled, compiling = None, 0.0
    out, times, wanted = [], [], max(-(-len(z) // size), repeats)
    for call in range(wanted + 1):
        k_start, k_run = random.split(random.fold_in(random.key(1), call))
        index = (np.arange(size) + max(call - 1, 0) * size) % len(z)
        keys = random.key_data(random.split(k_run, size))
        args = place((keys, starts_for(k_start, size, chains), z[index]), devices)
        jax.block_until_ready(args)
        if compiled is None:
            start = time.perf_counter()
            compiled = program(PEERS[name], setting, devices).lower(*args).compile()
            compiling = time.perf_counter() - start
        start = time.perf_counter()
        draws, steps = jax.block_until_ready(compiled(*args))
        spent = time.perf_counter() - start
        if call == 0 and spent < limit / 2:
            continue
        times.append(spent)
        out.append((np.asarray(draws), np.asarray(steps)))
        if sum(times) + spent > limit:
            break
    draws, steps = (np.concatenate(parts) for parts in zip(*out, strict=True))
    return row(
        name, asked, len(draws), draws, sum(times), compiling, warmup=setting.warmup, dense=setting.dense,
        leapfrogs=float(steps.mean()), problems_per_call=size,
    )  # fmt: skip


_COMPILING: list[float] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: _COMPILING.append(seconds) if event.endswith("backend_compile_duration") else None
)


def run_mcmc(setting: Setting, z, chains, asked, repeats, limit) -> dict:
    """NumPyro's own driver, one problem after the other; each is compiled for itself; tracing is in the seconds."""
    out, seconds, compiling, runs = [], 0.0, 0.0, 0
    for t, data in enumerate(z):
        # compiled, or the driver's evaluation of the start, outside of its own programs, compiles in every run
        potential = jax.jit(lambda x, d=data: -log_density(x, d))
        sampler = MCMC(
            NUTS(potential_fn=potential, dense_mass=setting.dense, max_tree_depth=setting.depth),
            num_warmup=setting.warmup, num_samples=setting.draws, num_chains=chains, chain_method="vectorized",
            progress_bar=False,
        )  # fmt: skip

        def run(k, sampler=sampler, t=t):
            starts = starts_for(random.key(100 + k), len(z), chains)[t]
            sampler.run(random.fold_in(random.key(k), t), init_params=starts)
            return report(sampler.get_samples(group_by_chain=True))

        start = time.perf_counter()
        run(0)
        first = time.perf_counter() - start
        _COMPILING.clear()
        draws, spent, runs = timed(run, repeats, limit / len(z))
        again = sum(_COMPILING) / runs  # the driver compiles its loop in every run
        out.append(np.asarray(draws))
        seconds, compiling = seconds + spent - again, compiling + max(first - spent + again, 0.0)
    return row(
        "numpyro-mcmc", asked, len(z), np.stack(out), seconds, compiling, warmup=setting.warmup,
        dense=setting.dense, runs=runs,
    )  # fmt: skip


def run_dpjax(problems, chains, draws, asked, repeats, limit) -> dict:
    runs, spent = [], 0.0
    compiling = 0.0
    while len(runs) < 2 or (len(runs) < repeats + 1 and spent < limit):
        runs.append(run_method("collapsed", problems, seed=len(runs), chains=chains, draws=draws))
        compiling, spent = compiling + runs[-1].compile_seconds, spent + runs[-1].seconds
    seconds = statistics.median(r.seconds for r in runs[1:])
    out = row(
        "dpjax collapsed", asked, len(problems), runs[-1].draws, seconds, compiling,
        warmup=Collapsed().warmup_iterations, leapfrogs=float(Collapsed().leapfrogs_for(DIM)), runs=len(runs) - 1,
    )  # fmt: skip
    return {**out, "reruns": runs[-1].reruns}


def check_density() -> float:
    """Largest relative difference of the peers' gradient from automatic differentiation of an independent spelling."""
    k_x, k_z = random.split(random.key(5))
    x = starts_for(k_x, 1, 8)[0] + 0.1 * random.normal(k_x, (8, DIM + SIZE))
    z = 100.0 * random.normal(k_z, (8, SIZE))

    def plain(x, z):
        mean, covariance = MODEL.moments(x[:DIM])
        w = jnp.exp(x[DIM:])
        a = covariance * ROOT_N_OVER_B**2 + jnp.diag(w)
        r = z - N_OVER_B * mean
        value = -0.5 * (jnp.linalg.slogdet(a)[1] + r @ jnp.linalg.solve(a, r)) + MODEL.log_prior(x[:DIM])
        return value + (x[DIM:] - 0.5 * w).sum()

    ours, theirs = (jax.vmap(jax.value_and_grad(f))(x, z) for f in (log_density, plain))
    return max(float((jnp.abs(a - b) / (1.0 + jnp.abs(b))).max()) for a, b in zip(ours, theirs, strict=True))


def side_by_side(count: int, options) -> list[dict]:
    """All samplers at one number of problems; the doubled warm-up where a second row is affordable."""
    problems = study(count).problems
    z = jnp.asarray(problems.z / problems.scale, jnp.float32)
    chains, draws = (4, 1000) if count < 100 else (2, 500)
    draws, repeats, limit = (100, 1, 5.0) if options.quick else (draws, options.repeats, options.limit)
    budget = Collapsed().warmup_iterations + Collapsed().mode_steps
    rows = [run_dpjax(problems, chains, draws, count, repeats, limit)]
    show(rows[0])
    # the doubled budget once among many problems: with thousands it is the same program as with hundreds
    for warmup in (budget, 2 * budget) if count < 1000 and not options.quick else (budget,):
        setting = Setting(warmup, draws, dense=True, depth=10)
        if count < 100:
            rows.append(run_mcmc(setting, z, chains, count, repeats, limit))
            show(rows[-1])
        for name in PEERS:
            rows.append(run_peer(name, setting, z, chains, count, repeats, limit, BLOCKS[name]))
            show(rows[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--problems", type=int, nargs="*", default=None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=25.0, help="seconds of one row, compilation apart")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*chain.*")
    counts = options.problems or ([1, 4] if options.quick else [1, 4, 300, 4096])
    where = machine() | {"numpyro": numpyro.__version__, "blackjax": blackjax.__version__}
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    difference = check_density()
    print(f"peers' density: value and gradient within {difference:.1e} (relative) of automatic differentiation")
    if not difference < 1e-2:
        raise SystemExit("the peers' density is not that of the model")
    results = {"machine": where, "density_check": difference, "limit_seconds": options.limit, "rows": [], "ratios": []}
    print(
        f"{'sampler':16s} {'run':>5s} {'ch':>3s} {'warm':>5s} {'draws':>5s} {'seconds':>9s} {'compile':>8s} "
        f"{'ESS/s':>11s} {'minESS':>7s} {'R>1.05':>7s} {'<50':>7s} {'leapfrogs':>9s}"
    )
    for count in counts:
        print(f"-- {count} problems")
        rows = side_by_side(count, options)
        best = max(rows[1:], key=lambda r: r["ess_per_second"])
        ratio = rows[0]["ess_per_second"] / best["ess_per_second"]
        results["rows"] += rows
        results["ratios"].append({"problems": count, "best_peer": best["sampler"], "dpjax_over_best_peer": ratio})
        print(f"   dpjax / best peer ({best['sampler']}, {best['problems_run']} problems run): {ratio:,.0f}x")
        save(results, options.output)  # after each size, so that an interrupted run leaves what it measured


if __name__ == "__main__":
    main()
