"""One output file: its place is claimed before the work whose result goes there, its content is whole or absent, and
until then nobody but its owner can read it.

The content is written to one fixed place beside the target, `.dpjax-NAME`, and moved from there in one step. A process
that was killed leaves it behind; the next one that claims the target destroys it before it does anything else. For a
release that matters: what was left is a draw of the noise, and whoever has two draws of one table has spent twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from types import TracebackType

from dpjax.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows: two processes with one target are then not told apart
    fcntl = None  # type: ignore[assignment]

PREFIX = ".dpjax-"
_LONGEST = 255  # bytes of a file's name on the usual file systems
_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link"),
)  # fmt: skip


def check_output(path: str | os.PathLike, force: bool = False) -> Path:
    """Check that a file may be written, before the work whose result goes there.

    Raises:
        InputError: the folder does not exist or cannot be written to; there is something that is no regular file, or a
            link that leads out of the folder; or the file exists and `force` is false.
    """
    path = _checked_folder(path)
    if not os.path.lexists(path):
        return path
    check_regular(path, f"output {path}")
    if not force:
        raise InputError(f"output {path}: the file exists; use --force (force=True) to overwrite it")
    return path


def check_regular(path: Path, words: str) -> None:
    """Refuse to replace or remove what is no regular file: a device, a pipe, a socket, a folder, or a link that leads
    out of its folder or to nothing.

    Args:
        path: it exists.
        words: what the error begins with.

    Raises:
        InputError: it is none.
    """
    kind = os.lstat(path).st_mode
    if stat.S_ISLNK(kind):
        real, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
        if folder not in real.parents:
            raise InputError(f"{words}: is a link that leads out of its folder, which is never replaced; name the file")
        if not real.is_file():
            raise InputError(f"{words}: is a link to no regular file, which is never replaced; use another name")
    elif not stat.S_ISREG(kind):
        raise InputError(f"{words}: is {_kind(kind)}, no regular file, and is never replaced; use another name")


def _kind(mode: int) -> str:
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "something else")


def _checked_folder(path: str | os.PathLike) -> Path:
    path = Path(path)
    if path.is_dir():
        raise InputError(f"output {path}: is a folder, a file name is needed")
    if not path.parent.is_dir():
        raise InputError(f"output {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"output {path}: the folder {path.parent} cannot be written to")
    return path


class NewFile:
    """A file to be written, as a context: within it nobody else can write to the same target.

    Args:
        path: the target.
        force: replace a file that is there.

    Raises:
        InputError: on entering, as `check_output`, or another process is about to write the same file.
    """

    def __init__(self, path: str | os.PathLike, force: bool = False):
        self.path, self.force = Path(path), force
        self._temporary = self.path
        self._handle = -1

    def __enter__(self) -> NewFile:
        self._temporary = temporary_of(_checked_folder(self.path))
        self._handle = _claim(self._temporary, self.path)
        try:
            # only now: what a killed process has left is destroyed also where the target may not be written
            check_output(self.path, self.force)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def write(self, text: str) -> None:
        """Write the whole content, as UTF-8, and move it to its name.

        Raises:
            InputError: the file has appeared in the meantime and `force` is false.
        """
        with open(self._handle, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        publish(self._temporary, self.path, self.force)

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            if _same(self._handle, self._temporary):  # not another's, should a folder be cleaned by hand meanwhile
                os.unlink(self._temporary)
        os.close(self._handle)


def temporary_of(path: Path) -> Path:
    """The one place beside a file where it is written."""
    name = PREFIX + path.name
    if len(os.fsencode(name)) > _LONGEST:
        name = f"{PREFIX}{hashlib.sha256(os.fsencode(path.name)).hexdigest()}{path.suffix[:16]}"
    return path.with_name(name)


def publish(temporary: Path, path: Path, force: bool) -> None:
    """Move a whole file, which only its owner can read so far, to its name in one step, on disk before that; then give
    it the usual permissions.

    Raises:
        InputError: as `check_output`.
    """
    check_output(path, force)
    _to_disk(temporary)
    if force:
        os.replace(temporary, path)
    else:
        _move_new(temporary, path)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)
    with contextlib.suppress(OSError):  # some file systems cannot
        _to_disk(path.parent)


def _move_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # fails if the file exists, which os.replace does not
    except FileExistsError as error:
        raise InputError(f"output {path}: the file exists; use --force (force=True) to overwrite it") from error
    except OSError:  # a file system without hard links: a short gap between check and move remains
        check_output(path)
        os.replace(temporary, path)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- claims --------------------------------------------------------------------------------------------------
def _claim(temporary: Path, path: Path) -> int:
    """Make the file anew, readable by its owner alone, and lock it; what lies there is never written to, as somebody
    else may hold it open.

    Raises:
        InputError: another process holds it, or it cannot be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    for _ in range(3):
        if os.path.lexists(temporary):
            _destroy(temporary, path)
        try:
            handle = os.open(temporary, flags, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(f"output {path}: cannot write to the folder ({error.strerror})") from None
        if _locked(handle) and _same(handle, temporary):
            return handle
        os.close(handle)
    raise _busy(path)


def _destroy(temporary: Path, path: Path) -> None:
    """Remove what a killed process has left."""
    check_regular(temporary, f"output {path}: {temporary.name} beside it")
    if temporary.is_symlink():
        raise InputError(f"output {path}: {temporary.name} beside it is a link; remove it")
    try:
        handle = os.open(temporary, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"output {path}: {temporary.name} beside it cannot be removed ({error.strerror})") from None
    try:
        if not _locked(handle):
            raise _busy(path)
        # by name, its content as it is: after the last step the target is the same file
        if _same(handle, temporary):
            os.unlink(temporary)
    except OSError as error:
        raise InputError(f"output {path}: {temporary.name} beside it cannot be removed ({error.strerror})") from None
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Lock an open file; False if another process has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _same(handle: int, path: Path) -> bool:
    """Whether the name still stands for the open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _busy(path: Path) -> InputError:
    return InputError(f"output {path}: another process is about to write it; wait for it, or use another name")


__all__ = ["NewFile", "check_output", "check_regular", "publish", "temporary_of"]
