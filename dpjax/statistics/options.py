"""The options that say what is summed: arguments of a release and of `make_statistic`, keys of [release], options of
`dpjax release` and, where they have the same name, fields of a release file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from dpjax._base.options import option, options_of, true_or_false
from dpjax.privacy.quantile import PrivateQuantile

#: Bounds stated a priori: of each column by its name, or of the one column of a family.
StatedBounds = Mapping[str, Sequence[float]] | Sequence[float]
#: Bounds that are found in the table, at a price; of families.
SoughtBounds = Mapping[str, PrivateQuantile] | PrivateQuantile


class StatisticOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is summed. None is what is usual, and that an option has no place in the model."""

    target: Annotated[str | None, option("Column of the response, or the one column of a family.")] = None
    features: Annotated[Sequence[str] | None, option("Columns of a regression's features.", metavar="A,B")] = None
    bounds: Annotated[
        StatedBounds | SoughtBounds | None,
        option("Bounds of a column, stated a priori; once per column.", metavar="A=lo:hi"),
    ] = None
    rule: Annotated[
        str | None, option("Of a family's records outside of the bounds: clamp (the default) or redact them.")
    ] = None
    categories: Annotated[int | None, option("Number of categories of a multinomial: 0, 1, ...")] = None
    labels: Annotated[
        Sequence[str] | None,
        option(
            "Categories of a multinomial whose column holds text; two of a binomial, the second a success. With a "
            "comma in one: in quotes inside the list, or the option once per label.",
            metavar="A,B,C",
        ),
    ] = None
    released: Annotated[
        Sequence[int] | None,
        option("Of a multinomial: the counts that are released, all (the default) or all but one.", metavar="0,1,..."),
    ] = None
    intercept: Annotated[bool, option("Without: a regression through the origin.", check=true_or_false)] = True
    squares: Annotated[bool | None, option("Without an intercept: also release the sum of squares of the target.")] = (
        None
    )
    norms: Annotated[
        Mapping[str, float] | None,
        option("Without an intercept, in place of --bounds: |features| <= X, |target| <= Y.", metavar="X,Y"),
    ] = None
    averaged: Annotated[
        int | None,
        option("With --norms: release sums of averages of K records, put together at random.", metavar="K"),
    ] = None
    moments: Annotated[
        bool, option("Also third and fourth moments of a regression's features.", check=true_or_false)
    ] = False


def file_field(name: str) -> tuple[str, Any, Any]:
    """A field of a release file that is the option of the same name: its name, type and default."""
    one = options_of(StatisticOptions)[name]
    return one.name, one.type, one.default
