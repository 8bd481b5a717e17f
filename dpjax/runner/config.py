"""The typed, validated content of an experiment's TOML file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dpjax._base.checks import has_half_character
from dpjax._base.files import read_toml
from dpjax.errors import InputError
from dpjax.releases.options import check_family_options
from dpjax.runner.methods import check_methods, check_study, method_of
from dpjax.runner.sections import Config, Data, ReleaseSection
from dpjax.runner.wording import check_keys, readable

BUILTIN = ("diabetes",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def load(config: Mapping[str, Any] | str | os.PathLike, seed: int | None = None) -> tuple[Config, Path]:
    """Read and check a config.

    Args:
        config: path of a TOML file, or its content as a mapping (paths are then relative to the working folder).
        seed: replaces the config's.

    Returns:
        The config and the folder that its paths are relative to.

    Raises:
        InputError: the file cannot be read or is not TOML; an unknown key, a wrong type or value (the message has
            the key's path); parts that do not go together.
    """
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        content, folder, where = read_toml(path, "config "), path.parent, f"config {path}: "
    elif isinstance(config, Mapping):
        content, folder, where = dict(config), Path(), "config: "
    else:
        raise InputError(f"config must be a path or a mapping, got {type(config).__name__}")
    if seed is not None:
        content["seed"] = seed
    if has_half_character(content):
        raise InputError(f"{where}holds text with half a character (a lone surrogate): write the whole one")
    try:
        check_keys(content, Config)
        typed = msgspec.convert(content, Config, strict=True)
        check(typed)
    except msgspec.ValidationError as error:
        raise InputError(where + readable(error)) from None
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return typed, folder


def check(config: Config) -> None:
    """What types do not say.

    Raises:
        InputError: the first problem, with the path of its key.
    """
    data, release, fit, study = config.data, config.release, config.fit, config.calibration
    if not _NAME.fullmatch(config.name):
        raise InputError(f"name must be of letters, digits, '.', '_' and '-'; got {config.name!r}")
    if not 0 <= config.seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to 2^31 - 1; got {config.seed}")
    if fit is None and study is None and release is None:
        raise InputError("there is nothing to do: [release], [fit] or [calibration] is needed")
    if fit is not None and release is None:
        raise InputError("[fit] needs a [release]")
    if data is not None:
        if release is None:
            raise InputError("[data] is not used: there is no [release]")
        if (data.csv is None) == (data.builtin is None):
            raise InputError("data: one of csv and builtin is needed")
        if data.builtin is not None and data.builtin not in BUILTIN:
            raise InputError(f"data.builtin must be {' or '.join(BUILTIN)}; got {data.builtin!r}")
        try:
            data.reading  # noqa: B018  # its checks
        except InputError as error:
            raise InputError(f"data.{error}") from None
    if release is not None:
        _check_release(release, data)
    if fit is not None:
        check_methods("fit", fit)
        public = data is not None and data.data_is_public
        exact = [name for name in fit.methods or () if method_of(name).exact]
        if exact and not public:
            raise InputError(
                f"fit.methods: {exact[0]} looks at the table itself: it needs [data] with data_is_public = true"
            )
    if study is not None:
        check_study(study)


def _check_release(release: ReleaseSection, data: Data | None) -> None:
    if release.file is not None:
        if release.arguments:
            raise InputError(f"release: file and {next(iter(release.arguments))} exclude each other")
        if data is not None and not data.data_is_public:
            raise InputError("[data] is not used: release.file is given, and data_is_public is not true")
        return
    if data is None:
        raise InputError("[release] without a file needs [data]")
    if release.epsilon is None:
        raise InputError("release.epsilon is missing: the privacy budget has no default")
    try:
        check_family_options(release.options)
    except InputError as error:
        raise InputError(f"release.{error}") from None


def plain(config: Config) -> dict[str, Any]:
    """The config as plain data, with its defaults."""
    return msgspec.to_builtins(config)
