"""What the command line sets before JAX is imported: one CPU device per core and a persistent compilation cache.

The library itself never does this: a program that imports dpjax decides for itself.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dpjax._base.version import VERSION
from dpjax.errors import InputError

#: Environment variable: a folder for compiled programs, or one of `_OFF`.
CACHE_VARIABLE = "DPJAX_CACHE"
#: JAX's own for the same; set when there is a cache.
CACHE_IN_USE = "JAX_COMPILATION_CACHE_DIR"
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
_OFF = ("", "0", "off", "none", "no", "false")
_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "blackjax", "opendp", "arviz", "matplotlib", "scikit-learn")


def prepare_jax(devices: int | None = None, platform: str | None = None) -> None:
    """Set devices and cache by environment variables; what the user has set stands. No effect once JAX is loaded.

    Args:
        devices: how many devices a CPU is cut into; None: one per core.
        platform: "cpu", "gpu" or "tpu"; None leaves the choice to JAX.

    Raises:
        InputError: another platform, or JAX has none of its devices.
    """
    if platform is not None and platform not in _PLATFORMS:
        raise InputError(f"platform must be one of {', '.join(_PLATFORMS)}; got {platform!r}")
    if "jax" in sys.modules:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags and "JAX_NUM_CPU_DEVICES" not in os.environ:
        # XLA:CPU does not use a second core well by itself: chains are spread over one device per core
        flags += f" --xla_force_host_platform_device_count={devices or cores()}"
    if "xla_cpu_prefer_vector_width" not in flags and _wide_vectors():
        flags += " --xla_cpu_prefer_vector_width=512"  # XLA stays at 256 bits by itself: 1.15 times slower
    os.environ["XLA_FLAGS"] = flags.strip()
    _prepare_cache()
    if platform is not None:
        os.environ["JAX_PLATFORMS"] = _PLATFORMS[platform]


def check_devices(devices: int | None, platform: str | None) -> None:
    """Refuse, before any work, devices that are not there. Loads JAX and starts it.

    Raises:
        InputError: the platform has no devices here, or fewer than asked for.
    """
    import jax

    try:
        available = len(jax.devices())
    except Exception:  # RuntimeError, or an AssertionError of JAX's where a platform has no plugin
        name = platform or os.environ.get("JAX_PLATFORMS", "")
        raise InputError(f"platform {name}: JAX finds no such device") from None
    if devices is not None and devices > available:
        raise InputError(f"devices must lie in 1..{available}; got {devices}")


def _prepare_cache() -> None:
    folder = cache_folder()
    if folder is not None and CACHE_IN_USE not in os.environ:
        try:
            for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
                missing.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return  # no cache: slower, nothing else
        trouble = _open_to_others(folder)
        if trouble is not None:
            line = f"warning: {CACHE_VARIABLE}: {trouble}; the cache is off, since code is loaded from it"
            print(line, file=sys.stderr, flush=True)
            return
        os.environ[CACHE_IN_USE] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def _open_to_others(folder: Path) -> str | None:
    """Why somebody else may put code into this folder, or None. Of the folders above it, what counts is who may put
    another in its place."""
    if not hasattr(os, "geteuid"):
        return None  # Windows: rights are no bits of a mode
    user, real = os.geteuid(), folder.resolve()
    try:
        for place in (real, *real.parents):
            status = place.stat()
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid not in ((user,) if place == real else (user, 0)):
                return f"{place} belongs to somebody else"
            if others and (place == real or not status.st_mode & stat.S_ISVTX):
                return f"others may write to {place} (chmod go-w)"
        with os.scandir(real) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid != user:
                    return f"{entry.path} belongs to somebody else"
    except OSError as error:
        return f"{folder} cannot be looked at ({error.strerror})"
    return None


def _wide_vectors() -> bool:
    """Whether the processor has 512-bit vectors and does not slow down for them (AMD's from Zen 4 on)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "AuthenticAMD" in text and "avx512vl" in text and "avx512dq" in text


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path | None:
    """Where compiled programs are kept between calls; None when switched off, or when there is no home folder.

    Raises:
        InputError: the folder that the user chose begins with the home of somebody unknown.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen is not None:
        if chosen.strip().lower() in _OFF:
            return None
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InputError(f"{CACHE_VARIABLE}={chosen}: there is no such home folder") from None
    try:
        return _default_base() / "dpjax"
    except RuntimeError:  # HOME is not set and the user has no entry, as in some containers
        return None


def _default_base() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home())
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def versions() -> dict[str, str]:
    """Version of Python and of the packages that numbers depend on."""
    found = {"dpjax": _version("dpjax"), "python": platform.python_version()}
    return found | {name: _version(name) for name in _PACKAGES}


def machine() -> dict[str, Any]:
    """What ran it; no host or user name. Loads JAX."""
    import jax

    devices = jax.devices()
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": cores(),
        "devices": len(devices),
        "device": f"{devices[0].platform}: {devices[0].device_kind}",
        "x64": jax.numpy.result_type(float) == np.float64,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return VERSION if name == "dpjax" else "not installed"
