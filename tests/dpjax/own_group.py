"""A made-up group of models in one file: the mean of normal records whose standard deviation is known."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import dpjax.models
import dpjax.statistics.kinds
from dpjax._base.checks import check_bounds, check_name
from dpjax.engine.model import Model
from dpjax.errors import InputError
from dpjax.statistics.base import MonomialStatistic
from dpjax.statistics.group import StatisticGroup, refuse, refuse_options

KIND = "normal-mean"


# ---- for the data owner: no JAX ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class MeanStatistic(MonomialStatistic):
    """Sum of one column, clipped to its bounds."""

    column: str
    sd: float
    bounds: tuple[float, float]

    kind = KIND
    names = ("sum",)
    parameter_names = ("mu",)
    exponents = ((1,),)

    @property
    def title(self):
        return f"{KIND}: {self.column} with standard deviation {self.sd:g}"

    @property
    def variables(self):
        return (self.column,)

    @property
    def box(self):
        return (self.bounds,)

    @property
    def truncation(self):
        return {"rule": "clamp", "bounds": list(self.bounds)}

    def block(self):
        return {"kind": KIND, "sd": self.sd, "column": self.column}

    def from_columns(self, columns):
        return np.array([np.clip(np.asarray(columns[self.column], float), *self.bounds).sum()])

    def describe(self, name):
        return f"mean of {self.column}"


class MeanGroup(StatisticGroup):
    """One model."""

    def kinds(self):
        return (KIND,)

    def make(self, kind, given, scaling, options):
        refuse(kind, {n: given[n] for n in ("features", "rule", "categories", "labels", "moments")}, ())
        refuse_options(kind, options, ("sd",))
        column = "x" if given["target"] is None else given["target"]
        check_name(column)
        if not options.get("sd", 0) > 0:
            raise InputError(f"sd must be a number > 0, got {options.get('sd')!r}")
        bounds = given["bounds"]
        if not isinstance(bounds, tuple):
            bounds = check_bounds(bounds, (column,))[column]
        return MeanStatistic(column, float(options["sd"]), bounds)

    def fields(self, kind):
        return [("sd", float), ("column", str, "x")]

    def read(self, content):
        model = content["model"]
        return MeanStatistic(model["column"], model["sd"], tuple(content["truncation"]["bounds"]))

    def needs_truncation(self, kind):
        return True


# ---- for the analyst ---------------------------------------------------------------------------------------------
@partial(jax.tree_util.register_dataclass, data_fields=("mean", "sd", "noise"), meta_fields=())
@dataclass(frozen=True)
class MeanModel(Model):
    """x ~ N(mu, noise^2), mu ~ N(mean, sd^2)."""

    mean: jax.Array
    sd: jax.Array
    noise: jax.Array

    dim = 1
    statistic_dim = 1
    parameter_names = ("mu",)
    kind = KIND

    def moments(self, phi):
        return phi, jnp.square(self.noise)[None, None]

    def log_prior(self, phi):
        return -0.5 * jnp.square((phi[0] - self.mean) / self.sd)

    def report(self, phi):
        return phi

    def as_dict(self):
        return {"mean": float(self.mean), "sd": float(self.sd)}

    def prior_center(self):
        return self.mean[None]

    def sample_prior(self, key):
        return (self.mean + self.sd * jax.random.normal(key, (), self.mean.dtype))[None]

    def simulate(self, key, phi, n):
        sums = n * phi + jnp.sqrt(n) * self.noise * jax.random.normal(key, (1,), phi.dtype)
        return sums, sums


def make_model(statistic, prior, default):
    low, high = statistic.bounds
    given = {"mean": (low + high) / 2, "sd": high - low} | dict(prior or {})
    if set(given) != {"mean", "sd"}:
        raise InputError("prior: mean and sd are its hyperparameters")
    return MeanModel(np.float64(given["mean"]), np.float64(given["sd"]), np.float64(statistic.sd))


# ---- the lines that make it known --------------------------------------------------------------------------------
dpjax.statistics.kinds.register(MeanGroup())
dpjax.models.register(dpjax.models.ModelGroup(MeanStatistic, make_model))
