"""Code outside of `dpjax/mechanisms` asks for no mechanism by name: it asks for a property (`norm`, `integer`, ...).

Such a question gives every mechanism that is new the answer of some other one. What breaks this stands in `KNOWN`,
which must say exactly what is there and can only become shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpjax.mechanisms import MECHANISMS

PACKAGE = Path(__file__).resolve().parents[2] / "dpjax"
#: Names of instances whose `kind` is a mechanism's name.
INSTANCES = frozenset(kind.replace("-", "_").upper() for kind in MECHANISMS)
#: Comparisons that are left, as "file: source".
KNOWN: frozenset[str] = frozenset()


def names_a_mechanism(node: ast.expr) -> bool:
    """Whether an expression is a mechanism's name, or a collection of names, written down or from its instance."""
    if isinstance(node, ast.Constant):
        return node.value in MECHANISMS
    if isinstance(node, ast.Attribute) and node.attr == "kind":
        return isinstance(node.value, ast.Name | ast.Attribute) and ast.unparse(node.value).split(".")[-1] in INSTANCES
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(names_a_mechanism(item) for item in node.elts)
    return isinstance(node, ast.Dict) and table_by_name(node)


def table_by_name(node: ast.Dict) -> bool:
    """Whether all keys of a table are mechanisms' names."""
    return bool(node.keys) and all(key is not None and names_a_mechanism(key) for key in node.keys)


def questions(source: str) -> Iterator[str]:
    """What compares with a mechanism's name, chooses by it from a table, or matches it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            found = any(names_a_mechanism(part) for part in (node.left, *node.comparators))
        elif isinstance(node, ast.MatchValue):
            found = names_a_mechanism(node.value)
        else:
            found = isinstance(node, ast.Dict) and table_by_name(node)
        if found:
            yield ast.unparse(node)


def test_no_question_for_a_mechanism_by_name():
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {question}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ("mechanisms", "kernels")
        for question in questions(path.read_text(encoding="utf-8"))
    }
    assert not (new := sorted(found - KNOWN)), f"ask for a property of the mechanism instead: {new}"
    assert not (gone := sorted(KNOWN - found)), f"no longer there, take out of KNOWN: {gone}"


ASKED = {
    'x == "laplace"': 1,
    'x.mechanism != "gaussian"': 1,
    '"discrete-laplace" == x': 1,
    'x in ("laplace", "gaussian")': 1,
    'x not in {"gaussian": 1}': 2,  # the comparison and the table
    'TABLE = {"laplace": f}': 1,
    "x == mechanisms.LAPLACE.kind": 1,
    'match x:\n  case "laplace":\n    pass': 1,
    'def f(x="laplace"): pass': 0,
    'LEAVES = {"laplace": (x, ()), "half": (y, ())}': 0,  # leaves of a model
    'x["mechanism"] == y and z == "normal"': 0,
    "MECHANISMS[x].integer": 0,
}


@pytest.mark.parametrize("source", ASKED)
def test_reading_of_questions(source):
    assert len(list(questions(source))) == ASKED[source]
