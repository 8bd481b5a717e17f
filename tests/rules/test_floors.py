"""Floors of the package: which part may import which, read from the source of every module.

An import goes to a lower floor or inside its own part. What breaks this today stands in lists below, which must say
exactly what is there: they can become shorter and never longer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = re.compile(r"dpjax(\.\w+)+")
LATER = ("LazyModule", "import_module", "__import__")
LONGEST = 300  # lines of a file
SLACK = 20  # lines by which a listed file may become shorter before its number must follow

#: The parts from the ground up; those of one floor do not know each other. "" is `dpjax/__init__.py`.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("kernels", "_base"),
    ("privacy", "families", "diagnostics"),
    ("statistics", "mechanisms", "engine"),
    ("samplers", "releases", "models"),
    ("inference",),
    ("calibration",),
    ("figures",),
    ("runner",),
    ("cli", ""),
)

#: The part that a module outside of any package belongs to.
PARTS: dict[str, str] = {"errors": "_base", "__main__": "cli"}

#: Imports that do not go down, as "importer -> imported".
UPWARD: frozenset[str] = frozenset()

#: Pairs of modules that import each other, one of them at least in a function or for types only.
CIRCLES: frozenset[str] = frozenset()

#: Files over the limit and their lines.
LONG: dict[str, int] = {}


@dataclass(frozen=True)
class Import:
    """One import of a module of the package by another.

    early: it happens while the importing module is loaded: not in a function, not for types only, not by a text that
    names the module.
    """

    importer: str
    imported: str
    early: bool

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


# ---- reading the source --------------------------------------------------------------------------------------
def find_modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module by its full name; the kernels, which lie behind a link, by the names that they have inside."""
    found = {}
    for folder, name in ((root / "dpjax", "dpjax"), (root / "kernels", "dpjax.kernels")):
        for path in sorted(folder.rglob("*.py")):
            if folder.name == "dpjax" and "kernels" in path.relative_to(folder).parts[:-1]:
                continue  # newer versions of Python follow the link
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((name, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


def find_imports(source: str, importer: str, package: bool, known: set[str]) -> Iterator[Import]:
    """The imports in one module's source, wherever they stand, and those by a text that names the module."""
    for node, early in walk(ast.parse(source), True):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = stem(node, importer, package)
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
        else:
            names, early = lazy_names(node), False
        for name in dict.fromkeys(names):
            if name in known and name != importer:
                yield Import(importer, name, early)


def lazy_names(node: ast.AST) -> list[str]:
    """Modules that are named by a text: in a table of names and modules, or given to what imports them later."""
    texts: list[ast.expr | None] = []
    if isinstance(node, ast.Dict):
        texts = list(node.values)
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LATER:
        texts = list(node.args)
    found = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    return [text for text in found if MODULE.fullmatch(text)]


def stem(node: ast.ImportFrom, importer: str, package: bool) -> str:
    """The full name of what stands between `from` and `import`."""
    if not node.level:
        return node.module or ""
    parts = importer.split(".")
    return ".".join([*parts[: len(parts) - node.level + package], *([node.module] if node.module else [])])


def walk(node: ast.AST, early: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below one, each with whether it is executed while the module is loaded."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        below = [(child, False) for child in node.body] + [(child, early) for child in node.orelse]
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        below = [(child, early and not inside) for child in ast.iter_child_nodes(node)]
    for child, when in below:
        yield child, when
        yield from walk(child, when)


def part_of(module: str) -> str:
    """The part that a module belongs to: its package, or what `PARTS` says of a module in none."""
    _, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    return first if "." in rest else PARTS.get(first, first)


def mutual(edges: set[tuple[str, str]]) -> set[str]:
    """Pairs that import each other."""
    return {f"{a} <-> {b}" for a, b in edges if a < b and (b, a) in edges}


def circles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of modules each of which leads to every other one of its group."""
    below: dict[str, set[str]] = {}
    for one, other in edges:
        below.setdefault(one, set()).add(other)
    reached: dict[str, set[str]] = {}
    for start in below:
        seen, todo = set(), [start]
        while todo:
            new = below.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        reached[start] = seen
    groups = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in below if a in reached[a]}
    return sorted(sorted(group) for group in groups)


MODULES = find_modules()
IMPORTS = [
    found
    for name, path in MODULES.items()
    for found in find_imports(path.read_text(encoding="utf-8"), name, path.name == "__init__.py", set(MODULES))
]
LEVEL = {part: number for number, floor in enumerate(FLOORS) for part in floor}


# ---- rules ---------------------------------------------------------------------------------------------------
def test_every_module_has_a_floor_and_no_place_is_left_over():
    assert len(MODULES) > 100 and len(IMPORTS) > 500
    missing = sorted(name for name in MODULES if part_of(name) not in LEVEL)
    assert not missing, f"no floor: name the part of these modules in PARTS or FLOORS: {missing}"
    flat = {name.partition(".")[2] for name, path in MODULES.items() if path.name != "__init__.py"}
    assert not (gone := set(PARTS) - flat), f"no longer there, or in a package now: take out of PARTS: {sorted(gone)}"
    same = sorted(module for module, part in PARTS.items() if module == part)
    assert not same, f"a part is called like these modules anyway: {same}"


def test_imports_go_down():
    upward = {
        str(one)
        for one in IMPORTS
        if (here := part_of(one.importer)) != (there := part_of(one.imported)) and LEVEL[there] >= LEVEL[here]
    }
    exactly(upward, UPWARD, "imports that go up or to a part on the same floor", "UPWARD")


def test_modules_do_not_need_each_other_to_load():
    found = circles({(one.importer, one.imported) for one in IMPORTS if one.early})
    assert not found, f"modules that import each other in a circle while they are loaded: {found}"


def test_no_two_modules_import_each_other():
    found = mutual({(one.importer, one.imported) for one in IMPORTS})
    exactly(found, CIRCLES, "pairs of modules that import each other", "CIRCLES")


def test_kernels_stand_alone():
    """Relative imports of each other, and nothing of dpjax."""
    paths = sorted((ROOT / "kernels").glob("**/*.py"))
    assert len(paths) > 5
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= len(path.relative_to(ROOT / "kernels").parts), path.name
                names = [node.module or ""] if node.level == 0 else []
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = lazy_names(node)
            roots = {name.partition(".")[0] for name in names}
            assert not roots & {"dpjax", "kernels"}, f"{path.name}:{node.lineno}"


def test_files_are_short():
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in MODULES.values()
    }
    long = {name: count for name, count in lines.items() if count > LONGEST}
    new = sorted(f"{name}: {count} lines" for name, count in long.items() if name not in LONG)
    assert not new, f"over {LONGEST} lines: cut in two what is new: {new}"
    grown = sorted(f"{name}: {count} lines, {LONG[name]} allowed" for name, count in long.items() if count > LONG[name])
    assert not grown, f"grown files that were too long before: {grown}"
    shorter = sorted(f"{name}: {lines.get(name, 0)}" for name, most in LONG.items() if name not in long)
    assert not shorter, f"short enough or gone now: take out of LONG: {shorter}"
    shorter = sorted(f"{name}: {count}" for name, count in long.items() if count < LONG[name] - SLACK)
    assert not shorter, f"shorter now: lower the numbers in LONG: {shorter}"


def exactly(found: set[str], listed: frozenset[str], what: str, name: str) -> None:
    new, gone = sorted(found - listed), sorted(listed - found)
    assert not new, f"new {what}: {new}"
    assert not gone, f"no longer there, take out of {name}: {gone}"


# ---- the reading itself --------------------------------------------------------------------------------------
KNOWN = {"dpjax", "dpjax.a", "dpjax.b", "dpjax.pack", "dpjax.pack.c", "dpjax.pack.d"}
SOURCES = {
    "import dpjax.a": {("dpjax.a", True)},
    "import dpjax, os": {("dpjax", True)},
    "from dpjax import a, run": {("dpjax.a", True), ("dpjax", True)},
    "from dpjax.a import run": {("dpjax.a", True)},
    "from . import d": {("dpjax.pack.d", True)},
    "from .d import x": {("dpjax.pack.d", True)},
    "from .. import b": {("dpjax.b", True)},
    "from ..b import x": {("dpjax.b", True)},
    "def f():\n  from ..b import x": {("dpjax.b", False)},
    "f = lambda: __import__('dpjax.a')": {("dpjax.a", False)},
    "class A:\n  import dpjax.b": {("dpjax.b", True)},
    "try:\n  import dpjax.b\nexcept ImportError:\n  import dpjax.a": {("dpjax.a", True), ("dpjax.b", True)},
    "if TYPE_CHECKING:\n  import dpjax.b\nelse:\n  import dpjax.a": {("dpjax.b", False), ("dpjax.a", True)},
    "if typing.TYPE_CHECKING:\n  import dpjax.b": {("dpjax.b", False)},
    "LAZY = {'fit': 'dpjax.b'}": {("dpjax.b", False)},
    "b = LazyModule('dpjax.b')": {("dpjax.b", False)},
    "importlib.import_module('dpjax.b').run()": {("dpjax.b", False)},
    "require('opendp', 'dpjax.b')": set(),  # a name in a message
    "'''dpjax.b and more'''\nimport os, numpy.linalg": set(),
}


@pytest.mark.parametrize("source", SOURCES)
def test_reading_of_imports(source):
    found = {(one.imported, one.early) for one in find_imports(source, "dpjax.pack.c", False, KNOWN)}
    assert found == SOURCES[source]


def test_relative_imports_of_a_package_and_of_a_module():
    read = lambda name, package: {one.imported for one in find_imports("from .d import x", name, package, KNOWN)}
    assert read("dpjax.pack", True) == {"dpjax.pack.d"}
    assert read("dpjax.a", False) == set()


def test_parts_of_modules():
    assert part_of("dpjax") == "" and part_of("dpjax.errors") == "_base"
    assert (
        part_of("dpjax.samplers") == part_of("dpjax.samplers.new") == part_of("dpjax.samplers.deep.new") == "samplers"
    )
    assert part_of("dpjax.errors.inside") == "errors"  # a package stands for itself, whatever its name was before


def test_circles_are_found():
    edges = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "a")}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]
    assert circles({("a", "b"), ("b", "c")}) == []
    assert mutual(edges) == {"d <-> e"}
