"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: Keys of JAX are made from 32 bits, and a few numbers are added to a seed.
LARGEST_SEED = 2**31 - 1

Force = Annotated[bool, typer.Option("--force", help="Overwrite output files.")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")]
Prior = Annotated[
    Path | None,
    typer.Option(
        "--prior", metavar="TOML", help="Prior, in scaled units, or in those of the columns with units = 'user'."
    ),
]
Chains = Annotated[int, typer.Option(help="Chains per problem.")]
Draws = Annotated[int, typer.Option(help="Draws kept per chain.")]
Method = Annotated[
    str | None,
    typer.Option(
        help="exact, collapsed, gibbs, gibbs-literal, naive; of a regression also prior, noisy, plug-in, wishart, "
        "wishart-bounded, individual; of one through the origin also normal-x, fixed-s, fixed-s-fast, clt; in "
        "simulations also naive-untruncated, non-private, ops. Default: exact where the model has one parameter, "
        "noisy for a release with moments, else collapsed."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No line of progress (there is none but on a terminal).")]
Devices = Annotated[int | None, typer.Option(min=1, help="Devices to use; on CPU one per core if not given.")]
Platform = Annotated[str | None, typer.Option(metavar="cpu|gpu|tpu", help="Where to run; JAX's choice if not given.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every number printed.")]
Thin = Annotated[int | None, typer.Option(help="Keep every n-th step; the default depends on the method.")]
