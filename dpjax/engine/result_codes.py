"""Result codes of chains: what a run says about each of them, and the sentence a user reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: 0: nothing wrong; 1: numbers that are not finite; 2: every proposal was refused; 3: the error of a computed
#: posterior is above its bound; 4: in a mode that holds next to nothing beside another; 5: a second mode that the
#: chains may not have seen.
OK, NON_FINITE, NOT_MOVING, NOT_RESOLVED, WORSE_MODE, MODE_MISSING = range(6)

#: What each code means for the reader of a result.
SENTENCES = {
    NON_FINITE: "ended with numbers that are not finite",
    NOT_MOVING: "never moved",
    NOT_RESOLVED: "come from a computed posterior whose error could not be brought under its bound",
    WORSE_MODE: "are in a mode that holds next to no probability beside another one",
    MODE_MISSING: "may have missed a second mode of the posterior",
}


def sentences(codes: Sequence[int] | np.ndarray) -> list[str]:
    """One sentence per kind of failure among the chains of one problem; none if all is well.

    Args:
        codes: result codes, one per chain.
    """
    found = np.asarray(codes)
    return [
        f"{int((found == code).sum())} of {found.size} chains {what}: the draws must not be used as they are."
        for code, what in SENTENCES.items()
        if (found == code).any()
    ]
