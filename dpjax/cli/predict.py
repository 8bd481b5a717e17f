"""The command `dpjax predict`. It never loads JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax._base.reading import ReadingOptions
from dpjax.cli import outputs, values
from dpjax.cli.from_options import takes
from dpjax.cli.messages import NOT_TRUSTED, OK
from dpjax.cli.options import Force, Json, Seed
from dpjax.errors import InputError


@takes(ReadingOptions, without=("missing", "missing_codes", "impute"))
def predict(
    posterior: Annotated[Path, typer.Argument(metavar="POSTERIOR.nc", help="Draws that fit --output wrote.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.csv", help="Rows with a column for every feature.")],
    level: Annotated[
        list[str] | None,
        typer.Option(metavar="L", help="Probability of the intervals, 0.9 if not given; repeat or separate by commas."),
    ] = None,
    *,
    chosen: dict[str, Any],
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
    outputs.check_outputs([output, json], [posterior, new], force)
    from dpjax._base import files
    from dpjax.inference.intervals import LEVEL
    from dpjax.inference.posterior_file import load_posterior

    levels = values.parse_several("--level", level, float, "numbers inside (0, 1)") if level else [LEVEL]
    loaded = load_posterior(posterior)
    made = loaded.predict(_rows(new, loaded.statistic, chosen), level=levels, seed=seed)
    print(made.table())
    if output is not None:
        made.save(output, force)
    if json is not None:
        files.write_json(json, made.to_dict(), force)
    return NOT_TRUSTED if made.warnings() else OK


def _rows(new: Path, statistic: Any, said: Mapping[str, Any]) -> Any:
    """The file of new rows, or its columns if anything is said about how it is read."""
    reading = ReadingOptions(**said).reading
    features = getattr(statistic, "features", None)
    if not reading.of_file or features is None:  # `predict` refuses other models
        return new
    from dpjax.releases.table import read_columns

    try:
        return read_columns(new, features, (), reading)
    except InputError as error:
        raise InputError(f"new rows: {error}") from None
