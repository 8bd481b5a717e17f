"""What a gradient and a step of `collapsed` cost by number of features, without sampling."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from zr_data import Config, sensitivity
from zr_posteriors import prior_of

#: Steps of a trajectory that is timed.
STEPS = 8


def _fastest(repeats: int, function: Callable[..., Any], *arguments: Any) -> float:
    """Processor seconds of the fastest of some calls, after one that compiles: other work is not counted."""
    import jax

    jax.block_until_ready(function(*arguments))
    found = []
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(function(*arguments))
        found.append(time.process_time() - start)
    return min(found)


def costs(config: Config, said: Callable[[str], None]) -> list[dict[str, Any]]:
    """Milliseconds (of processor time) of a gradient with its step (all chains), and of the gradient alone; seconds to
    learn the metric.

    The metric's factors are identities: products with them cost what any others do.
    """
    import jax
    import jax.numpy as jnp

    from dpjax.engine.model import Observed
    from dpjax.mechanisms.noise import Noise
    from dpjax.models import PartySums
    from dpjax.models.regression.party_layout import party_facts
    from dpjax.samplers.arrow import Arrow, curvature_lanes, factor_lanes
    from dpjax.samplers.party_hmc import PartyHmc

    rows, n, lanes = [], float(config.high.records), config.chains
    for p in config.cost.features:
        prior = prior_of(config.prior, p)
        facts = jax.tree.map(lambda x: jnp.asarray(x)[..., None], party_facts(prior, [n]))
        one = PartySums(prior, 1)
        size, scale = one.entries, sensitivity(p) / config.epsilon
        on_lanes = lambda count, model: jax.tree.map(
            lambda x: jnp.broadcast_to(jnp.asarray(x)[..., None], (*jnp.shape(x), count)), model
        )
        at = one.prior_center()
        observed = Observed(
            jnp.zeros((size, 1)), jnp.full((size, 1), n / scale), jnp.full((size, 1), n**0.5 / scale),
            jnp.full((1,), n), Noise.of("laplace", np.ones((size, 1))).in_units(), facts,
        )  # fmt: skip
        many = lambda x: jnp.broadcast_to(x, (*x.shape[:-1], lanes))
        seen, model = jax.tree.map(many, observed), on_lanes(lanes, one)
        position, sampler = jnp.broadcast_to(at[:, None], (*at.shape, lanes)), PartyHmc()
        eye = jnp.eye(size, dtype=jnp.float32)[..., None]  # one metric for all chains
        arrow = Arrow(eye, eye, jnp.zeros_like(eye))
        step = jnp.full((lanes,), 1e-3, jnp.float32)

        @jax.jit
        def trajectory(model, seen, arrow, position, step, sampler=sampler):
            momentum = jnp.ones_like(position)
            return sampler._propose_lanes(model.given(seen), seen, arrow, position, momentum, step, STEPS)

        @jax.jit
        def gradient(model, seen, position):
            density = lambda i, x: x + 1e-6 * model.given(seen).log_density_and_grad_lanes(x, None, seen)[1]
            return jax.lax.fori_loop(0, STEPS + 1, density, position)

        row = {
            "p": p, "parameters": one.base.dim, "dimension": one.dim, "chains": lanes,
            "metric_megabytes": 3 * 4 * size**2 / 1e6,
            "milliseconds": 1e3 / (STEPS + 1)
            * _fastest(config.cost.repeats, trajectory, model, seen, arrow, position, step),
            "milliseconds_of_the_gradient": 1e3 / (STEPS + 1)
            * _fastest(config.cost.repeats, gradient, model, seen, position),
            "seconds_of_the_metric": None,
        }  # fmt: skip
        if p <= config.cost.metric_up_to:
            own, first = on_lanes(1, one), position[:, :1]

            @jax.jit
            def metric(model, observed, position):
                inner, latent, across = curvature_lanes(model.given(observed), observed, position)
                identity = jnp.eye(latent.shape[0], dtype=latent.dtype)[..., None]
                return factor_lanes(model, inner + identity, latent + identity, across)

            row["seconds_of_the_metric"] = _fastest(config.cost.repeats, metric, own, observed, first)
        rows.append(row)
        said(f"p = {p}: {row['milliseconds']:.2f} ms, the gradient {row['milliseconds_of_the_gradient']:.2f} ms")
        del arrow, eye
    return rows


def growth(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Exponents of p between neighbouring numbers of features: of a gradient with its step, and of the gradient."""
    found: dict[str, dict[str, float]] = {}
    for a, b in pairwise(rows):
        found[f"{a['p']} to {b['p']}"] = {
            name: float(np.log(b[name] / a[name]) / np.log(b["p"] / a["p"]))
            for name in ("milliseconds", "milliseconds_of_the_gradient")
        }
    return found
