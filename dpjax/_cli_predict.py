"""The command `dpjax predict`. It never loads JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpjax import _cli_options as options
from dpjax._cli_options import NOT_TRUSTED, OK, Force, Json, Seed


def predict(
    posterior: Annotated[Path, typer.Argument(metavar="POSTERIOR.nc", help="Draws that fit --output wrote.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.csv", help="Rows with a column for every feature.")],
    level: Annotated[
        list[str] | None,
        typer.Option(metavar="L", help="Probability of the intervals, 0.9 if not given; repeat or separate by commas."),
    ] = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="CSV", help="Write features, mean, sd and intervals of all rows.")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> int:
    """Predict the target of a regression at new rows, from its posterior alone.

    Intervals low and high are of the target of one further record, line_low and line_high of the mean of such records.

    \b
    Example:
      dpjax predict posterior.nc new.csv --level 0.5,0.9 --output predictions.csv
    """
    options.check_outputs([output, json], [posterior, new], force)
    from dpjax import _files
    from dpjax._posterior_file import load_posterior
    from dpjax.prediction import LEVEL

    levels = options.parse_several("--level", level, float, "numbers inside (0, 1)") if level else [LEVEL]
    made = load_posterior(posterior).predict(new, level=levels, seed=seed)
    print(made.table())
    if output is not None:
        made.save(output, force)
    if json is not None:
        _files.write_json(json, made.to_dict(), force)
    return NOT_TRUSTED if made.warnings() else OK
