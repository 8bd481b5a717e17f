"""The result of a fit: draws, units, diagnostics, and their summary, table and ArviZ file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax import _files
from dpjax.diagnostics import ESS_LIMIT, RHAT_LIMIT, Diagnostics, diagnose
from dpjax.errors import InputError, require
from dpjax.statistics import Statistic, split_name

if TYPE_CHECKING:
    import dpjax.prediction


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws from a posterior given a release, with all that is needed to read them.

    draws: [C, S, K], in the units of the release.
    names: K parameter names.
    statistic: what was released; it knows the user's units and words.
    records, epsilon, delta, mechanism, adjacency: of the release.
    method: sampler; seconds: of the compiled run (compile_seconds apart); codes: [C] result codes, 0 is fine.
    rerun: the first run had not converged and was replaced by a harder one with more chains, of rerun_seconds.
    prior: description of the prior, ready for JSON; prior_draws: [N, K] draws from it, scaled, or None.
    parties: of several releases, what each one states: records, mechanism, epsilon, delta.
    notes: sentences about how the posterior was computed and what it looks like.
    """

    draws: np.ndarray
    names: tuple[str, ...]
    statistic: Statistic
    records: int
    epsilon: float
    delta: float
    mechanism: str
    adjacency: str
    method: str
    seconds: float
    codes: np.ndarray
    prior: Mapping[str, Any]
    prior_draws: np.ndarray | None = None
    compile_seconds: float | None = None
    rerun: bool = False
    rerun_seconds: float = 0.0
    notes: Sequence[str] = ()
    parties: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise InputError(f"draws: shape [chains, draws, {len(self.names)}] is needed, got {self.draws.shape}")

    @property
    def kind(self) -> str:
        """Kind of the model."""
        return self.statistic.kind

    @property
    def scaling(self) -> str | None:
        """ "bounds-to-[-1,1]", or None when the release is in raw units (then both units coincide)."""
        return self.statistic.scaling

    @cached_property
    def user_draws(self) -> np.ndarray:
        """Draws in the user's units, [C, S, K] float64."""
        return self.statistic.to_user_units(np.asarray(self.draws, dtype=np.float64))

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Diagnostics of the draws in the user's units (arrays [1, K])."""
        return diagnose(self.user_draws[None], self.names)

    @cached_property
    def diagnostics_scaled(self) -> Diagnostics:
        """Diagnostics of the draws in scaled units; only the intercept can differ."""
        return diagnose(self.draws[None], self.names)

    @cached_property
    def user_prior_draws(self) -> np.ndarray | None:
        """Prior draws in the user's units, [N, K]."""
        if self.prior_draws is None:
            return None
        return self.statistic.to_user_units(np.asarray(self.prior_draws, dtype=np.float64))

    @cached_property
    def prior_sd(self) -> np.ndarray | None:
        """Prior sd of each parameter in the user's units, [K], estimated from the prior draws."""
        return None if self.user_prior_draws is None else self.user_prior_draws.std(axis=0, ddof=1)

    @cached_property
    def prior_sd_scaled(self) -> np.ndarray | None:
        """Prior sd of each parameter in scaled units, [K]."""
        if self.prior_draws is None:
            return None
        return np.asarray(self.prior_draws, dtype=np.float64).std(axis=0, ddof=1)

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`: user's units under "parameters", scaled units under "scaled"."""
        return {
            "parameters": self._rows(self.user_draws, self.diagnostics, self.prior_sd),
            "scaled": self._rows(self.draws, self.diagnostics_scaled, self.prior_sd_scaled),
            "prior": dict(self.prior),
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "method": self.method,
            "rerun": self.rerun,
            "rerun_seconds": self.rerun_seconds,
            "chains": self.draws.shape[0],
            "draws": self.draws.shape[1],
            "codes": [int(code) for code in self.codes],
            "notes": list(self.notes),
            **self._release(),
            "converged": not self.warnings(),
            "warnings": self.warnings(),
        }

    def table(self, scaled: bool = False) -> str:
        """Readable table: posterior and prior sd side by side, 90% interval, ESS and R-hat per parameter."""
        if scaled:
            rows = self._rows(self.draws, self.diagnostics_scaled, self.prior_sd_scaled)
        else:
            rows = self._rows(self.user_draws, self.diagnostics, self.prior_sd)
        head = ("parameter", "", "mean", "sd", "prior sd", "5%", "95%", "ESS bulk", "ESS tail", "R-hat")
        body = [
            (
                name,
                self.describe(name),
                *(_number(row[key]) for key in ("mean", "sd", "prior_sd", "q05", "q95")),
                *(_count(row[key]) for key in ("ess_bulk", "ess_tail")),
                _count(row["rhat"], 3),
            )
            for name, row in rows.items()
        ]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        units = "scaled units" if scaled and self.scaling is not None else "user's units"
        epsilon = f"epsilon = {self.epsilon:g}" if np.isfinite(self.epsilon) else "epsilon not stated"
        title = (
            f"{self.method}: n = {self.records}, {epsilon}, {self.draws.shape[0]} chains x "
            f"{self.draws.shape[1]} draws, {units}, 90% interval"
        )
        lines = [title, *_lines(head, body, widths)]
        if self.rerun:
            lines.append(
                "the first run had not converged: this is a harder one with more chains "
                f"({self.rerun_seconds:.2f} s of reruns)"
            )
        lines += self.notes
        return "\n".join(lines)

    def describe(self, name: str) -> str:
        """What a parameter is, in the user's words."""
        return self.statistic.describe(name)

    def warnings(self) -> list[str]:
        """Sentences about chains that should not be trusted yet, and what to do; empty when all is well."""
        found = []
        failed = int(np.count_nonzero(self.codes))
        if failed:
            found.append(
                f"{failed} of {self.draws.shape[0]} chains ended with a failing result code; their draws "
                "must not be used: check bounds and prior, or run with another seed."
            )
        advice = "run more draws (--draws) and more chains (--chains)"
        if self.method != "collapsed":
            advice += ", or use --method collapsed."
        elif self.parties or not getattr(self.statistic, "intercept", True):  # there is no gibbs for these
            advice += ", or, where the noise is small beside the sampling variation, compare with --method naive."
        else:
            advice += ", or compare with --method gibbs."
        diag = self.diagnostics
        still = [name for name, flag in zip(self.names, diag.constant[0], strict=True) if flag]
        if still:
            found.append(f"{_list(still)} never moved in any chain: {advice}")
        rhat = np.where(np.isnan(diag.rhat[0]), np.inf, diag.rhat[0])
        rhat = np.where(diag.constant[0], 0.0, rhat)
        bad = [self.names[k] for k in np.argsort(-rhat) if rhat[k] > RHAT_LIMIT]
        if bad:
            found.append(
                f"R-hat is {rhat.max():.3g} for {bad[0]} (limit {RHAT_LIMIT}; above it: {_list(bad)}): the "
                f"chains have not mixed; {advice}"
            )
        for kind, values in (("bulk", diag.capped_bulk[0]), ("tail", diag.capped_tail[0])):
            ess = np.where(np.isnan(values), 0.0, values)
            ess = np.where(diag.constant[0], np.inf, ess)
            bad = [self.names[k] for k in np.argsort(ess) if ess[k] < ESS_LIMIT]
            if bad:
                found.append(
                    f"{kind} ESS is {ess.min():.0f} for {bad[0]} (limit {ESS_LIMIT:.0f}; under it: "
                    f"{_list(bad)}): means and intervals are rough; {advice}"
                )
        return found

    def predict(
        self, new: Any, *, level: float | Sequence[float] | Any = 0.9, seed: int | Any = 0
    ) -> dpjax.prediction.Prediction:
        """Predictive distribution of a regression's target at new rows, in the user's units.

        Arguments and errors are those of `dpjax.prediction.RegressionPosterior.predict`.

        Raises:
            InputError: the posterior of another model; as there.
        """
        from dpjax.prediction import RegressionPosterior

        return RegressionPosterior.of(self).predict(new, level=level, seed=seed)

    def to_inference_data(self):
        """ArviZ object (`InferenceData` in 0.x, `DataTree` in 1.x) with one group "posterior", user's units.

        Parameters with an index become vectors with coordinate names: theta(coefficient), mu_x(feature) and
        tau2(feature_pair: lower triangle, "a*b") of a regression, p(category) of a multinomial.

        Raises:
            MissingExtraError: ArviZ is not installed.
        """
        arviz = require("arviz", "report", "saving a posterior")
        values, dims, coords = self._variables()
        attributes = {
            "method": self.method,
            "dpjax_version": _version(),
            "converged": int(not self.warnings()),
            "seconds": float(self.seconds),
            **{key: _attribute(value) for key, value in self._release().items()},
            "prior": json.dumps(_files.plain(self.prior)),
        }
        if int(arviz.__version__.split(".")[0]) < 1:
            return arviz.from_dict(posterior=values, coords=coords, dims=dims, posterior_attrs=attributes)
        return arviz.from_dict({"posterior": values}, coords=coords, dims=dims, attrs={"posterior": attributes})

    def save(self, path: str | os.PathLike, force: bool = False) -> Path:
        """Write NetCDF that `arviz.from_netcdf` opens; never overwrites without `force`.

        Raises:
            InputError: the file exists, or its folder does not.
            MissingExtraError: ArviZ or h5netcdf is not installed.
        """
        _files.check_output(path, force)
        require("h5netcdf", "report", "saving a posterior")
        data = self.to_inference_data()
        return _files.write_with(path, lambda file: data.to_netcdf(str(file), engine="h5netcdf"), force)

    def _rows(self, draws, diagnostics: Diagnostics, prior_sd) -> dict[str, dict[str, float | None]]:
        flat = np.asarray(draws, dtype=np.float64).reshape(-1, len(self.names))
        q05, q95 = np.quantile(flat, [0.05, 0.95], axis=0)
        mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
        return {
            name: {
                "mean": float(mean[k]),
                "sd": float(sd[k]),
                "q05": float(q05[k]),
                "q95": float(q95[k]),
                "ess_bulk": float(diagnostics.ess_bulk[0, k]),
                "ess_tail": float(diagnostics.ess_tail[0, k]),
                "rhat": float(diagnostics.rhat[0, k]),
                "prior_sd": None if prior_sd is None else float(prior_sd[k]),
            }
            for k, name in enumerate(self.names)
        }

    def _release(self) -> dict[str, Any]:
        model = _files.plain(self.statistic.block())
        return {
            "model": model.pop("kind"),
            **model,
            "records": self.records,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "adjacency": self.adjacency,
            "scaling": self.scaling,
            "bounds": _files.plain(self.statistic.column_bounds),
            "truncation": _files.plain(self.statistic.truncation),
            **({"parties": [dict(party) for party in self.parties]} if self.parties else {}),
        }

    def _variables(self):
        groups: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        for k, name in enumerate(self.names):
            base, index = split_name(name)
            groups.setdefault(base, []).append((k, index))
        values, dims, coords = {}, {}, {}
        for base, members in groups.items():
            columns = [k for k, _ in members]
            if len(members) == 1 and not members[0][1]:
                values[base] = self.user_draws[..., columns[0]]
                continue
            dim = self.statistic.dimension(base)
            values[base] = self.user_draws[..., columns]
            dims[base] = [dim]
            coords[dim] = [self.statistic.coordinate(base, index) for _, index in members]
        return values, dims, coords


def richest(posteriors: Mapping[str, Posterior]) -> Posterior:
    """The posterior that reports most parameters; the others report some of its."""
    return max(posteriors.values(), key=lambda item: len(item.names))


def _lines(head, body, widths) -> list[str]:
    def line(cells) -> str:
        parts = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [line(head), "-" * (sum(widths) + 2 * (len(widths) - 1)), *(line(cells) for cells in body)]


def _number(value: float | None) -> str:
    """Four significant digits, without an exponent where a reader does not need one."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(3 - size, 0)}f}" if -4 < size < 7 else f"{value:.3e}"


def _count(value: float | None, decimals: int = 0) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{decimals}f}"


def _list(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _attribute(value: Any) -> str | int | float:
    """NetCDF attributes are numbers or text: everything else becomes JSON text."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str | int | float) else json.dumps(_files.plain(value))


def _version() -> str:
    try:
        return metadata.version("dpjax")
    except metadata.PackageNotFoundError:
        return "unknown"
