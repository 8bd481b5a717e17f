"""Files of outputs: claimed before the work, readable by nobody else until they are whole, one fixed place beside each;
what is no regular file stays; and what a killed `dpjax release` leaves behind."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dpjax
from dpjax._base import files, new_file
from dpjax._base.files import write_json, write_text, write_with
from dpjax._base.new_file import NewFile, check_output
from dpjax.cli.app import main
from dpjax.errors import InputError
from dpjax.mechanisms import laplace as _noise
from dpjax.runner import run as experiment
from dpjax.runner.fingerprint import Fingerprints
from dpjax.runner.folder import Folder, Found, check_folder

LEFT = ".dpjax-release.json"


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a small table; the usual mask."""
    rows = "".join(f"{15 + i},{7 * i}\n" for i in range(30))
    (tmp_path / "table.csv").write_text(f"bmi,progression\n{rows}")
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


WORDS = [
    "release", "table.csv", "--target", "progression", "--features", "bmi", "--bounds", "bmi=15:45", "--bounds",
    "progression=0:350", "--epsilon", "1", "--accept", "--output", "release.json",
]  # fmt: skip


# --- one place, readable by its owner alone -------------------------------------------------------------------------


def test_a_file_is_written_beside_its_target_and_is_its_owners_until_it_is_whole(folder, monkeypatch):
    seen = []

    def log(name, real):
        def act(*args, **kwargs):
            seen.append((name, [(item, mode(folder / item)) for item in names(folder) if item != "table.csv"]))
            return real(*args, **kwargs)

        return act

    for name in ("fsync", "link", "chmod"):
        monkeypatch.setattr(new_file.os, name, log(name, getattr(os, name)))
    write_text("release.json", "whole")
    assert [name for name, _ in seen] == ["fsync", "link", "chmod", "fsync"]  # on disk before it has its name
    assert seen[0][1] == seen[1][1] == [(LEFT, 0o600)]
    assert seen[2][1] == [(LEFT, 0o600), ("release.json", 0o600)]
    assert names(folder) == ["release.json", "table.csv"] and mode(folder / "release.json") == 0o644
    seen.clear()
    write_text("release.json", "other", force=True)
    assert [name for name, _ in seen] == ["fsync", "chmod", "fsync"] and mode(folder / "release.json") == 0o644


def test_files_of_libraries_are_their_owners_too(folder):
    modes = []

    def writer(path):
        path.write_text("half")
        modes.append((path.suffix, mode(path)))

    write_with("a.nc", writer)
    assert modes == [(".nc", 0o600)] and mode(folder / "a.nc") == 0o644


def test_the_place_is_fixed_by_the_target():
    assert new_file.temporary_of(Path("a/release.json")) == Path("a") / LEFT
    long = new_file.temporary_of(Path("a") / ("x" * 250 + ".json"))
    assert (
        len(long.name) < 100
        and long.suffix == ".json"
        and long == new_file.temporary_of(Path("a/" + "x" * 250 + ".json"))
    )


def test_what_a_killed_process_left_is_destroyed_before_noise_is_drawn(folder, monkeypatch):
    (folder / LEFT).write_text("the draw of a killed process")
    real = _noise.add_laplace_noise

    def draw(*args):
        assert (folder / LEFT).read_text() == "" and mode(folder / LEFT) == 0o600
        return real(*args)

    monkeypatch.setattr(_noise, "add_laplace_noise", draw)
    assert main(WORDS) == 0
    assert names(folder) == ["release.json", "table.csv"]
    # also by a command that is refused
    (folder / LEFT).write_text("left")
    assert main(WORDS) == 2
    assert names(folder) == ["release.json", "table.csv"]


def test_a_run_destroys_what_a_killed_one_left_before_it_draws(folder, monkeypatch):
    (folder / LEFT).write_text("the draw of a killed run")
    made = dpjax.release("table.csv", target="progression", model="exponential", bounds=(0, 350), epsilon=1.0)

    def draw(*_):
        assert (folder / LEFT).read_text() == ""
        return made

    monkeypatch.setattr(experiment, "Prepared", SimpleNamespace)
    prepared = SimpleNamespace(drawn=None, release=None, draw=draw)
    assert experiment._release.__wrapped__(prepared, Folder(folder)) is made
    assert names(folder) == ["release.json", "table.csv"]
    assert dpjax.Release.load("release.json") == made


def test_what_is_left_is_not_emptied_as_the_target_may_be_the_same_file(folder):
    write_text("release.json", "whole")
    os.link("release.json", LEFT)  # killed after the last step
    with pytest.raises(InputError, match="the file exists"):
        write_text("release.json", "other")
    assert (folder / "release.json").read_text() == "whole" and not (folder / LEFT).exists()


def test_nothing_is_written_into_a_file_that_somebody_else_has_made(folder):
    (folder / LEFT).touch()
    os.chmod(LEFT, 0o666)
    with open(LEFT) as spy:
        with NewFile("release.json") as file:
            file.write("private for now")
        assert spy.read() == ""
    for make in (lambda: os.symlink("elsewhere", LEFT), lambda: os.mkfifo(LEFT), lambda: os.symlink("table.csv", LEFT)):
        make()
        with pytest.raises(InputError, match=r"output b|output release.json: \.dpjax-release.json beside it"):
            write_json("release.json", {}, force=True)
        os.unlink(LEFT)


def test_two_processes_do_not_draw_for_one_file(folder, capsys, monkeypatch):
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    with NewFile("release.json") as file:
        assert main(WORDS) == 2
        assert "another process is about to write it" in capsys.readouterr().err
        file.write("first")
    assert (folder / "release.json").read_text() == "first"


# --- what is no regular file ----------------------------------------------------------------------------------------


@pytest.fixture
def odd(folder, tmp_path_factory):
    """By what they are: files that are not regular, all called release.json in folders of their own."""
    outside = tmp_path_factory.mktemp("outside") / "theirs.json"
    outside.write_text("theirs")
    made = {}
    for kind in ("pipe", "socket", "link out", "dangling", "circle", "link to device", "link in"):
        place = folder / kind.replace(" ", "_")
        place.mkdir()
        made[kind] = place / "release.json"
    os.mkfifo(made["pipe"])
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(made["socket"].parent)  # names of sockets are short
        server.bind("release.json")
        os.chdir(here)
    made["link out"].symlink_to(outside)
    made["dangling"].symlink_to("nothing.json")
    made["circle"].symlink_to("release.json")
    made["link to device"].symlink_to("/dev/null")
    (made["link in"].parent / "real.json").write_text("real")
    made["link in"].symlink_to("real.json")
    return made


@pytest.mark.parametrize(
    ("kind", "says"),
    [("pipe", "is a pipe"), ("socket", "is a socket"), ("link out", "a link that leads out"), ("circle", "is a link"),
     ("dangling", "is a link to no regular file"), ("link to device", "a link that leads out")],
)  # fmt: skip
@pytest.mark.parametrize("force", [True, False])
def test_what_is_no_regular_file_is_never_replaced(odd, kind, says, force, monkeypatch, capsys):
    before = os.lstat(odd[kind])
    writers = (
        lambda path: check_output(path, force),
        lambda path: write_json(path, {}, force),
        lambda path: write_with(path, lambda file: file.write_text("x"), force),
    )
    for write in writers:
        with pytest.raises(InputError, match=says):
            write(odd[kind])
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    assert main([*WORDS[:-1], str(odd[kind]), *(["--force"] if force else [])]) == 2
    assert says in capsys.readouterr().err
    after = os.lstat(odd[kind])
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert names(odd[kind].parent) == ["release.json"]


def test_devices_are_never_replaced():
    with pytest.raises(InputError, match="is a device"):
        new_file.check_regular(Path("/dev/null"), "output /dev/null")


def test_a_link_to_a_file_in_the_same_folder_may_be_replaced(odd):
    with pytest.raises(InputError, match="the file exists"):
        write_text(odd["link in"], "new")
    write_text(odd["link in"], "new", force=True)
    assert odd["link in"].read_text() == "new"


@pytest.mark.parametrize("name", ["parts", "release.json", "results.json", "parts/posterior_naive.npz"])
def test_a_run_removes_nothing_outside_of_its_folder(folder, tmp_path_factory, name):
    outside, target = tmp_path_factory.mktemp("outside"), folder / "out"
    (outside / "posterior_gibbs.npz").write_text("theirs")
    (target / "parts").mkdir(parents=True)
    (target / "run.json").write_text("{}")
    if name == "parts":
        (target / "parts").rmdir()
    (target / name).symlink_to(outside if name == "parts" else outside / "posterior_gibbs.npz")
    with pytest.raises(InputError, match="link"):
        check_folder(target, Fingerprints("a", "b"), resume=False, force=True)
    (target / name).unlink()
    assert check_folder(target, Fingerprints("a", "b"), resume=False, force=True) is Found.BEGIN


# --- kill -9 --------------------------------------------------------------------------------------------------------

#: Runs `dpjax release` in forked copies of itself: once to count the lines of dpjax that it executes, then ending by
#: SIGKILL before a line of a given number, each time followed by a run that is left alone.
DRIVER = """
import json, os, random, re, shutil, signal, stat, sys
import dpjax.cli.app, opendp.prelude
from dpjax.mechanisms import laplace as _noise
words, seed, moments = json.loads(sys.argv[1]), 13, int(sys.argv[2])
ours = os.path.dirname(dpjax.__file__) + os.sep
os.umask(0o022)

def fork(act):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os._exit(act())
    return os.waitpid(child, 0)[1]

def traced(act):
    count = 0
    def line(frame, event, _):
        nonlocal count
        if event == "line":
            count += 1
            act(count)
        return line
    sys.settrace(lambda frame, event, _: line if frame.f_code.co_filename.startswith(ours) else None)
    code = dpjax.cli.app.main(words)
    sys.settrace(None)
    return code, count

def count_lines():
    found = {}
    now = 0
    def act(number):
        nonlocal now
        now = number
    for module, name in ((_noise, "add_laplace_noise"), (os, "link")):
        def call(*args, real=getattr(module, name), name=name):
            found[name] = now
            return real(*args)
        setattr(module, name, call)
    code, found["all"] = traced(act)
    with open("../counts.json", "w") as file:
        json.dump(found, file)
    return code

def readable(everybody):
    found = set()
    for name in os.listdir("."):
        if name != "table.csv" and (not everybody or os.lstat(name).st_mode & stat.S_IROTH):
            with open(name) as file:  # also of a file that is half-written
                found |= set(re.findall(r'"bmi": (-?\\d[-+.e\\d]*)', file.read()))
    return found

def clean():
    for name in os.listdir("."):
        if name != "table.csv":
            os.unlink(name)

assert fork(count_lines) == 0
clean()
counts = json.load(open("../counts.json"))
generator = random.Random(seed)
drawn, linked = counts["add_laplace_noise"], counts["link"]
early = [generator.randrange(1, drawn), *generator.sample(range(drawn, linked), moments // 5)]
around = generator.sample(range(linked - 25, linked + 12), moments - len(early))  # the content is on disk
report = []
for moment in [*early, *around]:
    kill = lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == moment else None
    status = fork(lambda: traced(kill)[0])
    left = sorted(set(os.listdir(".")) - {"table.csv"})
    in_folder, everybody = [len(readable(False))], readable(True)
    code = os.waitstatus_to_exitcode(fork(lambda: dpjax.cli.app.main(words)))
    in_folder.append(len(readable(False)))
    everybody |= readable(True)
    after = sorted(set(os.listdir(".")) - {"table.csv"})
    report.append({"killed": os.WIFSIGNALED(status), "left": left, "in_folder": in_folder, "code": code,
                   "everybody": len(everybody), "after": after})
    clean()
print(json.dumps(report))
"""


@pytest.mark.slow
def test_at_most_one_draw_is_ever_readable_when_release_is_killed(folder):
    inside = folder / "inside"
    inside.mkdir()
    (folder / "table.csv").rename(inside / "table.csv")
    environment = {**os.environ, "PYTHONPATH": str(Path(dpjax.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(WORDS), "20"],
        capture_output=True, text=True, cwd=inside, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report) == 20 and all(item["killed"] for item in report)
    # some moments are after the content was on disk and before it had its name, some after that
    assert sum(item["in_folder"][0] == 1 and item["left"] == [LEFT] for item in report) >= 3
    assert sum("release.json" in item["left"] for item in report) >= 3
    for item in report:
        assert max(item["in_folder"]) <= 1, item  # by whoever gets the folder, at any time
        assert item["everybody"] <= 1, item  # by everybody on the machine, over all times
        assert item["code"] == (2 if "release.json" in item["left"] else 0), item
        assert item["after"] == ["release.json"], item


def test_json_text_is_what_is_written(folder):
    write_json("a.json", {"x": 1})
    assert (folder / "a.json").read_text() == files.json_text({"x": 1})
