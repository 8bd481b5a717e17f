"""The commands of the data owner: `dpjax release` and `dpjax check`. They never load JAX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax.cli import messages, outputs, values
from dpjax.cli.from_options import FromText, takes
from dpjax.cli.messages import BAD_INPUT, NOT_TRUSTED, OK
from dpjax.cli.options import Force, Json
from dpjax.errors import InputError
from dpjax.releases.options import ReleaseOptions, check_family_options


def _constants(flag: str, texts: Sequence[str]) -> dict[str, float | str]:
    found = values.parse_assignments(flag, texts, "VALUE")
    return {name: values.number_or_text(value) for name, value in found.items()}


def _family_options(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    found = values.parse_family_options(texts, flag)
    check_family_options(found)
    return found


@takes(
    ReleaseOptions,
    {
        "features": FromText(values.parse_names),
        "bounds": FromText(lambda flag, texts: values.parse_bounds(texts, flag), several=True),
        "options": FromText(_family_options, several=True, flag="option"),
        "labels": FromText(values.parse_labels, several=True),
        "released": FromText(values.parse_whole_numbers),
        "norms": FromText(values.parse_norms),
        "missing_codes": FromText(values.parse_codes, several=True, flag="missing-code"),
        "impute": FromText(_constants, several=True),
    },
    following={
        "target": ("epsilon", "output", "model"),
        "rule": ("options",),
        "released": ("private_bounds", "bounds_share", "quantiles", "mechanism", "delta", "adjacency"),
    },
    without=("report",),
)
def release(
    table: Annotated[Path, typer.Argument(metavar="TABLE.csv", help="The private table.")],
    *,
    chosen: dict[str, Any],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The release file.")],
    private_bounds: Annotated[
        list[str] | None,
        typer.Option(metavar="A=lo:hi", help="In place of --bounds: find them privately within this range."),
    ] = None,
    bounds_share: Annotated[
        float | None, typer.Option(help="Share of epsilon that --private-bounds spends, inside (0, 1).")
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(metavar="P,Q", help="Quantiles for --private-bounds; 0.025,0.975 if left out.")
    ] = None,
    force: Force = False,
) -> int:
    """Release the noisy sums of a private table.

    The noise comes from OpenDP and cannot be seeded; every further release of the same table adds its epsilon. Before
    it is drawn, counts of missing, code-like and clipped values are shown on standard error, for the owner's eyes only:
    they are private. A table that looks wrong is refused, unless --accept is given.

    \b
    Example:
      dpjax release patients.csv --target progression --features bmi \\
        --bounds bmi=15:45 --bounds progression=0:350 \\
        --mechanism laplace --epsilon 1 --output release.json
      dpjax release visits.csv --model exponential --target wait \\
        --bounds wait=0:10 --epsilon 1 --output release.json
      dpjax release export.csv --separator ';' --decimal , --encoding latin-1 \\
        --model binomial --target smoker --labels no,yes --epsilon 1 --output release.json
      dpjax release visits.csv --model multinomial --target colour \\
        --labels red,green,blue --mechanism discrete-laplace --epsilon 1 --output release.json
    """
    search = _private_bounds(private_bounds or [], bounds_share, quantiles)
    if search is not None:
        if chosen["bounds"] is not None:
            raise InputError("--bounds and --private-bounds exclude each other")
        chosen["bounds"] = search
    from dpjax._base.files import json_text
    from dpjax._base.new_file import NewFile
    from dpjax.inference.describe import describe_release
    from dpjax.releases.owner import release as draw_release

    outputs.check_outputs([output], [table], True)  # whether it exists is seen once the place is claimed
    # claimed before noise is drawn: what a killed process has left is gone then, and no other draws for the same file
    with NewFile(output, force) as file:
        made = draw_release(table, **chosen.pop("options"), **chosen, report=True)
        file.write(json_text(made.to_dict()))
    print(f"released to {output}\n{describe_release(made)}")
    return OK


def _private_bounds(texts: Sequence[str], share: float | None, quantiles: str | None) -> dict[str, Any] | None:
    """The search for bounds that the options ask for."""
    if not texts:
        for name, value in (("--bounds-share", share), ("--quantiles", quantiles)):
            if value is not None:
                raise InputError(f"{name} is of use only with --private-bounds")
        return None
    if share is None:
        raise InputError("--private-bounds needs --bounds-share: the share of epsilon has no default")
    from dpjax.privacy.quantile import PrivateQuantile

    pair: dict[str, Any] = {}
    if quantiles is not None:
        pair["quantiles"] = tuple(values.parse_several("--quantiles", [quantiles], float, "two numbers P,Q"))
    ranges = values.parse_bounds(texts, "--private-bounds")
    return {name: PrivateQuantile(limits, share, **pair) for name, limits in ranges.items()}


def check(
    release: Annotated[Path | None, typer.Argument(metavar="RELEASE.json", help="A release file.")] = None,
    json: Json = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of release files; no file is checked.")
    ] = False,
    force: Force = False,
) -> int:
    """Say what is wrong with a release file, or what it holds.

    \b
    Example:
      dpjax check release.json
      dpjax check --schema > release.schema.json
    """
    if schema or release is None:
        return _print_schema(schema, release, json)
    outputs.check_outputs([json], [release], force)
    from dpjax.inference.describe import describe_release
    from dpjax.releases.possible_sums import doubts_about_sums
    from dpjax.releases.release import Release, describe_problems

    problems = describe_problems(release)
    for problem in problems:
        messages.complain("error", f"release file {str(release)!r}: {problem}")
    if problems:
        return BAD_INPUT
    good = Release.load(release)  # warns where the stated guarantee does not follow from the noise
    if json is not None:
        from dpjax._base.files import write_json

        write_json(json, good.to_dict(), force)
    doubts = doubts_about_sums(good)
    for doubt in doubts:
        messages.complain("warning", f"release file {str(release)!r}: {doubt}")
    verdict = "can be read, but its sums are those of no table" if doubts else "can be used"
    print(f"{release} {verdict}\n{describe_release(good, statistics=True)}")
    return NOT_TRUSTED if doubts else OK


def _print_schema(schema: bool, release: Path | None, json: Path | None) -> int:
    if not schema:
        raise InputError("a release file is missing: dpjax check RELEASE.json, or dpjax check --schema")
    if release is not None or json is not None:
        raise InputError("--schema is about all release files: give no file")
    from dpjax._base.files import to_json
    from dpjax.releases.schema import release_schema

    print(to_json(release_schema()))
    return OK
