"""The command line that the scripts here share."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from s3_data import HERE

from dpjax._base import files, runtime
from dpjax.errors import DpjaxError, InputError

runtime.prepare_jax()  # before the other modules here, which load JAX

Said = Callable[[str], None]


def run(
    arguments: list[str] | None,
    described: str | None,
    config: str,
    read: Callable[[str], Any],
    study: Callable[[Any, Said], dict[str, Any]],
    finish: Callable[[dict[str, Any], Path], str],
) -> int:
    """Read the config, run the study, write results.json and results.txt; 0, or 2 for bad input with one line.

    Args:
        arguments: of the command line.
        described: its help.
        config: name of the default config beside the scripts.
        read: path -> checked config, before anything else is done.
        study: config, what reports progress -> results.
        finish: results, folder -> text; draws the figures.
    """
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default=str(HERE / config))
    parser.add_argument("--output", required=True, help="folder for results.json, results.txt and figures")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    said = lambda line: print(f"{time.perf_counter() - start:6.1f} s  {line}", file=sys.stderr, flush=True)
    try:
        typed = read(given.config)
        folder = Path(given.output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not given.force:
            raise InputError(f"output {folder}: is there and not an empty folder; use --force, or another name")
        results = study(typed, said)
        folder.mkdir(parents=True, exist_ok=True)
        text = finish(results, folder)
    except DpjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results["seconds"] = time.perf_counter() - start
    text += f"\n\n{results['seconds']:.0f} s in all"
    print(text)
    files.write_text(folder / "results.txt", text + "\n", True)
    files.write_json(folder / "results.json", results, True)
    return 0
