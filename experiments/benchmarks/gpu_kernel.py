"""Parts of `gpu.py`: the whole-loop kernel and what the machine can do."""

from __future__ import annotations

import collections
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from gpu_parts import FROZEN, NAMES, ON_GPU, Sizes, emit, problems_of


def kernel_arguments(folder: Path, cell: str, count: int, distinct: int):
    """Arrays of `gibbs_regression_loop` for `count` chains, two for each of the first `distinct` problems, repeated."""
    import jax
    import jax.numpy as jnp

    from dpjax.kernels import whole_loop
    from dpjax.models import LinearRegression

    problems = problems_of(folder, cell, distinct)
    lanes = np.arange(count) // 2 % distinct
    observed = [np.asarray(x, np.float32)[lanes].T for x in problems.observed()[:3]]
    rows = np.concatenate([*observed, problems.n[None, lanes].astype(np.float32)])
    model = LinearRegression.s0(1)
    wide = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, jnp.float32)[..., None], (*x.shape, count)), model)
    hyper = whole_loop.pack(
        wide.theta_mean, wide.theta_precision, wide.sigma2_shape, wide.sigma2_scale, wide.x_mean, wide.kappa, wide.psi,
        wide.nu,
    )  # fmt: skip
    keys = np.random.default_rng(7).integers(0, 2**32, (2, count), dtype=np.uint32)
    center = np.asarray(model.prior_center(), np.float32)
    state = np.concatenate([np.repeat(center[:, None], count, 1), np.full((5, count), 2.0, np.float32)])
    zero = np.zeros((5, count), np.float32)
    return tuple(jnp.asarray(x) for x in (hyper, rows, keys, state, zero))


def timed(call, repeats: int = 3):
    """(result, least seconds, seconds of the first call) of a compiled call."""
    import jax

    start = time.perf_counter()
    result = jax.block_until_ready(call())
    first, best = time.perf_counter() - start, np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return result, best, first


def collapsed_arguments(folder: Path, count: int, distinct: int):
    """Arrays of `collapsed_regression_loop` for `count` chains that have been warmed up."""
    import jax.numpy as jnp

    from dpjax.kernels import whole_loop

    hyper, rows, keys, _, zero = kernel_arguments(folder, "slow", count, distinct)
    saved = dict(np.load(folder / "warm.npz"))
    index = np.arange(count) % (2 * distinct)
    state = np.concatenate([saved["position"], saved["scales"]])[:, index]
    state = np.concatenate([state, np.zeros((1, count), np.float32)])
    frozen = np.asarray(whole_loop.pack_frozen(**{name: jnp.asarray(saved[name]) for name in FROZEN}))
    return hyper, rows, jnp.asarray(frozen[:, index]), keys, jnp.asarray(state), zero


class Loops:
    """Calls of the kernel of one sampler, measured and compared; what is found goes to `kernel_<sampler>.json`."""

    def __init__(self, folder: Path, sizes: Sizes, sampler: str, name: str):
        from dpjax.kernels import whole_loop

        self.folder, self.sizes, self.sampler, self.name = folder, sizes, sampler, name
        self.function = getattr(whole_loop, f"{sampler}_regression_loop")
        self.found: dict = {"rows": []}
        self.programs: dict = {}

    def arguments(self, cell: str, count: int):
        if self.sampler == "gibbs":
            return kernel_arguments(self.folder, cell, count, self.sizes.compared)
        return collapsed_arguments(self.folder, count, self.sizes.compared)

    def loop(self, steps: int, thin: int, **options):
        import jax

        interpret = not ON_GPU and "plain" not in options
        return jax.jit(lambda first, *x: self.function(*x, first, steps, thin, interpret=interpret, **options))

    def emit(self) -> None:
        emit(self.folder, self.name, self.found)

    def attempt(self, name: str, call) -> None:
        try:
            self.found[name] = call()
        except Exception as error:
            self.found[name] = repr(error)[:2000]
        print(self.name, name, self.found[name])
        self.emit()

    def compile(self, jobs) -> None:
        """Compile (chains, code, steps, options) side by side; what fails is kept as the program's error."""
        import jax

        def one(job):
            count, _, steps, options = job
            shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct((*x.shape[:-1], count), x.dtype), self.arguments("slow", 2)
            )
            began = time.perf_counter()
            try:
                first = jax.ShapeDtypeStruct((), np.uint32)
                made = self.loop(steps, 20, keep_draws=False, **options).lower(first, *shapes).compile()
            except Exception as error:
                made = error
            return made, time.perf_counter() - began

        began = time.perf_counter()
        with ThreadPoolExecutor(max_workers=10 if ON_GPU else 1) as pool:
            for job, made in zip(jobs, pool.map(one, jobs), strict=True):
                self.programs[repr(job)] = made
        print(self.name, f"{len(jobs)} compiled in {time.perf_counter() - began:.1f} s")

    def measure(self, jobs) -> list[dict]:
        rows = []
        self.compile(jobs)
        for job in jobs:
            count, code, steps, options = job
            row = {"sampler": self.sampler, "chains": count, "code": code, "steps": steps, **options}
            program, row["compile_seconds"] = self.programs.pop(repr(job))
            try:
                if isinstance(program, Exception):
                    raise program
                arrays = self.arguments("slow", count)
                result, best, _ = timed(lambda: program(np.uint32(0), *arrays), 2)  # noqa: B023
                row |= {
                    "seconds": best, "seconds_per_step": best / steps, "chain_steps_per_second": count * steps / best,
                    "finite": bool(np.isfinite(np.asarray(result.total)).all()),
                }  # fmt: skip
            except Exception as error:
                row["error"] = repr(error)[:1000]
            print(self.name, row)
            rows.append(row)
            self.found["rows"].append(row)
            self.emit()
        return rows

    def against_plain(self) -> dict:
        """First draws against the same code in plain JAX on the CPU: median, largest, share under 1e-3 of the gaps."""
        import jax

        first, arrays = np.uint32(0), self.arguments("slow", 256 if ON_GPU else 64)
        found = np.asarray(self.loop(10, 1)(first, *arrays).draws)
        on_cpu = jax.device_put(arrays, jax.devices("cpu")[0])
        expected = np.asarray(self.loop(10, 1, plain=True)(first, *on_cpu).draws)
        gap = np.abs(found - expected) / (1 + np.abs(expected))
        return {f"step_{s + 1}": [float(np.median(gap[s])), float(gap[s].max()), float((gap[s] < 1e-3).mean())] for s in (0, 1, 9)}  # fmt: skip

    def means(self) -> dict:
        """Posterior means of a long run against those of the engine on the CPU, in standard errors."""
        cpu = np.load(self.folder / "cpu_32.npz")[self.sampler]
        count, draws = 2 * len(cpu), cpu.shape[2]
        thin = 20 if self.sampler == "gibbs" else 1
        first, arrays = np.uint32(0), list(self.arguments("fast", count))
        if self.sampler == "gibbs":
            steps = 400 if ON_GPU else 40
            arrays[3] = self.loop(steps, 20, keep_draws=False)(first, *arrays).state
            first = np.uint32(steps)
        kept = draws if ON_GPU else 4
        run = self.loop(kept * thin, thin)(first, *arrays)
        made = np.moveaxis(np.asarray(run.draws), (0, 1), (1, 2)).reshape(len(cpu), 2, kept, 5)
        return means_apart(cpu, made)


def means_apart(one: np.ndarray, other: np.ndarray) -> dict:
    """Differences of posterior means in standard errors, over problems with an effective 100 draws on both sides."""
    from dpjax.diagnostics import diagnose

    a, b = (diagnose(x, NAMES, threads=8) for x in (one, other))
    z = (other.mean((1, 2)) - one.mean((1, 2))) / np.hypot(a.mcse_mean, b.mcse_mean)
    good = (a.min_ess > 100) & (b.min_ess > 100)
    found = {
        "problems": len(z), "with_ess_above_100": int(good.sum()),
        "min_ess_mean": [float(a.min_ess.mean()), float(b.min_ess.mean())],
    }  # fmt: skip
    if good.any():
        found |= {
            "largest_z": float(np.abs(z[good]).max()), "share_beyond_4": float((np.abs(z[good]) > 4).mean()),
            "sd_of_z": z[good].std(0).tolist(), "mean_of_z": z[good].mean(0).tolist(),
        }  # fmt: skip
    return found


def kernel(folder: Path, sizes: Sizes, sampler: str) -> None:
    """The Pallas kernel: its speed by layout and size, its numbers against plain JAX, its law against the engine's."""
    loops = Loops(folder, sizes, sampler, f"kernel_{sampler}")
    steps = sizes.kernel_steps // (1 if sampler == "gibbs" or not ON_GPU else 10)
    tuned = sizes.tuned if sampler == "gibbs" else sizes.tuned[:4]
    count = min(max(sizes.kernel_counts), 100_000)
    options = [{"lanes": a, "num_warps": b, "rounds": c, "looped": d} for a, b, c, d in tuned]
    rows = loops.measure([(count, "pallas", steps, each) for each in options])
    loops.attempt("against_plain", loops.against_plain)
    good = [r for r in rows if r["rounds"] == 20 and "seconds" in r]
    if good:
        best = max(good, key=lambda r: r["chain_steps_per_second"])
        layout = {name: best[name] for name in ("lanes", "num_warps", "rounds", "looped")}
        loops.measure([(count, "pallas, best layout", steps, layout) for count in sizes.kernel_counts])
    loops.attempt("means_against_engine", loops.means)


def plain(folder: Path, sizes: Sizes, sampler: str) -> None:
    """The kernel's code as ordinary JAX on this device, compiled by XLA."""
    steps = max(20, sizes.kernel_steps // 10)
    loops = Loops(folder, sizes, sampler, f"plain_{sampler}")
    for count in sizes.kernel_counts:
        if count in (40, 100, 100_000):
            loops.measure([(count, "plain", steps, {"plain": True})])


def rates(folder: Path, sizes: Sizes) -> None:
    """What the machine can do, and what a Gibbs step would cost at that."""
    import jax
    import jax.numpy as jnp

    from dpjax.kernels import _whole_loop_random as numbers

    size, out = sizes.rate_elements, {}
    x = jnp.linspace(0.5, 1.5, size, dtype=jnp.float32)

    def chains(function, count):
        def run(x):
            a, b, c, d = x, x + 0.1, x + 0.2, x + 0.3
            for _ in range(count // 4):
                a, b, c, d = function(a), function(b), function(c), function(d)
            return a + b + c + d

        return jax.jit(run)

    def rate(name, call, operations):
        _, best, compiling = timed(call, 5)
        out[name] = {"per_second": operations / best, "first_call_seconds": compiling}
        print(f"rates {name}: {operations / best:.3e} per second, first call {compiling:.1f} s")
        emit(folder, "rates", out)

    fma = chains(lambda v: v * 0.999 + 0.001, 256)
    rate("fma_float32", lambda: fma(x), 256.0 * size)
    copy = jax.jit(lambda v: v + 1.0)
    rate("copy_bytes", lambda: copy(x), 8.0 * size)
    for name, function in (("exp", lambda v: jnp.exp(-v)), ("log", lambda v: jnp.log(v + 2.0)), ("sqrt", lambda v: jnp.sqrt(v + 1.0)), ("divide", lambda v: 1.0 / (v + 1.0))):  # fmt: skip
        call = chains(function, 32)
        rate(name, lambda c=call: c(x), 32.0 * size)
    start = jnp.arange(size, dtype=jnp.uint32)
    for rounds in (20, 13):

        def bits(c, rounds=rounds):
            total = c
            for pair in range(4):
                first, second = numbers.threefry2x32(c, c ^ np.uint32(77), c + np.uint32(pair), c, rounds)
                total = total ^ first ^ second
            return total

        call = jax.jit(bits)
        rate(f"threefry_words_{rounds}", lambda c=call: c(start), 8.0 * size)

        def normals(c, rounds=rounds):
            total = jnp.zeros(c.shape, jnp.float32)
            for pair in range(4):
                made = numbers.threefry2x32(c, c ^ np.uint32(77), c + np.uint32(pair), c, rounds)
                total = total + numbers.normal(made[0]) + numbers.normal(made[1])
            return total

        call = jax.jit(normals)
        rate(f"normals_{rounds}", lambda c=call: c(start), 8.0 * size)
    key = jax.random.key(1)
    call = jax.jit(lambda k: jax.random.bits(k, (size,), jnp.uint32))
    rate("jax_random_bits", lambda: call(key), float(size))
    tiny = jnp.zeros(8)
    small = jax.jit(lambda v: jax.lax.fori_loop(0, 1000, lambda _, y: jnp.sin(y) + 1.0, v))
    _, best, _ = timed(lambda: small(tiny), 3)
    out["loop_iteration_seconds"] = best / 1000
    from dpjax.kernels import whole_loop

    out["step_operations"] = step_operations(whole_loop)
    emit(folder, "rates", out)


def step_operations(whole_loop) -> dict:
    """Elementwise operations of one Gibbs step per chain, counted in the traced program (the rare loop apart)."""
    import jax
    import jax.numpy as jnp

    from dpjax.kernels._whole_loop_random import draw

    array = lambda rows, dtype=jnp.float32: list(jnp.ones((rows, 1), dtype))
    keys = array(2, jnp.uint32)

    def one(state):
        numbers = lambda counter, normals, uniforms: draw((keys[0], keys[1]), counter, normals, uniforms, 20)
        inputs = whole_loop.Inputs(array(11), array(16), (keys[0], keys[1]), None, numbers)
        step = whole_loop._gibbs_step(inputs, 20)
        return step(np.uint32(3), state)

    counts: collections.Counter = collections.Counter()

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
            if name == "while":
                continue
            if inner is not None:
                walk(getattr(inner, "jaxpr", inner))
                continue
            kind = str(equation.outvars[0].aval.dtype)
            if name in ("add", "sub", "mul", "max", "abs", "neg", "min"):
                counts["float" if kind == "float32" else "integer"] += 1
            elif name in ("div", "sqrt", "rsqrt", "log", "exp", "log1p"):
                counts[name] += 1
            elif name in ("shift_left", "shift_right_logical", "xor", "or", "and"):
                counts["integer"] += 1
            elif name in ("select_n", "lt", "gt", "ge", "le", "ne", "eq", "convert_element_type", "not"):
                counts["select"] += 1

    walk(jax.make_jaxpr(one)(array(10)).jaxpr)
    return dict(counts)
