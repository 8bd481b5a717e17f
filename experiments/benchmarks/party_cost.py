"""Cost of one iteration and party of the samplers for several data holders, by the number of features.

    python experiments/benchmarks/party_cost.py --output results/party_cost.json [--quick]

Four parties, Gaussian noise, no y'y; a compiled loop of iterations over lanes (chains) whose number shrinks with the
size; the best of the repeats. `us` is microseconds per iteration, chain and party. `exponent` is the slope of log time
against log features over the rows from 14 on, `last_exponent` that of the last two rows; the arithmetic is O(p^3) but
for `clt`, O(p^6), which stops at 5.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

from dpjax._base.runtime import prepare_jax

os.environ.setdefault("DPJAX_CACHE", "off")  # compile times are measured
prepare_jax()  # as the command line does

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from run import machine, save

from dpjax.engine.model import Observed
from dpjax.mechanisms.noise import Noise
from dpjax.models.regression.origin import OriginRegression
from dpjax.models.regression.parties import PartySums
from dpjax.models.regression.party_layout import party_facts
from dpjax.samplers.fixed_s import FixedS
from dpjax.samplers.party_clt import Clt
from dpjax.samplers.party_gibbs import NormalX

PARTIES = 4
#: Features and lanes.
SIZES = ((2, 256), (5, 128), (14, 32), (30, 16), (100, 4))
SAMPLERS = {"normal-x": NormalX(), "normal-x, joint=False": NormalX(joint=False), "fixed-s": FixedS(), "clt": Clt()}


def problem(p: int, lanes: int, records: float = 5000.0, noise: float = 20.0):
    """One simulated problem on `lanes` lanes."""
    base = OriginRegression.create(p, theta_precision=float(p), psi=1.0, nu=p + 5.0, independent=True)
    present = np.ones((PARTIES, base.statistic_dim))
    present[:, -1] = 0
    model = PartySums(base, PARTIES)
    rng = np.random.default_rng(p)
    x = rng.normal(size=(int(records), p)) * 0.5
    r = np.concatenate([x, (x @ rng.normal(size=p) / p + 0.2 * rng.normal(size=len(x)))[:, None]], axis=1)
    products = r.T @ r
    i, j = model.places
    scale = np.where(present > 0, noise, 1.0).reshape(-1)
    z = (np.tile(products[i, j], PARTIES) / noise + rng.normal(size=scale.shape)) * present.reshape(-1)
    n = np.full(1, PARTIES * records)
    lanes_last = lambda tree: jax.tree.map(lambda x: np.asarray(x)[..., None], tree)
    noise = lanes_last(Noise.of("gaussian", scale, present.reshape(-1)).in_units())
    facts = lanes_last(party_facts(base, np.full(PARTIES, records)))
    observed = Observed(z[:, None], n / scale[:, None], np.sqrt(n) / scale[:, None], n, noise, facts)
    spread = lambda a: jnp.broadcast_to(jnp.asarray(a, jnp.float32), (*np.shape(a)[:-1], lanes))
    return jax.tree.map(lambda a: spread(np.asarray(a)[..., None]), model), jax.tree.map(spread, observed)


def measure(sampler, p: int, lanes: int, repeats: int, target: float) -> dict:
    model, observed = problem(p, lanes)
    if isinstance(sampler, FixedS):
        model = replace(model, reports=model.base.parameter_names[: p + 1])
    keys = random.split(random.key(0, impl="threefry2x32"), lanes)
    start = jax.jit(lambda k: sampler.init_lanes(model, observed, k, lanes))(keys)
    gain = jnp.zeros((), jnp.float32)

    def loop(count, carry, model, observed):
        def body(k, carry):
            own = jax.vmap(lambda key: random.fold_in(key, k.astype(jnp.uint32)))(keys)
            if isinstance(sampler, Clt):
                return sampler.step_lanes(model, observed, own, carry)
            return sampler.step_lanes(model, observed, own, carry, gain)[0]

        return lax.fori_loop(0, count, body, carry)

    begun = time.perf_counter()
    run = jax.jit(loop).lower(jnp.int32(1), start, model, observed).compile()
    compiling = time.perf_counter() - begun

    def timed(count: int) -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(jnp.int32(count), start, model, observed))
        return time.perf_counter() - begun

    timed(1)
    count = 2
    while timed(count) < target / 2 and count < 2**20:
        count *= 2
    best = min(timed(2 * count) for _ in range(repeats)) / (2 * count)
    return {"features": p, "lanes": lanes, "us": 1e6 * best / (lanes * PARTIES), "compile_seconds": compiling}


def slope(rows) -> float:
    x, y = np.log([r["features"] for r in rows]), np.log([r["us"] for r in rows])
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    out: dict = {"machine": machine(), "parties": PARTIES, "samplers": {}}
    print(f"{'sampler':24s} {'features':>8s} {'us':>12s} {'compile s':>10s}")
    for name, sampler in SAMPLERS.items():
        rows = []
        for p, lanes in SIZES[: 2 if options.quick or name == "clt" else None]:
            rows.append(measure(sampler, p, lanes, 1 if options.quick else 3, 0.05 if options.quick else 0.4))
            print(f"{name:24s} {p:8d} {rows[-1]['us']:12.2f} {rows[-1]['compile_seconds']:10.1f}", flush=True)
        out["samplers"][name] = {"rows": rows, "last_exponent": slope(rows[-2:])}
        large = [r for r in rows if r["features"] >= 14]
        if len(large) > 1:
            out["samplers"][name]["exponent"] = slope(large)
            print(f"{name:24s} grows as p^{slope(large):.2f} from 14, p^{slope(rows[-2:]):.2f} at the end")
    if options.output:
        save(out, options.output)


if __name__ == "__main__":
    main()
