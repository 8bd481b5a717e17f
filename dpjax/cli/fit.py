"""The command `dpjax fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpjax.cli import outputs, progress
from dpjax.cli.messages import NOT_TRUSTED, OK
from dpjax.cli.options import Chains, Devices, Draws, Force, Json, Method, Platform, Prior, Quiet, Seed, Thin
from dpjax.cli.progress import BAR

Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE", help="Write a picture: .png, .pdf or .svg.")]


def fit(
    releases: Annotated[
        list[Path], typer.Argument(metavar="RELEASE.json", help="A release file, or a folder of them.")
    ],
    method: Method = None,
    prior: Prior = None,
    parties: Annotated[
        str,
        typer.Option(
            metavar="shared|own",
            help="Of several releases: all records have one law, or every party's features a mean and a covariance of "
            "their own (theta and sigma2 are shared).",
        ),
    ] = "shared",
    chains: Chains = 4,
    draws: Draws = 1000,
    thin: Thin = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="NC", help="Write the draws as NetCDF, for ArviZ.")
    ] = None,
    json: Json = None,
    figure: Figure = None,
    force: Force = False,
    devices: Devices = None,
    platform: Platform = None,
    quiet: Quiet = False,
) -> int:
    """Posterior given a release, the noise accounted for; or given those of several parties, files or a folder.

    \b
    Example:
      dpjax fit release.json --output posterior.nc --json summary.json
      dpjax fit hospitals/ --output posterior.nc
    """
    from dpjax.errors import require
    from dpjax.releases.parties import load_parties, release_files

    files = release_files(releases)
    outputs.check_outputs([output, json], [*files, *([prior] if prior else [])], force, [figure])
    read = load_parties(files)  # before JAX is loaded: a bad file is said at once
    progress.prepare(devices, platform, quiet)
    if output is not None:
        for package in ("arviz", "h5netcdf"):
            require(package, "saving a posterior")
    if figure is not None:
        require("matplotlib", "drawing figures")
    from dpjax._base import files as _files
    from dpjax.inference.describe import describe_prior, describe_prior_reach, describe_releases
    from dpjax.inference.fit import fit as infer

    posterior = infer(
        read,
        method=method,
        prior=prior,
        parties=parties,
        chains=chains,
        draws=draws,
        thin=thin,
        seed=seed,
        devices=devices,
        progress=BAR.labelled(f"fit {method or read[0].kind}"),
    )
    BAR.clear()
    print(f"{describe_releases(read)}\n")
    print(describe_prior(posterior.prior, prior is not None, posterior.scaling is not None))
    print(f"  {describe_prior_reach(posterior)}")
    print(f"\n{posterior.table()}")
    if posterior.scaling is not None:
        print(f"\n{posterior.table(scaled=True)}")
    print(f"\n{posterior.seconds:.2f} s, compilation {posterior.compile_seconds or 0.0:.1f} s")
    if output is not None:
        posterior.save(output, force)
    if json is not None:
        _files.write_json(json, posterior.summary() | {"releases": [one.to_dict() for one in read]}, force)
    if figure is not None:
        from dpjax.figures.posteriors import posteriors_figure
        from dpjax.figures.style import save_figure

        save_figure(posteriors_figure({posterior.method: posterior}), figure, force)
    return NOT_TRUSTED if posterior.warnings() else OK
