"""What an experiment gave, and the files for people that hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dpjax._base import files
from dpjax.calibration.result import Calibration
from dpjax.inference import describe as _report
from dpjax.inference.methods import METHODS
from dpjax.inference.posterior import Posterior
from dpjax.releases.release import Release
from dpjax.runner.folder import Folder
from dpjax.runner.seconds import seconds_table


@dataclass
class Results:
    """What an experiment gave.

    Args:
        name: of the experiment.
        config: plain data, with its defaults.
        release: drawn, or read from a file.
        posteriors: by method.
        calibrations: by method.
        doubts: by method, sentences about results that have not converged.
        seconds: of the whole run.
        wall: wall seconds by part ("posterior METHOD", "calibration METHOD", "simulation", ...).
        versions: of packages.
        machine: what the run was done on.
    """

    name: str
    config: dict[str, Any]
    release: Release | None = None
    posteriors: dict[str, Posterior] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    wall: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        """Whether every result that claims to be right has converged."""
        return all(METHODS[method].reference for method, sentences in self.doubts.items() if sentences)

    def table(self) -> str:
        """Everything readable, as `results.txt`."""
        parts = [self.name]
        if self.release is not None:
            parts.append("release\n" + _report.describe_release(self.release))
        if self.posteriors:
            prior = next(iter(self.posteriors.values())).prior
            given = (self.config.get("fit") or {}).get("prior") is not None
            scaled = next(iter(self.posteriors.values())).scaling is not None
            parts += [_report.describe_prior(prior, given, scaled), _report.compare(self.posteriors)]
        parts += [f"calibration of {method}\n{item.table()}" for method, item in self.calibrations.items()]
        doubts = [sentence for sentences in self.doubts.values() for sentence in sentences]
        if doubts:
            parts.append("not to be trusted yet\n" + "\n".join(f"  {sentence}" for sentence in doubts))
        seconds = seconds_table(self.posteriors, self.calibrations, self.wall)
        parts += [seconds] if seconds else []
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything printed and more, as `results.json`."""
        return {
            "name": self.name,
            "trusted": self.trusted,
            "seconds": self.seconds,
            "wall_seconds": self.wall,
            "release": None if self.release is None else self.release.to_dict(),
            "posteriors": {method: item.summary() for method, item in self.posteriors.items()},
            "calibration": {method: item.to_dict() for method, item in self.calibrations.items()},
            "warnings": self.doubts,
            "config": self.config,
            "versions": self.versions,
            "machine": self.machine,
        }


def write_results(results: Results, folder: Folder) -> None:
    """Files for people but the pictures."""
    for method, posterior in results.posteriors.items():
        posterior.save(folder.file(f"posterior_{method}.nc"), True)
        files.write_json(folder.file(f"summary_{method}.json"), posterior.summary(), True)
    for method, calibration in results.calibrations.items():
        files.write_json(folder.file(f"calibration_{method}.json"), calibration.to_dict(), True)
    files.write_text(folder.file("results.txt"), results.table() + "\n", True)
    files.write_json(folder.file("results.json"), results.to_dict(), True)
