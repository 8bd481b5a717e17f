"""Words for the prior of a family: in the user's units, by means and standard deviations of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.errors import InputError
from dpjax.models.hyperparameters import positive
from dpjax.models.prior_units import exclusive, inverse_gamma, number


def family_words(statistic: Any, given: dict[str, Any], user: bool) -> dict[str, Any]:
    """Hyperparameters of a family in the units of a `FamilyStatistic`; arguments as of `Words`."""
    family, out = statistic.family, dict(given)
    if family.prior == "normal-inverse-gamma":
        given = out = inverse_gamma(given, family.parameters[1], "shape", "scale")
        # user's units of a parameter are an affine map of scaled ones: mean = c + h mean', variance = h^2 variance'
        corner = (
            statistic.to_user_units(np.array([[0.0, 0.0], [1.0, 1.0]])) if user else np.array([[0.0, 0.0], [1.0, 1.0]])
        )
        centre, half = corner[0, 0], corner[1, 0] - corner[0, 0]
        usual = family.weak_prior(*(statistic.value_bounds or family.support))
        if "mean" in given:
            out["mean"] = (number("mean", given["mean"]) - centre) / half
        if "scale" in given:
            out["scale"] = positive("scale", given["scale"]) / half**2
        if "mean_sd" in given:
            exclusive(given, "mean_sd", "kappa")
            sd = positive("mean_sd", out.pop("mean_sd")) / half
            shape = positive("shape", given.get("shape", usual["shape"]), above=1.0)
            out["kappa"] = float(out.get("scale", usual["scale"])) / (shape - 1.0) / sd**2
        return out
    if family.prior in ("gamma", "beta"):
        first = family.parameters[0]
        mean, sd = f"{first}_mean", f"{first}_sd"
        own = ("shape", "rate") if family.prior == "gamma" else ("alpha", "beta")
        if mean in given or sd in given:
            for name in (mean, sd):
                if name not in given:
                    raise InputError(f"{name} is missing: mean and sd stand for the two hyperparameters together")
            exclusive(given, mean, *own)
            m, s = positive(mean, out.pop(mean)), positive(sd, out.pop(sd))
            if family.prior == "gamma":
                return out | {"shape": (m / s) ** 2, "rate": m / s**2}
            if not (m < 1 and s**2 < m * (1 - m)):
                raise InputError(f"{mean} must be below 1 and {sd}^2 below {mean} (1 - {mean}); got {m:g} and {s:g}")
            size = m * (1 - m) / s**2 - 1
            return out | {"alpha": m * size, "beta": (1 - m) * size}
    return out
