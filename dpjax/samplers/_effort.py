"""The settings of HMC that say how hard it tries, as numbers that a compiled program is given.

Problems that did not converge are run again with longer trajectories, shorter steps and a longer search and warm-up:
as inputs of the program these need no program of their own.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from dpjax.engine.sampler import Numbered

#: Fields of the samplers that enter their programs through `Effort` only.
_FIELDS = ("leapfrogs", "warmup", "mode_steps", "target", "max_step")


class Effort(NamedTuple):
    """Steps per trajectory, iterations of warm-up and steps of the search; acceptance rate aimed at; logarithm of the
    longest step size; step size of the quarter turn with which a chain leaves the mode; steps of the search in which
    the noise narrows. Python numbers, or traced scalars."""

    leapfrogs: Any
    warmup: Any
    mode_steps: Any
    target: Any
    longest: Any
    turn: Any
    cooling: Any


class ByEffort(Numbered):
    """A sampler with the fields `leapfrogs`, `warmup`, `mode_steps` and `target`, and the methods below."""

    def leapfrogs_for(self, dim: int) -> int:
        """Steps per trajectory at this many coordinates."""
        raise NotImplementedError

    def longest_step(self, dim: int) -> float:
        """Bound on the step size."""
        raise NotImplementedError

    def cooling_steps(self) -> float:
        """Steps of the search for the mode in which the noise narrows to what it is."""
        raise NotImplementedError

    def effort(self, dim: int) -> Effort:
        """What a program was given; outside of one the settings themselves."""
        if self.given is not None:
            return self.given
        mine: Any = self
        steps = self.leapfrogs_for(dim)
        longest, turn = float(np.log(self.longest_step(dim))), float(np.pi / 2 / steps)
        return Effort(steps, mine.warmup, mine.mode_steps, mine.target, longest, turn, self.cooling_steps())

    def numbers(self, model: Any) -> Effort:
        return self.effort(model.dim)

    def general(self) -> Any:
        usual = {f.name: f.default for f in dataclasses.fields(self) if f.name in _FIELDS}  # type: ignore[arg-type]
        return dataclasses.replace(self, **usual)  # type: ignore[type-var]
