"""The result of a fit: draws, units, diagnostics, and their summary, table and ArviZ file."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dpjax import _files
from dpjax.diagnostics import Diagnostics, diagnose
from dpjax.errors import InputError, require

RHAT_LIMIT = 1.05
ESS_LIMIT = 100.0


def to_user_units(draws, lower, upper) -> np.ndarray:
    """Regression parameters for variables mapped to [-1, 1] -> the same parameters in the user's units.

    With v' = (v - c) / h, c = (lower + upper) / 2 and h = (upper - lower) / 2 for every variable:
    theta_i = theta'_i h_y / h_i, theta_0 = c_y + h_y theta'_0 - sum_i theta_i c_i, sigma2 = h_y^2 sigma2',
    mu_i = c_i + h_i mu'_i, tau2_ij = h_i h_j tau2'_ij.

    Args:
        draws: [..., K], K = (p + 1) + 1 + p + p (p + 1) / 2 in the order theta[0..p], sigma2, mu_x[1..p],
            tau2[i,j] for i >= j row by row.
        lower, upper: [p + 1] bounds of the p features, then of the target.

    Returns:
        [..., K] float64.

    Raises:
        InputError: the number of bounds does not fit K.
    """
    draws = np.asarray(draws, dtype=np.float64)
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    p = lower.shape[0] - 1
    if lower.shape != upper.shape or draws.shape[-1] != 2 * (p + 1) + p * (p + 1) // 2:
        raise InputError(f"bounds: {lower.shape[0]} variables do not fit {draws.shape[-1]} parameters")
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    theta0, slopes, sigma2 = draws[..., :1], draws[..., 1 : p + 1], draws[..., p + 1 : p + 2]
    mean, covariance = draws[..., p + 2 : 2 * p + 2], draws[..., 2 * p + 2 :]
    slopes = slopes * (half[p] / half[:p])
    theta0 = centre[p] + half[p] * theta0 - (slopes @ centre[:p])[..., None]
    row, column = np.tril_indices(p)
    return np.concatenate(
        [
            theta0,
            slopes,
            half[p] ** 2 * sigma2,
            centre[:p] + half[:p] * mean,
            half[row] * half[column] * covariance,
        ],
        axis=-1,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws from a posterior given a release, with all that is needed to read them.

    draws: [C, S, K], in the scaled units of the release.
    names: K parameter names, as in DESIGN section 9.
    features, target: variables of a regression, in the order of theta (empty for one-variable families).
    bounds: lower and upper bound of each variable in the user's units, or None.
    scaling: "bounds-to-[-1,1]", or None when the release is in raw units (then both units coincide).
    records, epsilon, delta, mechanism, adjacency: of the release.
    method: sampler; seconds: of the compiled run (compile_seconds apart); codes: [C] result codes, 0 is fine.
    rerun: the first run had not converged and was replaced by a harder one with more chains, of rerun_seconds.
    prior: description of the prior, ready for JSON; prior_draws: [N, K] draws from it, scaled, or None.
    """

    draws: np.ndarray
    names: tuple[str, ...]
    features: tuple[str, ...]
    target: str
    bounds: Mapping[str, tuple[float, float]] | None
    scaling: str | None
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
    kind: str = "linear-regression"

    def __post_init__(self) -> None:
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise InputError(f"draws: shape [chains, draws, {len(self.names)}] is needed, got {self.draws.shape}")
        if self.scaling is not None and self.bounds is None:
            raise InputError("bounds: a scaled release needs the bounds of every variable")

    @cached_property
    def user_draws(self) -> np.ndarray:
        """Draws in the user's units, [C, S, K] float64."""
        return self._in_user_units(self.draws)

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
        return None if self.prior_draws is None else self._in_user_units(self.prior_draws)

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
        return "\n".join(lines)

    def describe(self, name: str) -> str:
        """What a regression parameter is, in terms of the user's variables; "" for other families."""
        base, index = _split(name)
        if self.kind != "linear-regression":
            return ""
        if base == "theta":
            return "intercept" if index == (0,) else self.features[index[0] - 1]
        if base == "sigma2":
            return "residual variance"
        if base == "mu_x":
            return f"mean of {self.features[index[0] - 1]}"
        first, second = (self.features[i - 1] for i in index)
        return f"variance of {first}" if first == second else f"covariance of {first}, {second}"

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
        advice += ", or compare with --method gibbs." if self.method == "collapsed" else ", or use --method collapsed."
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

    def to_inference_data(self):
        """ArviZ object (`InferenceData` in 0.x, `DataTree` in 1.x) with one group "posterior", user's units.

        Variables: theta(coefficient), sigma2, mu_x(feature), tau2(feature_pair: lower triangle, "a*b").

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

    def _in_user_units(self, draws) -> np.ndarray:
        if self.scaling is None or self.bounds is None or self.kind != "linear-regression":
            return np.asarray(draws, dtype=np.float64)
        pairs = [self.bounds[name] for name in (*self.features, self.target)]
        return to_user_units(draws, [low for low, _ in pairs], [high for _, high in pairs])

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
        return {
            "model": self.kind,
            "features": list(self.features),
            "target": self.target,
            "records": self.records,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "adjacency": self.adjacency,
            "scaling": self.scaling,
            "bounds": None
            if self.bounds is None
            else {name: [float(b) for b in pair] for name, pair in self.bounds.items()},
        }

    def _variables(self):
        groups: dict[str, list[int]] = {}
        for k, name in enumerate(self.names):
            groups.setdefault(_split(name)[0], []).append(k)
        values, dims, coords = {}, {}, {}
        regression = self.kind == "linear-regression"
        known = {"theta": "coefficient", "mu_x": "feature", "tau2": "feature_pair"} if regression else {}
        for base, columns in groups.items():
            indices = [_split(self.names[k])[1] for k in columns]
            if len(columns) == 1 and not indices[0]:
                values[base] = self.user_draws[..., columns[0]]
                continue
            dim = known.get(base, f"{base}_index")
            values[base] = self.user_draws[..., columns]
            dims[base] = [dim]
            coords[dim] = [self._coordinate(base, index) for index in indices]
        return values, dims, coords

    def _coordinate(self, base: str, index: tuple[int, ...]) -> str:
        if self.kind != "linear-regression":
            return ",".join(str(i) for i in index)
        if base == "theta" and index == (0,):
            return "(intercept)" if "intercept" in self.features else "intercept"
        return "*".join(self.features[i - 1] for i in index)


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    match = re.fullmatch(r"(\w+)\[([\d,]+)\]", name)
    return (match[1], tuple(int(i) for i in match[2].split(","))) if match else (name, ())


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
    return value if isinstance(value, str | int | float) else json.dumps(_files.plain(value))


def _version() -> str:
    try:
        return metadata.version("dpjax")
    except metadata.PackageNotFoundError:
        return "unknown"
