"""Settings of the sampler over every record; `dpjax.inference.individual` loads NumPyro when it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpjax.errors import InputError


@dataclass(frozen=True)
class Individual:
    """Settings of `dpjax.inference.individual.run_individual`: NumPyro's NUTS with every record latent.

    warmup: adaptation steps; bounded: the records were clipped to the bounds before they were summed; target:
    acceptance rate aimed at; max_tree_depth: trajectories of at most 2^max_tree_depth steps; covariates: their law, in
    place of the hierarchical normal (a NumPyro distribution, one per feature, or a function that samples them; from
    Python only).
    """

    warmup: int = 500
    bounded: bool = False
    target: float = 0.8
    max_tree_depth: int = 10
    covariates: Any = None
    name: str = "individual"

    def __post_init__(self):
        if self.warmup < 10:
            raise InputError(f"warmup must be at least 10; got {self.warmup}")

    @property
    def warmup_iterations(self) -> int:
        return self.warmup

    def run(self, problems: Any, **options: Any) -> Any:
        """As `dpjax.engine.run.run_chains`; streaming is refused."""
        from dpjax.inference.individual import run_individual

        own = {name: getattr(self, name) for name in ("warmup", "bounded", "target", "max_tree_depth", "covariates")}
        return run_individual(problems, **own, **options)
