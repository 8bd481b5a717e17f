"""What an inference method is: which noise and problems it takes, and the sampler that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpjax.engine.problems import Problems
from dpjax.errors import InputError
from dpjax.mechanisms import Mechanism, mechanism_named

#: Name -> method; `dpjax.inference.methods` fills it.
METHODS: dict[str, Method] = {}


def noises(problems: Problems) -> dict[str, Mechanism]:
    """The laws of the noise by name, as functions of the exact sums: of problems whose entries differ several."""
    if problems.noise is None or problems.mechanism is not None:
        return {str(problems.mechanism): mechanism_named(problems.mechanism).density}
    return {law.kind: law for law in problems.noise.laws}


@dataclass(frozen=True)
class Method:
    """How a method is run.

    Attributes:
        name: as users say it.
        summary: what it is, in one line.
        make: noise in units of its scale -> sampler.
        takes: noise -> whether the method knows its law.
        view: problems as the method sees them (`dpjax.models.regression.views`), or what it lacks.
        fits: problems -> the sampler with what depends on them, or why the method does not fit them.
        thin: default thinning.
        replaces: the field of `Problems` that stands in the place of z.
        reference: whether it is a mere comparison, whose convergence does not set the exit code.
        noise_aware: whether the posterior is one given the release.
        streams: whether it can keep running sums in place of draws.
        parties: whether it takes several parties and regressions through the origin (`PartySums`).
        any_prior: whether a regression's prior need not be conjugate.
        escalate: for successive reruns, (sampler, dimension) -> harder sampler, each with how many times more chains.
    """

    name: str
    summary: str
    make: Callable[[Any], Any]
    takes: Callable[[Mechanism], bool] = lambda noise: noise.closed_form
    view: Callable[[Problems], Problems | str] = lambda problems: problems
    fits: Callable[[Any, Problems], Any] = lambda sampler, problems: sampler
    thin: int = 1
    replaces: str | None = None
    reference: bool = True
    noise_aware: bool = True
    streams: bool = True
    parties: bool = False
    any_prior: bool = False
    escalate: tuple[tuple[Callable[[Any, int], Any], int], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it needs the exact statistics."""
        return self.replaces is not None

    def check(self, problems: Problems) -> Any:
        """The sampler for these problems (settings not applied), where the method is made for them.

        Raises:
            InputError: it does not fit the model, or needs exact statistics or a view that are not there.
        """
        problems = self.seen(problems)
        sampler = self.sampler(problems)
        if self.replaces is not None and getattr(problems, self.replaces) is None:
            raise InputError(f"method {self.name!r} needs the exact statistics, which a release does not hold")
        return sampler

    def seen(self, problems: Problems) -> Problems:
        """The problems as the method sees them.

        Raises:
            InputError: something that it needs is missing.
        """
        if problems.model.parties is not None and not self.parties:
            takes = ", ".join(method.name for method in METHODS.values() if method.parties)
            raise InputError(
                f"method {self.name!r} is not for several parties or regressions without an intercept; {takes} are"
            )
        if not problems.model.usual_prior and not self.any_prior:
            raise InputError(f"method {self.name!r} needs a conjugate prior; one of kind 'weak' is for collapsed")
        found = self.view(problems)
        if isinstance(found, str):
            raise InputError(f"method {self.name!r} {found}")
        return found

    def sampler(self, problems: Problems) -> Any:
        """The sampler for problems as the method sees them (settings not applied).

        Raises:
            InputError: the method does not fit the model.
        """
        laws = noises(problems)
        for name, noise in laws.items():
            if not self.takes(noise):
                raise InputError(f"method {self.name!r} does not know {name} noise")
        found = self.fits(self.make(next(iter(laws.values()))), problems)
        if isinstance(found, str):
            raise InputError(f"method {self.name!r} {found}")
        return found
