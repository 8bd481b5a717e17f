"""Readable text about releases, priors and several posteriors, for the terminal and for `results.txt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpjax._base.text import show_count, show_number
from dpjax.inference.posterior import Posterior
from dpjax.inference.summary import richest
from dpjax.releases.release import Release
from dpjax.statistics.origin import FEATURES, TARGET

_RULES = {
    "clamp": "clamp: a record outside of the bounds counts as the nearer bound",
    "redact": "redact: a record outside of the bounds contributes nothing",
}


def describe_release(release: Release, statistics: bool = False) -> str:
    """What a release is and promises."""
    privacy = release.privacy
    moments = None if privacy is None else privacy.moments
    units = "variables scaled to [-1, 1]" if release.scaling else "raw units"
    statistic: Any = release.statistic
    if statistic.norms is not None and release.scaling:
        units = "variables divided by the norms"
    rows = [("model", statistic.title)]
    rows.append(("records", f"{release.records}"))
    if statistic.averaged > 1:
        rows[-1] = ("records", f"{release.records}, each {statistic.averaged} records of the table averaged")
    if privacy is None:
        rows.append(("privacy", "not stated in the release"))
    else:
        own = "" if moments is None else f"; of the moments {moments.sensitivity:.6g}"
        rows += [
            ("adjacency", f"{privacy.adjacency} (the number of records is public)"),
            ("sensitivity", f"{privacy.sensitivity:.6g} ({privacy.norm} norm, {units}){own}"),
        ]
    rows.append(("mechanism", f"{release.mechanism} noise, scale {_scales(release)}"))
    if privacy is not None:
        rows.append(("epsilon", _budget(privacy.epsilon, privacy.delta)))
        if privacy.bounds_epsilon is not None:
            rows.append(("private bounds", f"epsilon = {privacy.bounds_epsilon:.6g} of it, spent to find the bounds"))
        if moments is not None:
            rows.append(
                ("moments", f"epsilon = {_budget(moments.epsilon, moments.delta)} of it; the usual sums the rest")
            )
    if release.bounds:
        rows.append(("bounds", ", ".join(f"{name} {lo:g}:{hi:g}" for name, (lo, hi) in release.bounds.items())))
    if statistic.norms is not None:
        longest, largest = statistic.norms[FEATURES], statistic.norms[TARGET]
        rows.append(("norms", f"|{', '.join(statistic.features)}| <= {longest:g}, |{statistic.target}| <= {largest:g}"))
    if statistic.truncation is not None:
        rows.append(("rule", _RULES[statistic.truncation["rule"]]))
    if release.imputed:
        constants = ", ".join(
            f"{name} = {value if isinstance(value, str) else format(value, 'g')}"
            for name, value in release.imputed.items()
        )
        rows.append(("missing values", f"counted as {constants}; inference takes them for data"))
    if release.simulated:
        rows.append(("noise", "simulated: not drawn for a real release"))
    if statistics:
        rows += [(name, f"{value:.6g}") for name, value in release.statistics.items()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in rows)


def describe_releases(releases: Sequence[Release]) -> str:
    """What one release is and promises; of several parties the model and a line for each."""
    if len(releases) == 1:
        return "release\n" + describe_release(releases[0])
    lines = [f"releases of {len(releases)} parties", f"  {'model':<9}  {releases[0].statistic.title}"]
    for number, one in enumerate(releases, start=1):
        stated = (
            "privacy not stated"
            if one.privacy is None
            else f"epsilon = {_budget(one.privacy.epsilon, one.privacy.delta)}"
        )
        facts = [f"{one.records} records", f"{one.mechanism} noise, scale {_scales(one)}", stated]
        if one.bounds:
            facts.append("bounds " + ", ".join(f"{name} {lo:g}:{hi:g}" for name, (lo, hi) in one.bounds.items()))
        facts += ["simulated"] if one.simulated else []
        lines.append(f"  {f'party {number}':<9}  {', '.join(facts)}")
    return "\n".join(lines)


def _budget(epsilon: float, delta: float) -> str:
    return f"{epsilon:.10g}, delta = {delta:.6g}" if delta else f"{epsilon:.10g}"


def _scales(release: Release) -> str:
    """The noise scale: one number for all entries or each part of them, else by entry."""
    scale = release.noise_scale
    if not isinstance(scale, dict):
        return f"{scale:.6g} per entry"
    parts = release.statistic.parts
    own = [{scale[name] for name in part.names} for part in parts]
    if len(parts) > 1 and all(len(values) == 1 for values in own):
        usual, moments = (min(values) for values in own)
        return f"{usual:.6g} per entry; {moments:.6g} of the moments"
    return ", ".join(f"{name} {value:.6g}" for name, value in scale.items())


def describe_prior(prior: Mapping[str, Any], given: bool = False, scaled: bool = True) -> str:
    """The hyperparameters of a prior, in the layout of `prior.toml`; `scaled`: they are in scaled units."""
    remarks = ["scaled units"] if scaled else []
    kind = "weak default" if prior.get("kind") == "weak" else "default"
    remarks += [] if given else [f"the {kind}, change it with a prior file"]
    lines = ["prior" + (f" ({'; '.join(remarks)})" if remarks else "")]
    tables = {name: value for name, value in prior.items() if isinstance(value, Mapping)}
    lines.append(_values({name: value for name, value in prior.items() if name not in tables}))
    lines += [f"{name}: {_values(table)}" for name, table in tables.items()]
    if prior.get("kind") == "weak":
        lines += [
            "means: N(mean, mean_sd^2), features first, target last; standard deviations: density proportional to "
            f"s^{prior['sd_power'] - 1:g} exp(-s^2 / (2 sd_scale^2))",
            f"R^2 ~ Beta({prior['explained']:g}, {prior['residual']:g}), all directions of the coefficients alike",
        ]
    return "\n  ".join(lines)


def describe_prior_reach(posterior: Posterior) -> str:
    """What a prior says of each parameter in the user's units: median and 90% interval; empty if it has no draws."""
    draws = posterior.user_prior_draws
    if draws is None:
        return ""
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    rows = zip(posterior.names, low, middle, high, strict=True)
    said = [f"{name} {show_number(m)} ({show_number(a)} to {show_number(b)})" for name, a, m, b in rows]
    return "that is, median and 90% in the user's units: " + ", ".join(said)


def compare(posteriors: Mapping[str, Posterior]) -> str:
    """One table of several posteriors of one release: a line per parameter and method, user's units."""
    head = ("parameter", "", "method", "mean", "sd", "prior sd", "5%", "95%", "ESS bulk", "ESS tail", "R-hat")
    body: list[tuple[str, ...]] = []
    summaries = {method: item.summary()["parameters"] for method, item in posteriors.items()}
    first = richest(posteriors)
    breaks = set()
    for name in first.names:
        breaks.add(len(body))
        reported = {method: rows for method, rows in summaries.items() if name in rows}
        for number, (method, rows) in enumerate(reported.items()):
            row = rows[name]
            title = (name, first.describe(name)) if number == 0 else ("", "")
            body.append(
                (
                    *title,
                    method,
                    *(show_number(row[key]) for key in ("mean", "sd", "prior_sd", "q05", "q95")),
                    *(show_count(row[key]) for key in ("ess_bulk", "ess_tail")),
                    show_count(row["rhat"], 3),
                )
            )
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True))
        return "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in pairs).rstrip()

    units = "user's units" if first.scaling is not None else "units of the release"
    lines = [f"posteriors ({units}, 90% intervals)", line(head), "-" * (sum(widths) + 2 * (len(widths) - 1))]
    for number, cells in enumerate(body):
        if number and number in breaks and len(posteriors) > 1:
            lines.append("")
        lines.append(line(cells))
    lines.append("")
    for method, item in posteriors.items():
        compiled = f", compilation {item.compile_seconds:.1f} s" if item.compile_seconds is not None else ""
        lines.append(
            f"{method}: {item.draws.shape[0]} chains x {item.draws.shape[1]} draws in {item.seconds:.2f} s{compiled}"
        )
        lines += [f"{method}: {note}" for note in item.notes]
    return "\n".join(lines)


def _values(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)
