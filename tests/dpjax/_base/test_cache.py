"""The cache of compiled programs, from which code is loaded, lies where nobody else may write."""

import os
import stat
from pathlib import Path

import pytest

from dpjax._base import runtime


@pytest.fixture
def prepared(tmp_path, monkeypatch, capsys):
    """What `_prepare_cache` makes of a folder: where JAX is told to keep programs, and what is said."""
    tmp_path.chmod(0o700)

    def go(folder):
        monkeypatch.setenv("DPJAX_CACHE", str(folder))
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "none")  # so that it is restored afterwards
        monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
        runtime._prepare_cache()
        return os.environ.get("JAX_COMPILATION_CACHE_DIR"), capsys.readouterr().err

    return go


def refused(answer, says):
    folder, err = answer
    assert folder is None and err.startswith("warning: DPJAX_CACHE: ") and says in err and err.count("\n") == 1


def test_a_folder_of_ones_own_is_used(prepared, tmp_path):
    assert prepared(tmp_path / "a" / "b") == (str(tmp_path / "a" / "b"), "")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_not(prepared, tmp_path, mode):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    refused(prepared(tmp_path / "a"), f"others may write to {tmp_path / 'a'} (chmod go-w)")


def test_nor_one_that_others_may_replace(prepared, tmp_path):
    (tmp_path / "up" / "a").mkdir(parents=True)
    (tmp_path / "up").chmod(0o777)
    refused(prepared(tmp_path / "up" / "a"), f"others may write to {tmp_path / 'up'} ")
    (tmp_path / "link").symlink_to(tmp_path / "up" / "a")
    refused(prepared(tmp_path / "link"), f"others may write to {tmp_path / 'up'} ")
    (tmp_path / "up").chmod(0o1777)  # as /tmp: only the owner may rename what lies there
    assert prepared(tmp_path / "up" / "a")[1] == ""


def test_nor_what_belongs_to_somebody_else(prepared, tmp_path, monkeypatch):
    real, theirs = os.stat, {tmp_path / "theirs", tmp_path / "mine" / "program"}

    def as_if(path, **options):
        found = real(path, **options)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10])) if Path(path) in theirs else found

    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(os, "stat", as_if)
    refused(prepared(tmp_path / "theirs"), "belongs to somebody else")
    refused(prepared(tmp_path / "theirs" / "below"), f"{tmp_path / 'theirs'} belongs to somebody else")


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="only root may give files away")
def test_nor_one_with_somebody_elses_files(prepared, tmp_path):
    (tmp_path / "a").mkdir(mode=0o700)
    (tmp_path / "a" / "program").write_bytes(b"")
    os.chown(tmp_path / "a" / "program", 12345, -1)
    refused(prepared(tmp_path / "a"), "program belongs to somebody else")
