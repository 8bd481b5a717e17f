"""Samplers: one chain's transitions as the engine runs them on many lanes, and from and to BlackJAX.

Each module has frozen dataclasses of settings with the lane code; `SAMPLERS` lists them by name. `as_blackjax` gives
any of them as a `blackjax.base.SamplingAlgorithm(init, step)` of one chain, `from_blackjax` takes such an algorithm
into the engine.
"""

from dpjax.samplers import collapsed, conjugate, counts, fixed_s, gibbs, party_clt, party_gibbs, party_hmc
from dpjax.samplers.blackjax_algorithms import from_blackjax
from dpjax.samplers.one_chain import as_blackjax, warm_up

#: Name -> class of settings, of every sampler that goes step by step. Posteriors that are computed (`exact`, `ops`)
#: have no steps: their tables are made on the host, and draws from them are independent.
SAMPLERS = {
    "collapsed": collapsed.Collapsed,
    "collapsed, counts": counts.Counts,
    "collapsed, parties": party_hmc.PartyHmc,
    "conjugate": conjugate.Conjugate,
    "gibbs": gibbs.Gibbs,
    "normal-x": party_gibbs.NormalX,
    "fixed-s": fixed_s.FixedS,
    "fixed-s-fast": fixed_s.FixedSFast,
    "clt": party_clt.Clt,
}

__all__ = ["SAMPLERS", "as_blackjax", "collapsed", "conjugate", "from_blackjax", "gibbs", "warm_up"]
