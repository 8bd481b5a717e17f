"""What models have in common whose parameters are those of a conjugate prior (`dpjax.models.priors`)."""

from __future__ import annotations

from typing import Any

from dpjax.engine.model import Model


class PriorModel(Model):
    """A model with a field `prior`, a `Prior`, that knows the Metropolis ratio of its conjugate draws."""

    metropolis = True

    @property
    def dim(self) -> int:
        return self.prior.dim

    def as_dict(self) -> dict[str, Any]:
        return self.prior.as_dict()

    def log_prior(self, phi):
        # positions may be in 64 bits where the rest is not
        return self.astype(phi.dtype).prior.log_density(phi)

    def positions(self, reported):
        return self.prior.unconstrain(reported)

    def report(self, phi):
        return self.prior.constrain(phi)

    def prior_center(self):
        return self.prior.center()

    def sample_prior(self, key):
        return self.prior.sample(key)

    @property
    def conjugate_randoms(self) -> tuple[int, int]:
        return self.prior.randoms
