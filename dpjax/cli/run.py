"""The commands `dpjax run` and `dpjax precompile`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjax.calibration.options import DesignOptions
from dpjax.cli import progress
from dpjax.cli.calibrate import STUDY_TEXTS
from dpjax.cli.failures import failed
from dpjax.cli.from_options import takes
from dpjax.cli.messages import NOT_TRUSTED, OK
from dpjax.cli.options import LARGEST_SEED, Devices, Method, Platform, Quiet
from dpjax.cli.progress import BAR


def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The experiment.")],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; made if need be.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted or killed run; a release is kept.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="Replaces the config's seed.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Remove earlier results first, but for a release of the same table.")
    ] = False,
    checkpoint: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Least time between two checkpoints.")
    ] = 30.0,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Join the other processes of this run; under SLURM no more is needed.")
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of process 0, for --distributed elsewhere.")
    ] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="Number of processes.")] = None,
    process: Annotated[int | None, typer.Option(metavar="I", help="Number of this process, from 0.")] = None,
    devices: Devices = None,
    platform: Platform = None,
    quiet: Quiet = False,
) -> int:
    """Run a whole experiment: a release, posteriors by several methods, a calibration study.

    \b
    Example:
      dpjax run experiments/quickstart.toml --output results/quickstart
    """
    from dpjax.errors import InputError

    if not distributed and (coordinator, processes, process) != (None, None, None):
        raise InputError("--coordinator, --processes and --process are for --distributed runs")
    from dpjax._base.runtime import prepare_jax

    if distributed:
        # JAX must not be started before it has met the others; devices are then those of one process
        prepare_jax(devices, platform)
        from dpjax.engine import hosts
        from dpjax.runner import config as _config

        _config.load(config, seed)  # a bad config is said before anyone waits
        hosts.initialize(coordinator, processes, process)
        BAR.active = BAR.active and not quiet and hosts.first()
        devices = None
    else:
        progress.prepare(devices, platform, quiet)
    from dpjax.runner.run import run as run_experiment

    try:
        results = run_experiment(
            config,
            output,
            resume=resume,
            force=force,
            seed=seed,
            devices=devices,
            checkpoint_seconds=checkpoint,
            progress=BAR,
        )
    except BaseException as error:
        if distributed:
            _leave(error)
        raise
    BAR.clear()
    if not distributed or hosts.first():
        print(results.table())
        print(f"\n{results.seconds:.0f} s in all; results in {output}")
    return OK if results.trusted else NOT_TRUSTED


def _leave(error: BaseException) -> None:
    """End this process of a distributed run at once: an orderly exit would wait for the others."""
    code = failed(error, False, "run")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@takes(DesignOptions, STUDY_TEXTS, without=("model", "truth", "clip"))
def precompile(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As for calibrate.")],
    *,
    chosen: dict[str, Any],
    method: Method = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Compile for a calibration of this many trials, not for a fit.")
    ] = None,
    chains: Annotated[int | None, typer.Option(help="Chains per problem; as in the later command.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws per chain; as in the later command.")] = None,
    thin: Annotated[int | None, typer.Option(help="As in the later command.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="As in the later calibrate.")] = False,
    devices: Devices = None,
    platform: Platform = None,
) -> int:
    """Compile ahead of time what `fit` (or, with --trials, `calibrate`) will run, into the persistent cache.

    \b
    Example:
      dpjax precompile linear-regression --features 2
      dpjax precompile exponential --trials 10000
    """
    from dpjax._base.runtime import CACHE_IN_USE

    progress.prepare(devices, platform, True)
    from dpjax.calibration.precompilation import precompile as compile_programs

    done = compile_programs(
        model,
        **chosen,
        method=method,
        trials=trials,
        chains=chains,
        draws=draws,
        thin=thin,
        stream=stream,
        devices=devices,
    )
    folder = os.environ.get(CACHE_IN_USE)
    kept = f"kept in {folder}" if folder else "not kept: no cache"
    print(f"{done.method}: compiled in {done.seconds:.1f} s; {kept}")
    return OK
