"""What every process of a run knows of its config and folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dpjax.calibration.design import StudyDesign
from dpjax.calibration.result import Calibration
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_file import unpack
from dpjax.inference.posterior_state import pack
from dpjax.runner.folder import pack_calibration, unpack_calibration
from dpjax.runner.sections import CalibrationSection, Config, Fit, in_folder


class Outline:
    """What every process of a run knows of its config and folder.

    base: the folder that the config's paths are relative to.
    fit, study: sections with the methods that are run.
    design: what the study simulates.
    posteriors, calibrations: those that were finished before, by method.
    """

    design: StudyDesign

    def __init__(self, config: Config, base: Path):
        self.base = base
        self.fit: Fit | None = None
        self.study: CalibrationSection | None = None
        self.fit_prior = in_folder(config.fit.prior, base) if config.fit else None
        self.posteriors: dict[str, Posterior] = {}
        self.calibrations: dict[str, Calibration] = {}

    def told(self) -> dict[str, Any]:
        """What process 0 tells the others: plain data, and nothing of a table."""
        return {
            "fit": None if self.fit is None else msgspec.to_builtins(self.fit),
            "study": None if self.study is None else msgspec.to_builtins(self.study),
            "posteriors": {method: pack(one) for method, one in self.posteriors.items()},
            "calibrations": {method: pack_calibration(one) for method, one in self.calibrations.items()},
        }

    @classmethod
    def heard(cls, told: Mapping[str, Any], config: Config, base: Path) -> Outline:
        """What another process makes of that. It reads the priors itself, and no table.

        Raises:
            InputError: a prior is not the one that process 0 sees.
        """
        outline = cls(config, base)
        outline.fit = None if told["fit"] is None else msgspec.convert(told["fit"], Fit)
        if told["study"] is not None:
            outline.study = msgspec.convert(told["study"], CalibrationSection)
            outline.design = outline.study.design(base)
        outline.posteriors = {method: unpack(*packed) for method, packed in told["posteriors"].items()}
        outline.calibrations = {method: unpack_calibration(*packed) for method, packed in told["calibrations"].items()}
        return outline
