"""What is written is for readers: no codes that only the authors know, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ENABLED = True  # True once no code is left

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/formulas.md"
CODES = re.compile(r"\bSPEC\s+[A-H]\d?\b|(?<![\w.])S[0-4](?![\w(\]])|\bDESIGN\s+(?:section|rule)\b|\bDESIGN:")
LINK = re.compile(r"formulas\.md#([\w-]+)((?:,?\s+(?:and\s+)?(?:#:?\s+)?#[\w-]+)*)")


def written() -> Iterator[tuple[str, str]]:
    """Path and text of every file of the package, its kernels and its pages."""
    for folder in ("dpjax", "kernels", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and not path.is_relative_to(ROOT / "dpjax" / "kernels"):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.skipif(not ENABLED, reason="codes are still being replaced")
def test_no_codes_of_the_authors():
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in written()
        for number, line in enumerate(text.splitlines(), 1)
        if CODES.search(line)
    ]
    assert found == []


def test_links_to_formulas_lead_somewhere():
    names = anchors()
    dead = [
        f"{path}: #{name}"
        for path, text in written()
        for first, rest in LINK.findall(text)
        for name in (first, *re.findall(r"#([\w-]+)", rest))
        if name not in names
    ]
    dead += [
        f"{PAGE}: #{name}" for name in re.findall(r"\]\(#([\w-]+)\)", (ROOT / PAGE).read_text()) if name not in names
    ]
    assert dead == []


def test_tests_that_the_formulas_name_exist():
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+\.py)", (ROOT / PAGE).read_text(encoding="utf-8"))) <= tests
