"""The result of a fit: draws, units, diagnostics, and their summary, table and ArviZ file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax._base import files
from dpjax._base.signatures import no_type_check
from dpjax._base.text import show_count, show_number
from dpjax.diagnostics.ranks import Diagnostics, diagnose
from dpjax.engine import result_codes
from dpjax.errors import InputError
from dpjax.inference.prediction_rows import Point, Rows
from dpjax.inference.summary import (
    CONFLICT,
    describe_conflict,
    in_user_units,
    lines_of_table,
    rows_of_parameters,
    warnings_of_chains,
)
from dpjax.releases.release import Release
from dpjax.statistics.base import Statistic

if TYPE_CHECKING:
    import dpjax.inference.prediction
    import dpjax.inference.prediction_at


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
    prior_p: p-value of the released sums under the prior predictive law, or None where it is not computed.
    parties: of several releases, what each one states: records, mechanism, epsilon, delta.
    releases: what was fitted, in the order given; empty where it was no file (`dpjax.inference.matrix_release`).
    agreement: of several releases, p-values that they differ by sampling and noise only ("records"), and that their
        regressions do ("regression"); see `dpjax.releases.party_agreement`.
    computed: mean, sd, q05 and q95 [K] in the units of the release of a posterior that is computed and not sampled;
    `summary` and `table` report them in place of those of the draws.
    notes: sentences about how the posterior was computed and what it looks like.
    doubts: sentences about why it should not be relied on, beside what its chains say; the exit code is then 1.
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
    doubts: Sequence[str] = ()
    prior_p: float | None = None
    parties: Sequence[Mapping[str, Any]] = ()
    releases: Sequence[Release] = ()
    agreement: Mapping[str, float] = field(default_factory=dict)
    computed: Mapping[str, np.ndarray] | None = None

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
            "parameters": self._user_rows(),
            "scaled": self._scaled_rows(),
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
            "prior_predictive_p": self.prior_p,
            **self._release(),
            "converged": not self.warnings(),
            "warnings": self.warnings(),
        }

    def table(self, scaled: bool = False) -> str:
        """Readable table: posterior and prior sd side by side, 90% interval, ESS and R-hat per parameter."""
        head, body = self._cells(scaled)
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [self._title(scaled), *lines_of_table(head, body, widths)]
        if self.rerun:
            lines.append(
                "the first run had not converged: this is a harder one with more chains "
                f"({self.rerun_seconds:.2f} s of reruns)"
            )
        return "\n".join([*lines, *self.remarks()])

    def remarks(self) -> list[str]:
        """What a reader should know beside the numbers: the notes, and a conflict of prior and release."""
        conflict = self.prior_p is not None and self.prior_p < CONFLICT
        return [*self.notes, *([describe_conflict(self.prior_p)] if conflict and self.prior_p is not None else [])]

    def _repr_html_(self) -> str:
        """For notebooks: the table in the user's units, notes and warnings."""
        from dpjax.inference.posterior_html import to_html

        return to_html(self, *self._cells(False), self._title(False))

    def __repr__(self) -> str:
        return f"Posterior({self._title(False)})"

    def _cells(self, scaled: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and rows of the table."""
        rows = self._scaled_rows() if scaled else self._user_rows()
        head = ("parameter", "", "mean", "sd", "prior sd", "5%", "95%", "ESS bulk", "ESS tail", "R-hat")
        body: list[tuple[str, ...]] = [
            (
                name,
                self.describe(name),
                *(show_number(row[key]) for key in ("mean", "sd", "prior_sd", "q05", "q95")),
                *(show_count(row[key]) for key in ("ess_bulk", "ess_tail")),
                show_count(row["rhat"], 3),
            )
            for name, row in rows.items()
        ]
        return head, body

    def _title(self, scaled: bool) -> str:
        units = "scaled units" if scaled and self.scaling is not None else "user's units"
        epsilon = f"epsilon = {self.epsilon:g}" if np.isfinite(self.epsilon) else "epsilon not stated"
        return (
            f"{self.method}: n = {self.records}, {epsilon}, {self.draws.shape[0]} chains x "
            f"{self.draws.shape[1]} draws, {units}, 90% interval"
        )

    def describe(self, name: str) -> str:
        """What a parameter is, in the user's words."""
        return self.statistic.describe(name)

    def warnings(self, options: bool = True) -> list[str]:
        """Sentences about why the result should not be trusted yet, and what to do; empty when all is well.

        Args:
            options: whether advice names options of the command, too.
        """
        found = [*self.doubts, *result_codes.sentences(self.codes)]
        advice = "run more draws (--draws) and more chains (--chains)" if options else "run more draws and more chains"
        if self.doubts and self.agreement:
            advice = "more draws do not mend what is said above"
        elif self.method != "collapsed":
            advice += ", or use --method collapsed."
        elif self.parties or not getattr(self.statistic, "intercept", True):  # there is no gibbs for these
            advice += ", or, where the noise is small beside the sampling variation, compare with --method naive."
        else:
            advice += ", or compare with --method gibbs."
        return found + warnings_of_chains(self.diagnostics, self.names, advice)

    @no_type_check
    def predict(
        self, new: Rows, *, level: float | Sequence[float] = 0.9, seed: int = 0
    ) -> dpjax.inference.prediction.Prediction:
        """Predictive distribution of a regression's target at new rows, in the user's units.

        Arguments and errors are those of `dpjax.inference.predictive.RegressionPosterior.predict`.

        Raises:
            InputError: the posterior of another model; as there.
        """
        from dpjax.inference.predictive import RegressionPosterior

        return RegressionPosterior.of(self).predict(new, level=level, seed=seed)

    @no_type_check
    def predict_at(self, x: Point, *, seed: int = 0) -> dpjax.inference.prediction_at.PredictionAt:
        """Predictive distribution of a regression's target at one point, in the user's units.

        Arguments and errors are those of `dpjax.inference.predictive.RegressionPosterior.predict_at`.

        Raises:
            InputError: the posterior of another model; as there.
        """
        from dpjax.inference.predictive import RegressionPosterior

        return RegressionPosterior.of(self).predict_at(x, seed=seed)

    def to_inference_data(self):
        """ArviZ object (`InferenceData` in 0.x, `DataTree` in 1.x): the posterior and, where they are known, the prior,
        the released sums and replicated ones (`dpjax.inference.posterior_groups`), user's units but for the sums.

        Parameters with an index become vectors with coordinate names: theta(coefficient), mu_x(feature) and
        tau2(feature_pair: lower triangle, "a*b") of a regression, p(category) of a multinomial.

        Raises:
            MissingExtraError: ArviZ is not installed.
        """
        from dpjax.inference.netcdf import to_arviz

        return to_arviz(self, self._release())

    def save(self, path: str | os.PathLike, force: bool = False) -> Path:
        """Write NetCDF that `arviz.from_netcdf` opens, with a digest of its bytes; never overwrites without `force`.

        Raises:
            InputError: the file exists, or its folder does not.
            MissingExtraError: ArviZ or h5netcdf is not installed.
        """
        from dpjax.inference.netcdf import save_netcdf

        return save_netcdf(self, path, force)

    def _user_rows(self) -> dict[str, dict[str, float | None]]:
        computed = None if self.computed is None else in_user_units(self.statistic, self.computed)
        return rows_of_parameters(self.names, self.user_draws, self.diagnostics, self.prior_sd, computed)

    def _scaled_rows(self) -> dict[str, dict[str, float | None]]:
        return rows_of_parameters(self.names, self.draws, self.diagnostics_scaled, self.prior_sd_scaled, self.computed)

    def _release(self) -> dict[str, Any]:
        model = files.plain(self.statistic.block())
        return {
            "model": model.pop("kind"),
            **model,
            "records": self.records,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "adjacency": self.adjacency,
            "scaling": self.scaling,
            "bounds": files.plain(self.statistic.column_bounds),
            "truncation": files.plain(self.statistic.truncation),
            **({"parties": [dict(party) for party in self.parties]} if self.parties else {}),
            **({"agreement": dict(self.agreement)} if self.agreement else {}),
        }
