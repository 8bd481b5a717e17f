"""Tables 1 and 2 of Alparslan et al. 2023, real data: python experiments/alparslan2023/table1.py [table1.toml] --output
DIR

All repetitions and noise levels of one table and number of parties are one call per method. Writes results.json (every
number) and results.txt (tables, ours beside the paper's). Needs the tables in the folder that DPJAX_DATA names. Bounds
come from the data and the noise is seeded: nothing here is private.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from s3_command import run
from s3_data import present_tables
from s3_table import Config, differences, read_config, study, text


def read(path: str) -> Config:
    """The config, if the tables are there."""
    config = read_config(path)
    present_tables(config.sets)
    return config


def finish(results: dict[str, Any], folder: Path) -> str:
    """Adds the differences from the paper; the tables as text."""
    results["differences"] = differences(results)
    return text(results)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    return run(arguments, __doc__, "table1.toml", read, study, finish)


if __name__ == "__main__":
    sys.exit(main())
