"""What a program does never depends on the text of a message: an error says by its class or its `where` what it is.

Read from the source: the text of an exception (`str(error)`, `f"{error}"`, `error.args`), or a name that was given
such a text, is not searched, compared or matched. Cutting a text to show a part of it is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Methods of texts whose answer decides something.
ASKED = frozenset({"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "isalpha", "isdigit"})
#: Functions of `re`, all of which match.
MATCHED = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"})
#: Names of what holds a message, wherever they stand.
WORDED = frozenset({"message", "sentence", "warning"})

#: Places that may, as "module: source of the expression", and why.
ALLOWED: dict[str, str] = {
    "dpjax/_base/private_frames.py: HIDDEN not in str(error)": "whether private words are really gone, however a"
    " library's exception makes them",
}


def is_text(node: ast.AST, errors: set[str], texts: set[str]) -> bool:
    """Whether an expression is the text of an exception, or made from it.

    Args:
        node: the expression.
        errors: names of exceptions.
        texts: names that hold such a text.
    """
    if isinstance(node, ast.Name):
        return node.id in texts
    if isinstance(node, ast.Attribute):
        return node.attr in ("args", "message", "msg") and is_error(node.value, errors)
    if isinstance(node, ast.Subscript):
        return is_text(node.value, errors, texts)
    if isinstance(node, ast.JoinedStr):
        inside = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return any(is_error(part, errors) or is_text(part, errors, texts) for part in inside)
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", "")
        if name in ("str", "repr"):
            return any(is_error(part, errors) or is_text(part, errors, texts) for part in node.args)
        return isinstance(node.func, ast.Attribute) and is_text(node.func.value, errors, texts)  # text.lower()
    return False


def is_error(node: ast.AST, errors: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in errors


def decisions(source: str) -> Iterator[ast.expr]:
    """Expressions that ask the text of a message."""
    tree = ast.parse(source)
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)]
    seen: set[int] = set()
    for scope in sorted(scopes, key=lambda node: isinstance(node, ast.Module)):  # functions first
        inside = [node for node in ast.walk(scope) if id(node) not in seen]
        errors = {node.name for node in inside if isinstance(node, ast.ExceptHandler) and node.name}
        for argument in scope.args.args if not isinstance(scope, ast.Module) else ():
            said = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if argument.arg in ("error", "exception", "problem") or said.endswith(("Error", "Exception", "Warning")):
                errors.add(argument.arg)
        texts = {node.id for node in inside if isinstance(node, ast.Name) and node.id in WORDED}
        for _ in range(3):  # a text of a text
            for node in inside:
                if isinstance(node, ast.Assign) and is_text(node.value, errors, texts):
                    targets = [part for target in node.targets for part in ast.walk(target)]
                    texts |= {part.id for part in targets if isinstance(part, ast.Name)}
        for node in inside:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                asked = node.func.attr in ASKED and is_text(node.func.value, errors, texts)
                matched = node.func.attr in MATCHED and any(is_text(part, errors, texts) for part in node.args)
                if asked or (matched and (of_re or node.func.attr != "split")):
                    seen.add(id(node))
                    yield node
            elif isinstance(node, ast.Compare) and any(
                is_text(part, errors, texts) for part in (node.left, *node.comparators)
            ):
                seen.add(id(node))
                yield node


def test_no_control_by_text():
    found = {}
    for folder in ("dpjax", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if folder == "dpjax" and "kernels" in path.relative_to(ROOT / folder).parts[:-1]:
                continue  # newer versions of Python follow the link
            for node in decisions(path.read_text(encoding="utf-8")):
                found[f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node)}"] = node.lineno
    new = sorted(f"{place} (line {line})" for place, line in found.items() if place not in ALLOWED)
    assert not new, f"decides by the text of a message; use a class of errors or InputError.where: {new}"
    gone = sorted(set(ALLOWED) - set(found))
    assert not gone, f"no longer there, take out of ALLOWED: {gone}"


TRY = "try:\n  f()\nexcept E as error:\n  "
ASKS = {
    TRY + "g = str(error).startswith('prior')": 1,
    TRY + "text = str(error)\n  if not text.startswith('x'): pass": 1,
    TRY + "text = str(error).lower()\n  if 'x' in text: pass": 1,
    TRY + "text, _, place = str(error).partition(' - ')\n  found = re.fullmatch('a', text)": 1,
    TRY + "if 'word' in str(error): pass": 1,
    TRY + "if 'word' in error.args[0]: pass": 1,
    TRY + "if f'{error}' == 'word': pass": 1,
    TRY + "found = PATTERN.match(error.args[0])": 1,
    "def f(error):\n  return str(error).endswith('x')": 1,
    "def f(one: InputError):\n  return 'x' in str(one)": 1,
    "[re.sub('x', '', sentence) for sentence in sentences]": 1,
    "def f(message):\n  return re.search('a', message)": 1,
    TRY + "raise B(f'x: {error}') from None": 0,
    TRY + "raise B(str(error).replace('a', 'b'))": 0,
    TRY + "if error.where == 'prior': pass": 0,
    TRY + "reason = str(error).removeprefix('column')": 0,
    "def f(name):\n  return name.startswith('x') or 'y' in name": 0,
}


@pytest.mark.parametrize("source", ASKS)
def test_reading_of_decisions(source):
    assert len(list(decisions(source))) == ASKS[source]
