"""What the tests of this folder compare with: stored files, and the switch that writes them anew.

    DPJAX_GOLDEN=renew python -m pytest -m '' -n 0 tests/golden

writes down what the package gives now. Look at the difference (git diff tests/golden) before you believe it: these
files are there to notice changes that nobody meant. The files in old/ are never written anew.
"""

import difflib
import json
import math
import os
import re
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
OLD = FOLDER / "old"
RENEW = os.environ.get("DPJAX_GOLDEN") == "renew"
#: Significant digits of stored numbers, and the relative difference that two processors may make.
DIGITS, NEAR = 9, 1e-6


def table(rows=60):
    """A small table of all kinds of columns, from formulas and not from a generator."""
    x = [math.sin(1.7 * i) for i in range(rows)]
    z = [math.cos(2.3 * i + 1) for i in range(rows)]
    return {
        "x": [2.0 + a for a in x],
        "z": [5.0 * b for b in z],
        "y": [10.0 + 4.0 * a - 2.0 * b + math.sin(7.1 * i) for i, (a, b) in enumerate(zip(x, z, strict=True))],
        "wait": [0.1 + 0.05 * ((7 * i) % 60) for i in range(rows)],
        "count": [float((3 * i) % 5) for i in range(rows)],
        "yes": [float(i % 3 == 0) for i in range(rows)],
        "said": ["yes" if i % 3 == 0 else "no" for i in range(rows)],
        "colour": [("red", "green", "blue")[(i * i) % 3] for i in range(rows)],
    }


def bounds(*names):
    known = {"x": (1.0, 3.0), "z": (-5.0, 5.0), "y": (0.0, 20.0), "wait": (0.0, 2.5), "count": (0.0, 4.0)}
    return {name: known[name] for name in names}


LINE = {"target": "y", "features": ["x"], "epsilon": 8.0}
PLANE = {"target": "y", "features": ["x", "z"], "epsilon": 8.0}
#: Arguments of `dpjax.release` for a release of every kind of statistic and of noise.
RELEASES = {
    "regression": LINE | {"bounds": bounds("x", "y")},
    "regression-gaussian": PLANE | {"bounds": bounds("x", "z", "y"), "mechanism": "gaussian", "delta": 1e-5},
    "regression-moments": LINE | {"bounds": bounds("x", "y"), "moments": True, "moments_share": 0.4},
    "origin": LINE | {"bounds": bounds("x", "y"), "intercept": False},
    "origin-plane": PLANE | {"bounds": bounds("x", "z", "y"), "intercept": False, "squares": False},
    "origin-norms": PLANE | {"norms": {"features": 6.0, "target": 20.0}, "intercept": False},
    "origin-averaged": PLANE | {
        "norms": {"features": 6.0, "target": 20.0}, "intercept": False, "averaged": 2, "mechanism": "gaussian",
        "delta": 1e-5,
    },
    "binomial": {"model": "binomial", "target": "said", "labels": ["no", "yes"], "epsilon": 2.0},
    "binomial-discrete": {
        "model": "binomial", "target": "yes", "epsilon": 0.5, "mechanism": "discrete-laplace",
    },
    "poisson": {"model": "poisson", "target": "count", "bounds": bounds("count"), "epsilon": 2.0},
    "geometric": {"model": "geometric", "target": "count", "bounds": (0.0, 3.0), "epsilon": 2.0},
    "exponential": {
        "model": "exponential", "target": "wait", "bounds": bounds("wait"), "rule": "redact", "epsilon": 2.0,
    },
    "gamma": {"model": "gamma", "shape": 2.0, "target": "wait", "bounds": bounds("wait"), "epsilon": 2.0},
    "normal": {"model": "normal", "target": "x", "bounds": bounds("x"), "epsilon": 4.0},
    "log-normal": {"model": "log-normal", "target": "wait", "bounds": (0.05, 4.0), "epsilon": 4.0},
    "multinomial": {
        "model": "multinomial", "target": "colour", "labels": ["red", "green", "blue"], "epsilon": 2.0,
        "mechanism": "discrete-laplace",
    },
    "multinomial-all": {
        "model": "multinomial", "target": "count", "categories": 5, "released": [0, 1, 2, 3, 4], "epsilon": 2.0,
    },
}  # fmt: skip


def rounded(value):
    """Plain data, numbers with as many digits as are worth reading."""
    if isinstance(value, dict):
        return {str(key): rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(one) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)


def kinds(value):
    """The types in place of the values; of lists the type of each entry, once where all have the same."""
    if isinstance(value, dict):
        return {str(key): kinds(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        inside = [kinds(one) for one in value]
        return (
            [inside[0], f"x {len(inside)}"] if len(inside) > 1 and all(one == inside[0] for one in inside) else inside
        )
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def differences(found, known, place=""):
    """Places where two contents of JSON files differ; numbers that a processor may round in another way do not."""
    if isinstance(found, dict) and isinstance(known, dict):
        if list(found) != list(known):
            return [f"{place or 'file'}: {', '.join(found)} in place of {', '.join(known)}"]
        return [text for key in found for text in differences(found[key], known[key], f"{place}/{key}")]
    if isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        return [text for i, x in enumerate(found) for text in differences(x, known[i], f"{place}/{i}")]
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (found, known))
    same = math.isclose(found, known, rel_tol=NEAR, abs_tol=1e-12) if numbers else found == known
    return [] if same else [f"{place}: {found!r} in place of {known!r}"]


def compare(name, content):
    """Compare plain data, or lines of text, with the file of this name; or write it.

    The message says where they differ.
    """
    path = FOLDER / name
    as_json = path.suffix == ".json"
    if RENEW:
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n" if as_json else content
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{name} is missing: tests/golden/stored.py says how to write it"
    text = path.read_text(encoding="utf-8")
    if as_json:
        found = differences(json.loads(json.dumps(content)), json.loads(text))
    else:
        found = [line for line in difflib.unified_diff(text.splitlines(), content.splitlines(), lineterm="", n=0)]
    assert not found, "\n".join([f"{name} is another now (tests/golden/stored.py says what to do):", *found[:40]])


def words(text):
    """A help text without what depends on the width of the terminal and on who draws its boxes: one line for an option,
    an argument or a paragraph, one blank between words."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"[│╭╮╰╯─┌┐└┘]", " ", text)
    found = [""]
    for line in text.splitlines():
        if not line.strip():
            found.append("")
        elif re.match(r" {0,2}\S", line):
            found.append(line)
        else:
            found[-1] += " " + line
    short = [re.sub(r"\s+", " ", line).strip() for line in found]
    return "\n".join(line for line in short if line) + "\n"
