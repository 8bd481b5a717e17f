"""What this machine can do, what a step of each sampler needs, and how far the measured step is from that.

    python experiments/benchmarks/floor.py --output results/floor.json [--quick] [--only rates floors growth]

Rates are measured through JAX, inside one compiled loop of a traced length whose state feeds every next pass, on
arrays that stay in cache unless the row says otherwise; each is the best of several repeats. A step's operations are
counted from its jaxpr, per chain. The floor of a step on one core is

    max( sum over kinds of operations / rate of the kind,  bytes of state read and written / bandwidth )

The sum assumes that kinds do not overlap in the core, so it is a floor for code that runs each kind at its measured
rate, not a law of nature; additions and multiplications are counted at the rate of fused pairs, which is optimistic.
Moving data about (gather, concatenate, pad, broadcast, transpose) is not counted at all. Counting takes the cheapest
branch of a `cond` (the steps that count do not re-centre); the count with the dearest branches is beside it. A loop of
unknown length counts as no pass ("loops of unknown length": the exact fallback of the gamma draw, seldom entered).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

from dpjax._base.runtime import prepare_jax

os.environ.setdefault("DPJAX_CACHE", "off")  # compile times are measured
prepare_jax()  # as the command line does

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from run import machine, save, study

from dpjax.engine.model import Observed
from dpjax.engine.run import run_chains
from dpjax.kernels.streams import normals_and_uniforms_lanes, threefry2x32
from dpjax.samplers.collapsed import Collapsed
from dpjax.samplers.gibbs import Gibbs

WIDTH = 2048  # elements of the arrays in cache: 8 KB
LANES = 512


# ---- rates ---------------------------------------------------------------------------------------------------
def seconds_per_pass(body, state, repeats: int = 5, target: float = 0.05, devices: int = 1) -> float:
    """Best seconds of one pass of `body` (state -> state) inside a compiled loop, the same on each device at once."""

    def loop(count, state):
        return lax.fori_loop(0, count, lambda _, x: body(x), state)

    if devices > 1:
        mesh = Mesh(np.array(jax.devices()[:devices]), ("all",))
        place = NamedSharding(mesh, Spec("all"))
        state = jax.tree.map(lambda x: jax.device_put(np.stack([np.asarray(x)] * devices), place), state)

        def one(count, stacked):
            out = loop(count, jax.tree.map(lambda x: x[0], stacked))
            return jax.tree.map(lambda x: x[None], out)

        run = jax.jit(
            jax.shard_map(one, mesh=mesh, in_specs=(Spec(), Spec("all")), out_specs=Spec("all"), check_vma=False)
        )
    else:
        run = jax.jit(loop)

    def timed(count: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run(jnp.asarray(count, jnp.int32), state))
        return time.perf_counter() - start

    timed(1)
    count = 4
    while timed(count) < target / 4 and count < 2**28:
        count *= 4
    # the difference of two lengths leaves dispatch out
    best = min(timed(5 * count) for _ in range(repeats)) - min(timed(count) for _ in range(repeats))
    return max(best, 1e-12) / (4 * count)


def _pair(links: int):
    """`links` dependent multiply-adds on every element."""

    def body(state):
        x, a, b = state
        for _ in range(links):
            x = x * a + b
        return x, a, b

    return body


def arithmetic(quick: bool) -> dict[str, float]:
    """Operations per second of one core by kind (a fused multiply-add is two)."""
    repeats = 2 if quick else 5
    x = jnp.full(WIDTH, 0.5, jnp.float32)
    a, b = x + 0.1, x - 0.3
    rates = {}
    times = {k: seconds_per_pass(_pair(k), (x, a, b), repeats) for k in (8, 32, 64)}
    rates["fma_ops"] = max(2 * k * WIDTH / t for k, t in times.items())
    devices = len(jax.devices())
    best = min(times, key=lambda k: times[k] / k)
    together = seconds_per_pass(_pair(best), (x, a, b), repeats, devices=devices)
    rates["fma_ops_all_devices"] = 2 * best * WIDTH * devices / together
    # each keeps its argument in a harmless range; the added multiply-add is part of the figure
    kinds = {
        "exp": lambda v: lax.exp(-0.5 * v),
        "log": lambda v: lax.log(v + 1.5),
        "log1p": lambda v: lax.log1p(v * v),
        "erf_inv": lambda v: lax.erf_inv(0.5 * v + 0.25),
        "sqrt": lambda v: lax.sqrt(v + 1.0),
        "rsqrt": lambda v: lax.rsqrt(v + 1.0),
        "div": lambda v: 1.0 / (v + 1.0),
        "compare": lambda v: jnp.where(v > 0.7, v - 0.3, v + 0.1),
    }
    for name, f in kinds.items():

        def body(v, f=f):
            return f(f(f(f(v))))

        # a comparison comes with its select
        rates[name] = (8 if name == "compare" else 4) * WIDTH / seconds_per_pass(body, x, repeats)
    return rates


def _multiply(a: int, b):
    """High and low word of a * b for 32-bit words, without 64-bit integers (which JAX has only in 64-bit mode)."""
    low16, high16 = np.uint32(a & 0xFFFF), np.uint32(a >> 16)
    b_low, b_high = b & np.uint32(0xFFFF), b >> np.uint32(16)
    low = low16 * b_low
    middle = high16 * b_low + (low >> np.uint32(16))
    other = low16 * b_high + (middle & np.uint32(0xFFFF))
    return high16 * b_high + (middle >> np.uint32(16)) + (other >> np.uint32(16)), np.uint32(a) * b


def philox(key0, key1, c, rounds: int = 10):
    """Philox-4x32 (Salmon et al. 2011) written out."""
    c0, c1, c2, c3 = c
    for _ in range(rounds):
        h0, l0 = _multiply(0xD2511F53, c0)
        h1, l1 = _multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = h1 ^ c1 ^ key0, l1, h0 ^ c3 ^ key1, l0
        key0, key1 = key0 + np.uint32(0x9E3779B9), key1 + np.uint32(0xBB67AE85)
    return c0, c1, c2, c3


def random_words(quick: bool, words: int = 28) -> dict[str, float]:
    """32-bit words per second of one core, `words` per key and pass (normals: the map to normals included)."""
    repeats = 2 if quick else 5
    data = random.key_data(random.split(random.key(1), LANES)).T  # [2, LANES]
    counter = jnp.arange(words // 2, dtype=jnp.uint32)[:, None]
    first, second = jnp.broadcast_to(counter, (words // 2, LANES)), jnp.broadcast_to(counter + 99, (words // 2, LANES))

    def keys(d):
        return random.wrap_key_data(d.T, impl="threefry2x32")

    # every word takes part in the next key, or XLA would not compute it
    def mixed(*parts):
        words_ = [jnp.bitwise_xor.reduce(lax.bitcast_convert_type(p, jnp.uint32), axis=0) for p in parts]
        total = words_[0]
        for w in words_[1:]:
            total = total ^ w
        return jnp.stack([total, total * np.uint32(2654435761)])

    def jax_bits(d):
        return mixed(jax.vmap(lambda k: random.bits(k, (words,), jnp.uint32), out_axes=-1)(keys(d)))

    def stream(d):
        return mixed(*normals_and_uniforms_lanes(keys(d), words - 6, 6))

    def rbg(d):
        key = random.wrap_key_data(d[:, :2].reshape(4), impl="rbg")
        return mixed(random.bits(key, (words, LANES), jnp.uint32))

    def written_out(d, rounds):
        return mixed(*threefry2x32(d[0][None], d[1][None], first, second, rounds))

    def philox_(d):
        half = words // 4
        start = (first[:half], second[:half], first[half : 2 * half], second[half : 2 * half])
        return mixed(*philox(d[0][None], d[1][None], start))

    bodies = {
        "random.bits (threefry, 20 rounds)": jax_bits,
        "normals_and_uniforms_lanes": stream,
        "random.bits (rbg, one key)": rbg,
        "threefry 20 rounds, written out": partial(written_out, rounds=20),
        "threefry 13 rounds, written out": partial(written_out, rounds=13),
        "philox 4x32-10, written out": philox_,
    }
    return {name: words * LANES / seconds_per_pass(body, data, repeats) for name, body in bodies.items()}


def bandwidth(quick: bool) -> dict[str, float]:
    """Bytes per second read plus written by one pass over an array, one core and all devices."""
    repeats = 2 if quick else 5
    sizes = {"l1": 4096, "l2": 2**17, "memory": 2**24 if quick else 2**26}
    out = {}
    for name, count in sizes.items():
        x = jnp.zeros(count, jnp.float32)
        out[name] = 8 * count / seconds_per_pass(lambda v: v + 1.0, x, repeats)
    devices = len(jax.devices())
    x = jnp.zeros(sizes["memory"] // devices, jnp.float32)
    out["memory_all_devices"] = 8 * x.size * devices / seconds_per_pass(lambda v: v + 1.0, x, repeats, devices=devices)
    return out


# ---- counting ------------------------------------------------------------------------------------------------
ARITHMETIC = {"add", "sub", "mul", "neg", "abs", "max", "min", "add_any", "square", "reduce_sum", "reduce_max"}
ARITHMETIC |= {"cumsum", "reduce_min", "reduce_prod", "clamp", "sign", "floor", "round"}
COMPARE = {"eq", "ne", "lt", "le", "gt", "ge", "select_n", "and", "or", "not", "xor", "is_finite", "reduce_or"}
COMPARE |= {"reduce_and", "shift_right_logical", "shift_left", "shift_right_arithmetic"}
COSTLY = {"exp", "log", "log1p", "erf_inv", "sqrt", "rsqrt", "div", "sin", "cos", "tanh", "pow", "erf", "expm1"}
COSTLY |= {"lgamma", "digamma", "exp2", "logistic", "rem"}


def _size(var) -> int:
    return int(np.prod(var.aval.shape)) if hasattr(var.aval, "shape") else 1


def _inner(equation):
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(item, "eqns"):
                yield item
            elif hasattr(item, "jaxpr") and hasattr(item.jaxpr, "eqns"):
                yield item.jaxpr


def count(jaxpr, branches=min) -> Counter:
    """Operations of a jaxpr by kind; `branches`: which branch of a `cond` counts (`min` or `max` of the sums)."""
    total: Counter = Counter()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        out = sum(_size(v) for v in equation.outvars)
        if name == "scan":
            passes = equation.params["length"]
            inner = count(next(_inner(equation)), branches)
            total.update({k: v * passes for k, v in inner.items()})
        elif name == "while":
            total["loops of unknown length"] += 1
        elif name == "cond":
            each = [count(b.jaxpr, branches) for b in equation.params["branches"]]
            total.update(branches(each, key=lambda c: sum(c.values())))
        elif name in ("random_bits", "threefry2x32"):
            total["random words"] += out
        elif name in ("random_fold_in", "random_split"):
            total["random words"] += 2 * out
        elif name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            depth = int(np.prod([equation.invars[0].aval.shape[i] for i in contract]))
            total["arithmetic"] += 2 * out * depth
        elif name == "integer_pow":
            total["arithmetic"] += out * max(1, int(abs(equation.params["y"])).bit_length())
        elif name.startswith(("reduce_", "cumsum")) and name in ARITHMETIC | COMPARE:
            total["arithmetic" if name in ARITHMETIC else "compare"] += _size(equation.invars[0])
        elif name in ARITHMETIC:
            total["arithmetic"] += out
        elif name in COMPARE:
            total["compare"] += out
        elif name in COSTLY:
            total[name] += out
        else:
            found = list(_inner(equation))
            # custom derivatives and batching rules hold several jaxprs: the first is the function itself
            if found:
                total.update(count(found[0], branches))
            elif equation.outvars:
                total["not counted (data movement, other)"] += out
    return total


def lane_arguments(problems, lanes: int):
    """Model, observed statistics and keys of `lanes` chains as the engine passes them."""
    index = np.arange(lanes) % len(problems)

    def last(x, dtype=jnp.float32):
        return jnp.moveaxis(jnp.asarray(np.asarray(x)[index], dtype), 0, -1)

    observed = Observed(*(last(x) for x in problems.observed()))
    return jax.tree.map(last, problems.batched_model()), observed, random.split(random.key(0), lanes)


def needs(sampler, problems, lanes: int = LANES, chains: int = 2) -> dict:
    """Operations and bytes of one iteration, per chain."""
    model, observed, keys = lane_arguments(problems, lanes)
    carry = jax.eval_shape(lambda m, o, k: sampler.init_lanes(m, o, k, chains), model, observed, keys)
    index = jax.ShapeDtypeStruct((), jnp.int32)

    def step(m, o, c, k, i):
        return sampler.iterate_lanes(m, o, c, k, i, chains)

    closed = jax.make_jaxpr(step)(model, observed, carry, keys, index)
    least, most = (count(closed.jaxpr, branches) for branches in (min, max))

    def size(tree):
        return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))

    draw = jax.eval_shape(step, model, observed, carry, keys, index)[1]
    # the state is read and written, problem and keys are read, draws written
    moved = 2 * size(carry) + size((model, observed, draw)) + 8 * lanes
    unknown = least.pop("loops of unknown length", 0)
    most.pop("loops of unknown length", None)
    return {
        "per_chain": {k: v / lanes for k, v in sorted(least.items())},
        "per_chain_dearest_branches": {k: v / lanes for k, v in sorted(most.items())},
        "bytes_per_chain": moved / lanes, "loops_of_unknown_length": unknown,
    }  # fmt: skip


def floor_of(need: dict, rates: dict, which: str = "per_chain") -> tuple[float, float, dict, list]:
    """(seconds of the operations, seconds of the bytes, seconds by kind, kinds without a measured rate)."""
    speed = rates["arithmetic"]
    # the same numbers by the faster spelling
    words = max(rate for name, rate in rates["random_words"].items() if "20 rounds" in name)
    table = {"arithmetic": speed["fma_ops"], "random words": words}
    table |= {k: speed[k] for k in ("exp", "log", "log1p", "erf_inv", "sqrt", "rsqrt", "div", "compare")}
    by_kind = {k: v / table[k] for k, v in need[which].items() if k in table}
    # less than one operation in ten chains is one of the step, not of a chain
    unknown = [k for k, v in need[which].items() if k not in table and not k.startswith("not counted") and v > 0.1]
    return sum(by_kind.values()), need["bytes_per_chain"] / rates["bandwidth"]["l2"], by_kind, unknown


def samplers(quick: bool):
    return (("collapsed", Collapsed(), 500, 1), ("gibbs", Gibbs(burn_in=200 if quick else 400), 50, 20))


def floors(rates: dict, quick: bool) -> list[dict]:
    """Floor and measured time per chain-step, one core."""
    rows = []
    print(
        f"\n{'step':10s} {'p':>2s} {'ops':>8s} {'words':>6s} {'bytes':>7s} {'floor ns':>9s} {'measured':>9s} {'share':>6s}"
    )
    for p in (1, 2) if quick else (1, 2, 4):
        problems = study(64, p=p).problems
        problems = problems.take(np.arange(64 if quick else {1: 512, 2: 256, 4: 64}[p]) % 64)
        for name, sampler, draws, thin in samplers(quick):
            need = needs(sampler, problems)
            by_operations, by_bytes, by_kind, unknown = floor_of(need, rates)
            kept = 60 if quick else draws
            steps = sampler.warmup_iterations + kept * thin
            times = []
            for k in range(2 if quick else 4):
                run = run_chains(sampler, problems, seed=k, chains=2, draws=kept, thin=thin, devices=1)
                times.append(run.seconds / (steps * 2 * len(problems)))
            floor, measured = max(by_operations, by_bytes), min(times[1:])
            row = {
                "step": name, "features": p, "chains": 2 * len(problems), **need, "floor_seconds": floor,
                "floor_by_operations": by_operations, "floor_by_bytes": by_bytes, "seconds_by_kind": by_kind,
                "floor_dearest_branches": floor_of(need, rates, "per_chain_dearest_branches")[0],
                "kinds_without_rate": unknown, "measured_seconds": measured, "all_seconds": times,
                "floor_over_measured": floor / measured,
            }  # fmt: skip
            rows.append(row)
            each = need["per_chain"]
            print(
                f"{name:10s} {p:2d} {each['arithmetic']:8,.0f} {each.get('random words', 0):6.0f} "
                f"{need['bytes_per_chain']:7.0f} {floor * 1e9:9.0f} {measured * 1e9:9.0f} {floor / measured:6.2f}  "
                + ", ".join(f"{k} {v * 1e9:.0f}" for k, v in sorted(by_kind.items(), key=lambda x: -x[1])[:5]),
                flush=True,
            )
            if unknown:
                print(f"{'':10s} no rate for: {', '.join(unknown)}")
    return rows


# ---- growth --------------------------------------------------------------------------------------------------
def exponent(x, y) -> float:
    """Slope of log y against log x."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def growth(quick: bool) -> dict:
    """Seconds of `collapsed` (2 chains, 240 + 100 iterations) against chains, records, features and devices."""
    out: dict = {}

    def seconds(problems, devices=None, draws=100):
        runs = [run_chains(Collapsed(), problems, seed=k, chains=2, draws=draws, devices=devices) for k in range(3)]
        return min(r.seconds for r in runs[1:])

    def table(name, values, times):
        out[name] = {"values": values, "seconds": times, "exponent": exponent(values, times)}
        shown = ", ".join(f"{v:g}: {t:.3g}" for v, t in zip(values, times, strict=True))
        print(f"{name}: {shown} s; exponent {out[name]['exponent']:.2f}", flush=True)

    some = study(50).problems
    print("\ngrowth of the seconds of one call")
    chains = [100, 1000] if quick else [100, 1000, 10_000, 100_000]
    table("chains", chains, [seconds(some.take(np.arange(c // 2) % 50)) for c in chains])
    records = [10, 1000] if quick else [10, 1000, 10**5, 10**7, 10**9]
    table("records", records, [seconds(study(300, n=n).problems) for n in records])
    features = [1, 2] if quick else [1, 2, 4, 9]
    # few enough problems that nine features take seconds, enough that a block is not nearly empty
    table("features", features, [seconds(study(32, p=p).problems, devices=1, draws=20) for p in features])
    devices = list(range(1, len(jax.devices()) + 1))
    if len(devices) > 1:
        many = some.take(np.arange(500 if quick else 2000) % 50)
        table("devices", devices, [seconds(many, devices=d) for d in devices])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", nargs="*", default=["floors", "growth"], help="floors, growth (rates always)")
    options = parser.parse_args()
    where = machine()
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    rates = {name: f(options.quick) for name, f in
             (("arithmetic", arithmetic), ("random_words", random_words), ("bandwidth", bandwidth))}  # fmt: skip
    for group, unit in (("arithmetic", "G op/s"), ("random_words", "G words/s"), ("bandwidth", "GB/s")):
        print(f"\n{group} ({unit}, one core)")
        for name, rate in rates[group].items():
            print(f"  {name:36s} {rate / 1e9:8.2f}")
    results = {"machine": where, "rates": rates}
    if "floors" in options.only:
        results["floors"] = floors(rates, options.quick)
    if "growth" in options.only:
        results["growth"] = growth(options.quick)
    save(results, options.output)


if __name__ == "__main__":
    main()
