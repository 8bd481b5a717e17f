"""A small experiment in a process of its own, for tests that kill it or start it several times."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CONFIG = """
name = "scale"
seed = 5
[calibration]
model = "linear-regression"
records = [100, 1000]
epsilon = [0.5]
trials = 64
methods = ["gibbs", "collapsed"]
chains = 2
draws = 500
chains_per_batch = 32
mmd = false
[calibration.method.gibbs]
draws = 400
thin = 1
settings = { burn_in = 200 }
"""
#: One method only, quick to compile.
QUICK = CONFIG.replace('["gibbs", "collapsed"]', '["gibbs"]')


def start(config: Path, output: Path, *options: str, devices: int = 2, cache: Path | None = None) -> subprocess.Popen:
    """`dpjax run` in a process of its own, on CPU devices."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")}
    environment |= {"JAX_PLATFORMS": "cpu", "DPJAX_CACHE": "off" if cache is None else str(cache)}
    command = [sys.executable, "-m", "dpjax", "run", str(config), "--output", str(output), "--devices", str(devices)]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*command, *options], env=environment, **pipe)


def finish(process: subprocess.Popen, limit: float = 240.0) -> tuple[int, str]:
    """Exit code and everything printed."""
    try:
        out = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        out = process.communicate()[0]
    return process.returncode, out


def kill_after(process: subprocess.Popen, seconds: float, begun: Path | None = None) -> bool:
    """kill -9 after so many seconds (from when `begun` exists); False if the process was faster."""
    while begun is not None and not begun.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return True


def results(output: Path) -> dict[str, np.ndarray]:
    """Every array of the finished parts of a run, but the seconds that they took."""
    found = {}
    for path in sorted((output / "parts").glob("[!w]*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            found |= {f"{path.stem}.{name}": stored[name] for name in stored.files if name != "meta"}
    return found


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two runs have the same results, bit for bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)
