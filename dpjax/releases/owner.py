"""What the owner of a table calls: `release`, and `plan_release` for the same in two steps.

These are the only functions of dpjax that touch private data. Their noise comes from OpenDP and the operating system,
cannot be seeded, and no module they use imports JAX (a test checks this).
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dpjax._base.private_frames import without_private_values
from dpjax._base.signatures import no_type_check, same_parameters
from dpjax.errors import PrivacyWarning, require
from dpjax.releases import drawing
from dpjax.releases import file as _file
from dpjax.releases.options import Bounds, ReleaseOptions, Table, grid_of
from dpjax.releases.plan import Plan
from dpjax.releases.release import Release
from dpjax.releases.terms import Terms

__all__ = ["plan_release", "release"]


@without_private_values
@no_type_check
def release(
    table: Table,
    *,
    target: str,
    epsilon: float,
    bounds: Bounds | None = None,
    features: Sequence[str] | None = None,
    model: str = "linear-regression",
    mechanism: str = "laplace",
    delta: float | None = None,
    rule: str | None = None,
    categories: int | None = None,
    labels: Sequence[str] | None = None,
    released: Sequence[int] | None = None,
    adjacency: str = _file.ADJACENCY,
    intercept: bool = True,
    moments: bool = False,
    moments_share: float | None = None,
    squares: bool | None = None,
    norms: Mapping[str, float] | None = None,
    averaged: int | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    missing: str | None = None,
    missing_codes: float | str | Sequence[float | str] | Mapping[str, Sequence[float | str]] | None = None,
    impute: Mapping[str, float | str] | None = None,
    accept: bool = False,
    report: bool | None = None,
    **options: Any,
) -> Release:
    """Release the noisy sums that Bayesian inference in a model needs.

    A regression clips each variable to its bounds, maps it to [-1, 1], and releases the sums of x, xx', y, xy and
    y^2. An exponential family clamps its column to the bounds, or leaves out what is outside (`rule`), and releases
    the sums of its powers (normal and log-normal: mapped to [-1, 1] first); a multinomial releases counts. One
    noise scale fits all entries: the guarantee is of the whole vector (docs/formulas.md#composition). Third and fourth
    moments of the features (Bernstein and Sheldon 2019, section 3.4.4) have a share of epsilon, a sensitivity and a
    noise scale of their own; the guarantees add up.

    Args:
        table: path of a CSV file, mapping of columns, NumPy structured array or data frame. Private.
        target: column of the response, or the one column of a family.
        epsilon: privacy budget of this release, > 0, private bounds included.
        bounds: mapping of each column to (lo, hi) in its units, stated a priori: bounds taken from the data void the
            guarantee. For a family also a `PrivateQuantile`. None where a model has none (binomial, multinomial).
            Bounds for which `fit` has no default prior (a rate beyond 1e-12 to 1e12) are refused: take other units.
        features: list of columns of a regression's features.
        model: one of `dpjax.statistics.kinds.kinds()`.
        mechanism: "laplace"; "gaussian" (needs delta); "discrete-laplace" for sums of whole numbers.
        delta: inside (0, 1), of Gaussian noise: the probability with which the guarantee may fail. It has no default;
            far below 1 / number of records is usual.
        rule: "clamp" (default) or "redact", of a family with bounds.
        categories, labels: of a multinomial: number of categories 0, 1, ... in the column, or their texts. Two labels
            also of a binomial whose column holds text: the second is a success.
        released: which counts of a multinomial are released, all but one or all of them.
        adjacency: "replace-one": tables of equal length that differ in one record. The number of records is
            public and part of the release.
        intercept: False for a regression through the origin, whose variables are divided by the largest absolute value
            that the bounds allow.
        squares: without an intercept: whether the sum of y^2 is released too (True if left out).
        norms: without an intercept, in place of bounds: {"features": X, "target": Y}; feature vectors longer than X
            are shortened to that length, y is clipped to [-Y, Y].
        averaged: with norms: k, to release sums of rows that are averages of k records (times sqrt(k)); k must divide
            the number of records. The release's records are these rows. Which records are averaged together is drawn
            anew for every release by the operating system and told to nobody, so that the order of the table has no
            effect and the guarantee is that of tables as sets of records.
        moments: also release the sums of all products of three and of four of a regression's features (squares and
            higher powers included), for inference that does not take the features for normal.
        moments_share: inside (0, 1), the share of epsilon and delta that these get; half if left out.
        accept: True: go on although the table looks wrong: with values that look like codes for missing ones, most
            values outside of the bounds or missing, bounds absurdly wide.
        report: whether counts of missing, code-like and clipped values are printed to standard error before noise is
            drawn; None: if there is something to see. They are private, for the owner's eyes only, and go nowhere
            else: no file, no exception, no warning.
        separator, decimal, encoding: of a file (`dpjax._base.reading.Reading`).
        missing, missing_codes, impute: what is done about missing values (`dpjax._base.reading.Reading`).
        options: of the family, such as `shape` of "gamma". Others are refused, `scaling` among them: a release scales
            its variables as said above.

    Returns:
        The release. Its `privacy.epsilon` is at most `epsilon`: what OpenDP's privacy maps give, for Gaussian noise
        what was asked for.

    Raises:
        InputError: bad argument or table, or one that looks wrong and is not accepted; messages about the table name
            the column and hold no value and no count. No exception holds values of the table in its frames
            (`dpjax._base.private_frames`).
        MissingExtraError: OpenDP is not installed.

    Warns:
        PrivacyWarning: always, before any noise is drawn: every further release of the same table adds its epsilon.
            Also if epsilon or delta protect nobody, or there is so much noise that the release says little: from
            public numbers only.
    """
    given = dict(locals())  # a copy: debuggers write to the other
    plan = plan_release(**given.pop("options"), **given)
    plan._check()
    for sentence in plan.warnings:
        warnings.warn(sentence, PrivacyWarning, stacklevel=3)  # beyond the decorator
    return plan._noised()


@without_private_values
@same_parameters(release, returns=Plan)
@no_type_check
def plan_release(table: Table, **options: Any) -> Plan:
    """Check everything about a release, and draw no noise yet: `Plan.draw` does, once.

    Neither OpenDP nor the operating system is asked for a random number. The table is read and summed here; the
    report for the owner is shown here.

    Args:
        table: as of `release`.
        options: the other arguments of `release`: fields of `dpjax.releases.options.ReleaseOptions`, and those of the
            family.

    Returns:
        The plan. It shows public facts only, and holds the sums of the table until they are drawn: those of rows that
        are averaged, or with private bounds, the columns.

    Raises:
        InputError, MissingExtraError: as of `release`, but for what OpenDP alone says of the budget of private bounds
            (`Plan.draw`).
    """
    chosen = ReleaseOptions.of(options)
    statistic, search = chosen.statistic, chosen.search
    drawing.check_whole_numbers(statistic, chosen.mechanism)
    reading = chosen.reading.reading.checked(statistic)
    grid = None if search is None else search.candidates(*grid_of(statistic))
    drawing.check_sizes(statistic, chosen.mechanism, 1)
    statistic.check_default_prior(grid)
    if importlib.util.find_spec("opendp") is None:
        require("opendp", "dpjax.releases.release")

    from dpjax.releases.table import Wanted, completed, raw_columns

    raw = raw_columns(table, Wanted.of(statistic), reading)
    # all that public facts decide, the number of records among them, before a value is looked at
    terms = Terms(
        statistic, chosen.mechanism, chosen.budget, chosen.slack, chosen.adjacency,
        drawing.records_of(statistic, len(raw[statistic.variables[0]])), chosen.share, search, grid, reading.impute,
    )  # fmt: skip
    terms.check()
    plan = Plan(terms, completed(raw, reading))
    # before the noise: the owner may stop
    drawing.show_owner(raw, statistic, reading, search is not None, chosen.report, chosen.accept)
    return plan
