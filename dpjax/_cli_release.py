"""The commands of the data owner: `dpjax release` and `dpjax check`. They never load JAX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax import _cli_options as options
from dpjax._cli_options import BAD_INPUT, OK, Force, Json
from dpjax.errors import InputError
from dpjax.kinds import check_options, kinds


def release(
    table: Annotated[Path, typer.Argument(metavar="TABLE.csv", help="The private table.")],
    target: Annotated[str, typer.Option(help="Column of the response, or the one column of a family.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget that this release spends, all in all.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The release file.")],
    model: Annotated[
        str,
        typer.Option(help=f"{', '.join(kinds())}."),
    ] = "linear-regression",
    features: Annotated[str | None, typer.Option(metavar="A,B", help="Columns of a regression's features.")] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(metavar="A=lo:hi", help="Bounds of a column, stated a priori; once per column."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="Of a family's records outside of the bounds: clamp (the default) or redact them."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of a family, such as shape=2 of gamma.")
    ] = None,
    categories: Annotated[int | None, typer.Option(help="Number of categories of a multinomial: 0, 1, ...")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Categories of a multinomial whose column holds text.")
    ] = None,
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
    mechanism: Annotated[str, typer.Option(help="laplace, gaussian, or discrete-laplace for counts.")] = "laplace",
    delta: Annotated[float | None, typer.Option(help="Of gaussian noise, far below 1 / records.")] = None,
    adjacency: Annotated[str, typer.Option(help="replace-one.")] = "replace-one",
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="Without: a regression through the origin.")
    ] = True,
    squares: Annotated[
        bool | None,
        typer.Option(
            "--squares/--no-squares", help="Without an intercept: also release the sum of squares of the target."
        ),
    ] = None,
    norms: Annotated[
        str | None,
        typer.Option(metavar="X,Y", help="Without an intercept, in place of --bounds: |features| <= X, |target| <= Y."),
    ] = None,
    averaged: Annotated[
        int | None, typer.Option(metavar="K", help="With --norms: release sums of averages of K records.")
    ] = None,
    moments: Annotated[
        bool, typer.Option("--moments", help="Also third and fourth moments of a regression's features.")
    ] = False,
    moments_share: Annotated[
        float | None, typer.Option(help="Share of epsilon that --moments gets, inside (0, 1); 0.5 if left out.")
    ] = None,
    force: Force = False,
) -> int:
    """Release the noisy sums of a private table.

    The noise comes from OpenDP and cannot be seeded; every further release of the same table adds its epsilon.

    \b
    Example:
      dpjax release patients.csv --target progression --features bmi \\
        --bounds bmi=15:45 --bounds progression=0:350 \\
        --mechanism laplace --epsilon 1 --output release.json
      dpjax release visits.csv --model exponential --target wait \\
        --bounds wait=0:10 --epsilon 1 --output release.json
      dpjax release visits.csv --model multinomial --target colour \\
        --labels red,green,blue --mechanism discrete-laplace --epsilon 1 --output release.json
    """
    arguments: dict[str, Any] = {
        "features": None if features is None else options.parse_names("--features", features),
        "labels": None if labels is None else options.parse_names("--labels", labels),
        "bounds": options.parse_bounds(bounds or []) or None,
        **_family_options(option or []),
    }
    search = _private_bounds(private_bounds or [], bounds_share, quantiles)
    if search is not None:
        if arguments["bounds"] is not None:
            raise InputError("--bounds and --private-bounds exclude each other")
        arguments["bounds"] = search
    options.check_outputs([output], [table], force)
    import dpjax
    from dpjax._report import describe_release

    made = dpjax.release(
        table,
        target=target,
        epsilon=epsilon,
        model=model,
        mechanism=mechanism,
        delta=delta,
        rule=rule,
        categories=categories,
        adjacency=adjacency,
        intercept=intercept,
        moments=moments,
        moments_share=moments_share,
        squares=squares,
        norms=None if norms is None else _norms(norms),
        averaged=averaged,
        **arguments,
    )
    made.save(output, force)
    print(f"released to {output}\n{describe_release(made)}")
    return OK


def _norms(text: str) -> dict[str, float]:
    try:
        longest, largest = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--norms must be two numbers X,Y; got {text!r}") from None
    return {"features": longest, "target": largest}


def _family_options(texts: Sequence[str]) -> dict[str, Any]:
    found = options.parse_family_options(texts)
    check_options(found)
    return found


def _private_bounds(texts: Sequence[str], share: float | None, quantiles: str | None) -> dict[str, Any] | None:
    """The search for bounds that the options ask for."""
    if not texts:
        for name, value in (("--bounds-share", share), ("--quantiles", quantiles)):
            if value is not None:
                raise InputError(f"{name} is of use only with --private-bounds")
        return None
    if share is None:
        raise InputError("--private-bounds needs --bounds-share: the share of epsilon has no default")
    from dpjax.release import PrivateQuantile

    pair: dict[str, Any] = {}
    if quantiles is not None:
        pair["quantiles"] = tuple(options.parse_several("--quantiles", [quantiles], float, "two numbers P,Q"))
    ranges = options.parse_bounds(texts, "--private-bounds")
    return {name: PrivateQuantile(limits, share, **pair) for name, limits in ranges.items()}


def check(
    release: Annotated[Path, typer.Argument(metavar="RELEASE.json", help="A release file.")],
    json: Json = None,
    force: Force = False,
) -> int:
    """Say what is wrong with a release file, or what it holds.

    \b
    Example:
      dpjax check release.json
    """
    options.check_outputs([json], [release], force)
    from dpjax._report import describe_release
    from dpjax.release import Release, describe_problems

    problems = describe_problems(release)
    for problem in problems:
        options.complain("error", f"release file {str(release)!r}: {problem}")
    if problems:
        return BAD_INPUT
    good = Release.load(release)  # warns where the stated guarantee does not follow from the noise
    if json is not None:
        from dpjax._files import write_json

        write_json(json, good.to_dict(), force)
    print(f"{release} can be used\n{describe_release(good, statistics=True)}")
    return OK
