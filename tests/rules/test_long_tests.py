"""The list of long tests names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_every_long_test_exists():
    gone = []
    for line in (TESTS / "long_tests.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        file, name = line.split("::")
        path = TESTS.parent / file
        function = name.split("[")[0]
        if not path.exists() or not re.search(rf"^def {re.escape(function)}\(", path.read_text(), re.MULTILINE):
            gone.append(line)
    assert not gone, f"not in the tests any more: {gone}"
