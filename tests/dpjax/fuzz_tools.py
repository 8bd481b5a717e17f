"""Mutations of files and arguments, and what must hold whatever they are."""

import contextlib
import copy
import io
import json
import os
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from dpjax.cli.app import main

#: 200 in CI; the long job sets 10,000.
EXAMPLES = int(os.environ.get("DPJAX_FUZZ_EXAMPLES", "200"))
FUZZ = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # a failure is not made smaller, which takes longer than all examples
    suppress_health_check=list(HealthCheck),
)
#: Texts that programs stumble over.
TEXTS = (
    "", " ", "x", "y", "a,b", "a*b", "\x1b[2J", "\x00", "\u202e", "é", "n" * 3000, "-1", "1e400", "nan", "inf",
    "{}", "../x", "/dev/null", "$tuple", "laplace", "gaussian", "discrete-laplace", "redact", "\ud800", "1_0", "=",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 0.5, -0.0, 5e-324, 1e-320, 1e-10, 1e10, 1e25, 1e307, 1.8e308, -1e308, 2**53, 2**53 + 1, 2**63, 10**20,
    10**400, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
VALUES = (*TEXTS, *NUMBERS, None, True, False, [], {}, [[]], [None], {"x": [0, 1]}, [1.0, "x"], {"": {}}, [10, 0])


def of(value):
    """A copy, since what is drawn is put into other values."""
    return copy.deepcopy(value)


values = st.sampled_from(VALUES).map(of) | st.integers(-3, 10**6) | st.floats() | st.text(max_size=8)


def paths(value, at=()):
    """Where every part of nested lists and mappings lies."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from paths(item, (*at, key))


@st.composite
def changed(draw, value):
    """Nested lists and mappings with one to three changes: another value, none, another key, one more."""
    value = of(value)
    for _ in range(draw(st.integers(1, 3))):
        places = list(paths(value))
        if not places:
            break
        *way, key = draw(st.sampled_from(places))
        home = value
        for step in way:
            home = home[step]
        how = draw(st.sampled_from(("set", "set", "set", "scale", "drop", "rename", "add", "nest")))
        if how == "drop":
            del home[key]
        elif how == "rename" and isinstance(home, dict):
            home[draw(st.sampled_from(TEXTS))] = home.pop(key)
        elif how == "add" and isinstance(home, dict):
            home[draw(st.sampled_from(TEXTS))] = draw(values)
        elif how == "add":
            home.append(draw(values))
        elif how == "nest":
            for _ in range(draw(st.sampled_from((1, 30)))):
                home[key] = [home[key]]
        elif how == "scale" and isinstance(home[key], float | int):
            home[key] *= draw(st.sampled_from((-1, 0.5, 1.5, 1e30)))
        else:
            home[key] = draw(values)
    return value


@st.composite
def damaged(draw, content):
    """Bytes with one to three changes: other bytes, some cut out, some put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        how = draw(st.sampled_from(("set", "set", "cut", "put", "end")))
        if how == "set" and content:
            content[place] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del content[place : place + draw(st.sampled_from((1, 5, 100)))]
        elif how == "put":
            content[place:place] = draw(
                st.sampled_from((b"\x00", b"\n\n", b",", b'"', b"[", b"\xff\xfe", b"1e999", b"\r"))
            )
        elif how == "end":
            del content[place:]
    return bytes(content)


def to_toml(value):
    """TOML of mappings, lists, texts and numbers; None has no form and becomes an empty text."""
    lines = [f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps("" if value is None else value)


def tree(folder: Path):
    """Content of every file in a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attack(words, folder, secrets=(), may_change=(), quiet=True):
    """Run a command: it never fails internally, changes nothing when it refuses, and shows nothing of the table.

    Args:
        words: arguments.
        folder: where everything lies.
        secrets: texts that must not show.
        may_change: names of files that a refused command may have written.
        quiet: a refusal is one line, and nothing else.
    """
    before, out, err = tree(folder), io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    out, err, after = out.getvalue(), err.getvalue(), tree(folder)
    assert code in (0, 1, 2), (code, err)
    assert not [path for path in after if path.name.startswith(".dpjax-")], "half-written"
    if code == 2:
        several = not quiet or words[0] == "check"  # which lists every problem
        same = lambda files: {path: content for path, content in files.items() if path.name not in may_change}
        assert same(before) == same(after), "a refused command has changed files"
        assert err.splitlines()[-1].startswith("error: ") and (several or (out == "" and err.count("\n") == 1)), err
        assert len(err.splitlines()[-1]) < 2500, "a long line"  # control characters take more signs when shown
    assert all(sign.isprintable() or sign in "\n\t" for sign in out + err), "control characters"
    new = b"".join(content for path, content in after.items() if before.get(path) != content)
    for secret in secrets:
        assert secret not in out + err and secret.encode() not in new, "a value of the table"
    return code, out, err
