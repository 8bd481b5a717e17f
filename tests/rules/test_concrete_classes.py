"""Code outside of a group of models asks for none of its classes: it asks for a property (`dpjax.engine.traits`,
`dpjax.statistics.traits`).

A question for a class gives every model and statistic that is new the answer of some other one. So does one for the
name of a kind. What breaks this stands in `KNOWN`, which must say exactly what is there and can only become shorter.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpjax.engine.model import Model
from dpjax.families import Family
from dpjax.mechanisms import Mechanism
from dpjax.mechanisms.matrix import MatrixMechanism
from dpjax.models.priors import Prior
from dpjax.statistics.base import Statistic
from dpjax.statistics.kinds import kinds

PACKAGE = Path(__file__).resolve().parents[2] / "dpjax"
#: Folders that hold groups: a class may be asked for in its own folder and below.
FOLDERS = ("models", "statistics", "families", "mechanisms")
ROOTS = (Model, Statistic, Family, Prior, Mechanism, MatrixMechanism)
#: Classes that are there for others to derive from, beside the roots.
BASES = frozenset({"MonomialStatistic", "PriorModel", "SummedFamily"})
#: Questions that are left, as "file: source".
KNOWN: frozenset[str] = frozenset()


def find_concrete() -> dict[str, str]:
    """Every concrete class of the groups by its name, with the folder that it is defined in."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            if path.name == "__init__.py":
                continue
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            module = importlib.import_module(".".join(("dpjax", *parts)))
            for name, value in vars(module).items():
                own = isinstance(value, type) and value.__module__ == module.__name__
                if own and issubclass(value, ROOTS) and value not in ROOTS and name not in BASES:
                    found[name] = "/".join(parts[:-1])
    return found


CONCRETE = find_concrete()


def aliases(tree: ast.AST) -> dict[str, set[str]]:
    """Names of a module that stand for concrete classes: imported under another name, or assigned; and for none, names
    that are imported from elsewhere."""
    known: dict[str, set[str]] = {name: {name} for name in CONCRETE}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            here = node.level or (node.module or "").partition(".")[0] == "dpjax"
            for one in node.names:
                if not here or one.name in CONCRETE:
                    known[one.asname or one.name] = {one.name} if here else set()
        elif isinstance(node, ast.Import):
            names = [one.asname or one.name.partition(".")[0] for one in node.names if not one.name.startswith("dpjax")]
            known |= {name: set() for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute | ast.Tuple | ast.BinOp):
            if named := classes(node.value, known):
                known |= {target.id: named for target in node.targets if isinstance(target, ast.Name)}
    return known


def classes(node: ast.expr, known: dict[str, set[str]]) -> set[str]:
    """Concrete classes that an expression is, or is made up of."""
    if isinstance(node, ast.Name):
        return known.get(node.id, set())
    if isinstance(node, ast.Attribute):
        foreign = isinstance(node.value, ast.Name) and known.get(node.value.id) == set()
        return set() if foreign else {node.attr} & set(CONCRETE)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set().union(*(classes(item, known) for item in node.elts))
    if isinstance(node, ast.BinOp):
        return classes(node.left, known) | classes(node.right, known)
    return set()


def kinds_named(node: ast.Compare, known: dict[str, set[str]]) -> set[str]:
    """What a comparison with a kind asks for: names of kinds, or the class whose kind it is."""
    parts = [node.left, *node.comparators]
    of_kind = [part for part in parts if isinstance(part, ast.Attribute) and part.attr == "kind"]
    if not of_kind:
        return set()
    named = set().union(*(classes(part.value, known) for part in of_kind))
    items = [item for part in parts for item in (getattr(part, "elts", None) or [part])]
    return named | {item.value for item in items if isinstance(item, ast.Constant) and item.value in kinds()}


def is_type(node: ast.expr) -> bool:
    """Whether an expression is the class of something: `type(x)` or `x.__class__`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"
    return called or (isinstance(node, ast.Attribute) and node.attr == "__class__")


def questions(source: str) -> Iterator[tuple[str, set[str]]]:
    """What asks for concrete classes, and for which; kinds stand for themselves."""
    tree = ast.parse(source)
    known = aliases(tree)
    for node in ast.walk(tree):
        asked: set[str] = set()
        if isinstance(node, ast.Call) and len(node.args) == 2:
            if getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                asked = classes(node.args[1], known)
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if any(is_type(part) for part in parts):
                asked = set().union(*(classes(part, known) for part in parts))
            asked |= kinds_named(node, known)
        elif isinstance(node, ast.MatchClass):
            asked = classes(node.cls, known)
        elif isinstance(node, ast.Dict) and node.keys:
            asked = set().union(*(classes(key, known) for key in node.keys if key is not None))
        if asked:
            yield ast.unparse(node), asked


def outside(file: str, asked: set[str]) -> bool:
    """Whether any of what a file asks for is not of its own group; names of kinds are for all folders of groups."""
    home = file.split("/")[0] in FOLDERS
    return any(not file.startswith(f"{CONCRETE[one]}/") if one in CONCRETE else not home for one in asked)


def test_no_question_for_a_concrete_class():
    found = {
        f"{file}: {question}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (file := path.relative_to(PACKAGE).as_posix()).split("/")[0] != "kernels"
        for question, asked in questions(path.read_text(encoding="utf-8"))
        if outside(file, asked)
    }
    assert not (new := sorted(found - KNOWN)), f"ask for a property instead: {new}"
    assert not (gone := sorted(KNOWN - found)), f"no longer there, take out of KNOWN: {gone}"


def test_the_classes_that_are_found():
    homes = {
        "models/regression": {"LinearRegression", "PartySums", "MatrixSums"},
        "models/families": {"FamilyModel", "Multinomial"},
        "models": {"BetaPrior"},
        "statistics": {"RegressionStatistic", "MultinomialStatistic", "FamilyStatistic"},
        "families": {"Binomial"},
        "mechanisms": {"Gaussian", "Wishart"},
    }
    assert all(CONCRETE[name] == home for home, names in homes.items() for name in names)
    assert not {"Model", "LaneModel", "Statistic", "Family", "Mechanism", *BASES} & set(CONCRETE)


ASKED = {
    "isinstance(model, LinearRegression)": {"LinearRegression"},
    "isinstance(model, models.PartySums)": {"PartySums"},
    "not isinstance(x, FreeMoments | KnownCovariates)": {"FreeMoments", "KnownCovariates"},
    "isinstance(x, (int, Multinomial))": {"Multinomial"},
    "issubclass(type(x), OriginStatistic)": {"OriginStatistic"},
    "type(x) is FamilyStatistic": {"FamilyStatistic"},
    "x.__class__ in (Wishart, InverseWishart)": {"Wishart", "InverseWishart"},
    "match x:\n  case WeakRegression(p=1):\n    pass": {"WeakRegression"},
    "from dpjax.models import PartySums as Many\nisinstance(x, Many)": {"PartySums"},
    "BOTH = (LinearRegression, OriginRegression)\nisinstance(x, BOTH)": {"LinearRegression", "OriginRegression"},
    "{LinearRegression: f, int: g}[type(x)]": {"LinearRegression"},
    'x.kind == "binomial"': {"binomial"},
    'x.kind in ("multinomial", "other")': {"multinomial"},
    "x.kind != ProductStatistic.kind": {"ProductStatistic"},
    "isinstance(x, Model)": set(),
    "import numpyro.distributions as dist\ntype(law) is dist.Normal": set(),
    "from numpyro.distributions import Normal\ntype(law) is Normal": set(),
    "from dpjax.families import Normal\ntype(law) is Normal": {"Normal"},
    "isinstance(x, Statistic | Family)": set(),
    "x: LinearRegression = LinearRegression.weak(2)": set(),
    'x.law == "normal"': set(),
    'x.kind == "other"': set(),
    "type(x) is int": set(),
}


@pytest.mark.parametrize("source", ASKED)
def test_reading_of_questions(source):
    assert set().union(*(asked for _, asked in questions(source))) == ASKED[source]


def test_a_group_may_ask_for_its_own_classes():
    assert not outside("models/regression/parties.py", {"OriginRegression"})
    assert not outside("statistics/family.py", {"FamilyStatistic", "binomial"})
    assert outside("models/making.py", {"OriginRegression"}) and outside("inference/fit.py", {"binomial"})
