"""Samplers: one chain's transitions, as BlackJAX has them, and as the engine runs them on many lanes.

Each module has a frozen dataclass of settings with the lane code, and `build`, which returns a
`blackjax.base.SamplingAlgorithm(init, step)` of one chain. `SAMPLERS` lists the modules by name.
"""

from . import collapsed, conjugate, gibbs

#: Name -> module with `build`.
SAMPLERS = {"collapsed": collapsed, "conjugate": conjugate, "gibbs": gibbs}

__all__ = ["SAMPLERS", "collapsed", "conjugate", "gibbs"]
