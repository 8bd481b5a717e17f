"""What is said beside a posterior: notes on how it was computed, and doubts about it."""

from __future__ import annotations

import numpy as np

from dpjax.diagnostics.tails import HEAVY_TAIL, tail_index
from dpjax.engine.problems import Problems
from dpjax.engine.result_codes import MODE_MISSING, WORSE_MODE
from dpjax.engine.results import Run
from dpjax.inference.method import Method
from dpjax.inference.methods import default_method
from dpjax.inference.modes import can_find_modes, describe_modes, doubt_about_modes, find_modes


def notes_on(method: Method, problems: Problems, run: Run) -> tuple[str, ...]:
    """Which law of the sum an exact posterior is of, and whether the posterior has several modes."""
    law = getattr(method.sampler(problems), "law", None)
    notes = [f"computed from the {law}"] if law else []
    if not method.noise_aware:
        return tuple(notes)
    if can_find_modes(problems):
        modes = find_modes(problems)[0]
        notes += [describe_modes(modes, problems.model.parameter_names[0])] if len(modes) > 1 else []
    elif problems.model.may_have_modes:
        notes.append(doubt_about_modes(run.draws[0]))
    return (*notes, *_heavy_tails(run))


def _heavy_tails(run: Run) -> list[str]:
    """A sentence about parameters whose sd draws settle slowly, if there are such."""
    if run.computed is not None or run.draws.shape[2] < 100:
        return []
    index = tail_index(run.draws[0].reshape(-1, len(run.names)))
    heavy = [name for name, g in zip(run.names, index, strict=True) if g > HEAVY_TAIL]
    if not heavy:
        return []
    return [
        f"heavy tails (of {', '.join(heavy)}): even many draws give such an sd only roughly, 10 to 30% off; median and "
        "interval are as good as the tail ESS says"
    ]


#: Noise of a sum, in units of the square root of the records and half the width of a bound, that hides next to nothing.
SMALL_NOISE = 0.02


def doubts_about(method: Method, problems: Problems, run: Run) -> tuple[str, ...]:
    """The better method for a posterior with a mode that chains missed, or of few records that the noise does not
    hide."""
    model, found = problems.model_template(), []
    if np.isin(run.codes, (WORSE_MODE, MODE_MISSING)).any() and default_method(model) == "exact":
        found.append("chains do not find all modes of this posterior; --method exact computes it: use that.")
    n = float(problems.n[0])
    if method.noise_aware and n < model.few_records:
        box = np.array([(-1.0, 1.0)]) if problems.box is None else np.asarray(problems.box)
        hidden = problems.scale[0].max() / (0.5 * (box[:, 1] - box[:, 0])).min() / np.sqrt(n)
        if hidden < SMALL_NOISE:
            found.append(
                f"{n:g} records with next to no noise: the normal law of their sums is far from the exact one there; "
                "use --method wishart (from two records more than features on)."
            )
    return tuple(found)
