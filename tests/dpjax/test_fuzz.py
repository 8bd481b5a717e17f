"""Damaged and hostile files and arguments: no internal error, nothing of the table in any output, nothing half-written.

200 examples each in CI; a long job: `DPJAX_FUZZ_EXAMPLES=10000 pytest -m slow tests/dpjax/test_fuzz.py`.
"""

import json
import os
import shutil
import tomllib
import warnings

import h5py
import numpy as np
import pytest
from fuzz_tools import FUZZ, NUMBERS, TEXTS, attack, changed, damaged, of, to_toml, tree
from hypothesis import given
from hypothesis import strategies as st
from test_posterior_file import STATISTICS, posterior_of, release_of, unsealed

from dpjax._base.seal import seal
from dpjax.cli.app import main
from dpjax.engine import checkpoint
from dpjax.releases.guarantee import Privacy
from dpjax.runner import run as experiment

pytestmark = pytest.mark.slow
KINDS = ("regression", "moments", "origin", "norms", "normal", "log-normal", "gamma", "poisson", "binomial", "labels")
#: Values of the private table: seven digits that nothing else has.
SECRETS = tuple(f"{7.0 + 0.0193717 * i:.7f}" for i in range(1, 41))
BOUNDS = ["--bounds", "x=5:10", "--bounds", "y=5:10"]
RELEASE = ["release", "table.csv", "--target", "y", "--features", "x", *BOUNDS, "--epsilon", "1"]
TABLE = "\n".join(["x,y", *(f"{a},{b}" for a, b in zip(SECRETS, SECRETS[::-1], strict=True))]) + "\n"
CONFIG = """
name = "fuzz"
seed = 5
[data]
csv = "table.csv"
accept = true
[release]
target = "y"
features = ["x"]
epsilon = 1.0
mechanism = "laplace"
[release.bounds]
x = [5, 10]
y = [5, 10]
"""
STUDY = """
[calibration]
model = "linear-regression"
records = [50]
epsilon = 1
trials = 40
methods = ["gibbs"]
draws = 40
chains_per_batch = 80
mmd = false
[calibration.method.gibbs]
settings = { burn_in = 40 }
"""
FIT = '[fit]\nmethods = ["naive"]\ndraws = 50\nprior = { sigma2_shape = 4 }\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    return tmp_path


def content_of(kind):
    """A release file with all that it may have."""
    statistic = STATISTICS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = release_of(statistic, simulated=False)
        if one.mechanism == "laplace" and kind not in ("norms", "moments"):
            one = release_of(statistic, noise_scale=20.0, privacy=Privacy(1.0, 0.0, "replace-one", "l1", 20.0))
    return one.to_dict()


def without_outputs(folder, *keep):
    for path in folder.iterdir():
        if path.name not in keep and path.is_file():
            path.unlink()


# ---- release files ---------------------------------------------------------------------------------------------
@FUZZ
@given(data=st.data())
def test_release_files(here, data):
    content = data.draw(changed(content_of(data.draw(st.sampled_from(KINDS)))))
    text = json.dumps(content, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass")
    (here / "r.json").write_bytes(text)
    code, *_ = attack(["check", "r.json"], here)
    if code == 2:  # what `check` refuses `fit` does not take; `calibrate` looks at the design only, not at the sums
        assert attack(["fit", "r.json", "--output", "p.nc"], here)[0] == 2
        attack(["calibrate", "--like", "r.json", "--trials", "2"], here)


@FUZZ
@given(data=st.data())
def test_damaged_release_files(here, data):
    good = json.dumps(content_of(data.draw(st.sampled_from(KINDS))), indent=1).encode()
    (here / "r.json").write_bytes(data.draw(damaged(good)))
    attack(["check", "r.json"], here)


@FUZZ
@given(data=st.data())
def test_fits_of_changed_releases(here, data):
    """Families of one parameter, whose posterior is computed and not sampled; shapes stay, so nothing is compiled."""
    kind = data.draw(st.sampled_from(("binomial", "poisson")))
    content = content_of(kind)
    for part in ("records", "statistics", "mechanism", "truncation", "privacy"):
        if part in content and data.draw(st.booleans()):
            content[part] = data.draw(changed({part: content[part]})).get(part)
    (here / "r.json").write_bytes(json.dumps(content).encode("utf-8", "surrogatepass"))
    attack(["fit", "r.json", "--output", "p.nc", "--json", "s.json", "--force"], here)
    without_outputs(here)


# ---- priors ----------------------------------------------------------------------------------------------------
PRIORS = {
    "binomial": ({"alpha": 1.0, "beta": 2.0}, ["--method", "exact"]),
    "poisson": ({"units": "user", "rate_mean": 2.0, "rate_sd": 1.0}, ["--method", "exact"]),
    "regression": (
        {
            "theta_mean": [0.0, 0.1, 0.0], "theta_precision": [[0.2, 0.0, 0.0], [0.0, 0.2, 0.0], [0.0, 0.0, 0.2]],
            "sigma2_shape": 3.0, "sigma2_scale": 0.3,
            "covariates": {"mean": [0.0, 0.0], "kappa": 1.0, "psi": [[1.0, 0.0], [0.0, 1.0]], "nu": 6.0},
        },
        ["--method", "naive", "--draws", "50"],
    ),
}  # fmt: skip


@FUZZ
@given(data=st.data())
def test_priors(here, data):
    kind = data.draw(st.sampled_from(sorted(PRIORS)))
    prior, options = PRIORS[kind]
    (here / "r.json").write_text(json.dumps(content_of(kind)))
    text = to_toml(data.draw(changed(prior)))
    (here / "p.toml").write_bytes(data.draw(damaged(text)) if data.draw(st.booleans()) else text)
    attack(["fit", "r.json", "--prior", "p.toml", *options, "--json", "s.json", "--force"], here)


# ---- configs ---------------------------------------------------------------------------------------------------
@FUZZ
@given(data=st.data())
def test_configs(here, data, tmp_path_factory):
    """Everything before the work, which is left out: it is compiled."""
    content = tomllib.loads(CONFIG + FIT + STUDY)
    for part in data.draw(st.sets(st.sampled_from(("fit", "calibration")), max_size=2)):
        del content[part]
    text = to_toml(data.draw(changed(content)))
    (here / "c.toml").write_bytes(data.draw(damaged(text)) if data.draw(st.integers(0, 3)) == 0 else text)
    (here / "table.csv").write_text(TABLE)
    output = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:  # around no draw: an example that ends in one would leave it behind
        for name in ("fit_all", "calibrate_all"):
            patch.setattr(experiment, name, lambda *_: None)
        code, *_ = attack(["run", "c.toml", "--output", str(output)], here, SECRETS, quiet=False)
    if code == 2:
        assert not list(output.iterdir())


# ---- tables ----------------------------------------------------------------------------------------------------
@st.composite
def tables(draw):
    rows = [line.split(",") for line in TABLE.splitlines()]
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.integers(0, len(rows) - 1))
        how = draw(st.sampled_from(("cell", "cell", "cell", "short", "long", "blank", "twice", "none")))
        if how == "cell":
            text = draw(
                st.sampled_from(TEXTS) | st.sampled_from(NUMBERS).map(lambda x: repr(x) if x != 10**400 else "1e400")
            )
            rows[row] = [draw(st.sampled_from((rows[row][0], text))) if rows[row] else "", text]
        elif how == "short":
            rows[row] = rows[row][:1]
        elif how == "long":
            rows[row] = [*rows[row], rows[row][0] if rows[row] else ""]
        elif how == "blank":
            rows[row] = []
        elif how == "twice":
            rows.insert(row, rows[row])
        elif len(rows) > 1:
            del rows[row]
    separator = draw(st.sampled_from((",", ",", ",", ";", "\t", " ")))
    content = "\n".join(separator.join(row) for row in rows).encode("utf-8", "surrogatepass")
    return draw(damaged(content)) if draw(st.booleans()) else content


@FUZZ
@given(data=st.data())
def test_tables(here, data):
    (here / "table.csv").write_bytes(data.draw(tables()))
    without_outputs(here, "table.csv")
    said = []
    for option, found in (
        ("--separator", TEXTS),
        ("--decimal", (".", ",")),
        ("--encoding", ("latin-1", "utf-16", "x")),
    ):
        if data.draw(st.integers(0, 5)) == 0:
            said += [option, data.draw(st.sampled_from(found))]
    accept = data.draw(st.sampled_from(([], ["--accept"])))
    words = [*RELEASE, *said, *accept, "--output", "r.json"]
    code, *_ = attack(words, here, SECRETS, quiet=False)
    if code == 0:
        assert attack(["check", "r.json"], here, SECRETS)[0] in (0, 1)


# ---- posterior files -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    statistic = STATISTICS["regression"]
    one = posterior_of(statistic, [release_of(statistic)])
    return one.save(tmp_path_factory.mktemp("posterior") / "good.nc")


PREDICT = ["predict", "p.nc", "new.csv", "--output", "out.csv", "--json", "out.json", "--force"]


@FUZZ
@given(data=st.data())
def test_damaged_posterior_files(here, posterior, data):
    (here / "new.csv").write_text("x,w w\n20,0\n")
    good = posterior.read_bytes()
    bad = data.draw(damaged(good))
    (here / "p.nc").write_bytes(bad)
    assert attack(PREDICT, here)[0] == (0 if bad == good else 2)


@FUZZ
@given(data=st.data())
def test_forged_posterior_files(here, posterior, data):
    """Changes with a digest that fits: of the fields' text, of numbers, of the bytes of the HDF5 file; and none."""
    (here / "new.csv").write_text("x,w w\n20,0\n")
    path = unsealed(posterior, here / "p.nc", keep=True)
    how = data.draw(st.sampled_from(("text", "text", "array", "attribute", "bytes")))
    with h5py.File(path, "r+") as file:
        if how == "text":
            state = data.draw(changed(json.loads(file["constant_data"]["dpjax"][()])))
            del file["constant_data"]["dpjax"]
            file["constant_data"]["dpjax"] = json.dumps(state)
        elif how == "array":
            group, name = data.draw(st.sampled_from((("constant_data", "codes"), ("sample_stats", "scaled"))))
            del file[group][name]
            shape = data.draw(st.lists(st.integers(0, 9), max_size=4))
            kind = data.draw(st.sampled_from(("f4", "f8", "i8", "c16", "S3", "?", "f2", "u1", ">f8")))
            file[group][name] = np.ones(shape, kind)
        elif how == "attribute":
            file["posterior"].attrs["model"] = data.draw(st.sampled_from(TEXTS[:-4]).filter(lambda x: "\x00" not in x))
    if how == "bytes":
        path.write_bytes(data.draw(damaged(path.read_bytes())))
    seal(path)
    attack(PREDICT, here)


@FUZZ
@given(data=st.data())
def test_new_rows(here, posterior, data):
    (here / "p.nc").write_bytes(posterior.read_bytes())
    rows = "x,w w\n" + "\n".join(f"{20 + i},{0.1 * i}" for i in range(5))
    (here / "new.csv").write_bytes(data.draw(damaged(rows.encode())))
    attack(PREDICT, here)


# ---- folders of runs -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A folder with a release, a finished part, and a checkpoint of a method at work."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "table.csv").write_text(TABLE)
    (folder / "c.toml").write_text(CONFIG + FIT + STUDY)
    real = checkpoint.Checkpoint.keep_state

    def stop(self, *arguments):
        real(self, *arguments)
        if "calibration" in self.name:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(checkpoint, "SHARE", np.inf)
        patch.setattr(checkpoint.Checkpoint, "keep_state", stop)
        assert main(["run", "c.toml", "--output", "out", "--checkpoint", "0"]) == 130
    files = tree(folder)
    names = {path.name for path in files}
    assert {"release.json", "run.json", "posterior_naive.npz", "calibration_gibbs.state.ckpt"} <= names
    return folder, files


@FUZZ
@given(data=st.data())
def test_folders_of_runs(interrupted, data):
    """Every file of a run but the table: damaged, `--resume` refuses it or does without."""
    folder, files = interrupted  # where it was made: the release is of the table that lies there
    shutil.rmtree(folder / "out")
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    kind = data.draw(st.sampled_from((".ckpt", ".ckpt", ".npz", "release.json", "run.json")))
    path = data.draw(st.sampled_from(sorted(path for path in files if path.name.endswith(kind))))
    path.write_bytes(data.draw(damaged(files[path])))
    words = ["run", str(folder / "c.toml"), "--output", str(folder / "out"), "--resume"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "write_figures", lambda *_: None)
        code, _, err = attack(words, folder, SECRETS, ("wall_seconds.npz",), quiet=False)
    if kind in (".ckpt", ".npz"):
        assert code != 2 or path.name in err
    release = folder / "out" / "release.json"
    if kind != "release.json" and code in (0, 1):
        assert release.read_bytes() == files[release]  # never drawn again


# ---- arguments -------------------------------------------------------------------------------------------------
WORDS = st.sampled_from(TEXTS) | st.sampled_from(NUMBERS).map(lambda x: str(x) if x != 10**400 else "1" + "0" * 400)
OPTIONS = {
    "release": (
        "--target", "--features", "--bounds", "--epsilon", "--delta", "--mechanism", "--model", "--labels", "--option",
        "--rule", "--categories", "--norms", "--averaged", "--moments-share", "--private-bounds", "--bounds-share",
        "--missing", "--missing-code", "--impute", "--separator", "--adjacency", "--moments", "--no-intercept",
        "--accept",
    ),
    "check": ("--json", "--output"),
    "predict": ("--level", "--seed", "--separator", "--decimal", "--encoding"),
    "fit": ("--method", "--parties", "--chains", "--draws", "--thin", "--seed", "--devices", "--platform", "--figure"),
    "run": ("--seed", "--checkpoint", "--coordinator", "--processes", "--process", "--platform", "--resume", "--force"),
}  # fmt: skip
BASE = {
    "release": [*RELEASE, "--output", "r.json"],
    "check": ["check", "good.json"],
    "predict": PREDICT,
    "fit": ["fit", "good.json"],
    "run": ["run", "c.toml", "--output", "out"],
}
FLAGS = ("--moments", "--no-intercept", "--accept", "--resume", "--force")


@FUZZ
@given(data=st.data())
def test_arguments(here, posterior, data):
    without_outputs(here)
    (here / "table.csv").write_text(TABLE)
    (here / "good.json").write_text(json.dumps(content_of("binomial")))
    (here / "p.nc").write_bytes(posterior.read_bytes())
    (here / "new.csv").write_text("x,w w\n20,0\n")
    (here / "c.toml").write_text(CONFIG)
    command = data.draw(st.sampled_from(sorted(BASE)))
    words = of(BASE[command])
    for _ in range(data.draw(st.integers(1, 3))):
        how = data.draw(st.sampled_from(("option", "option", "value", "drop", "word")))
        if how == "option":
            option = data.draw(st.sampled_from(OPTIONS[command]))
            value = data.draw(WORDS | st.sampled_from(("y=1:2", "x=0:1e308", "x=nan", "1e-320", "0.5", "shape=1e400")))
            # sizes that are taken run for as long as they say
            sizes = option in ("--chains", "--draws", "--thin") and value not in ("0", "-1", "1", "nan", "x", "")
            words += [] if sizes else [option] if option in FLAGS else [option, value]
        elif how == "value" and len(words) > 1:
            place = data.draw(st.integers(1, len(words) - 1))
            words[place] = data.draw(WORDS)
        elif how == "drop" and len(words) > 1:
            del words[data.draw(st.integers(1, len(words) - 1))]
        else:
            words.append(data.draw(WORDS))
    words = [word.replace("\x00", "") for word in words]  # which no operating system passes on
    if os.path.lexists(here / "out"):
        shutil.rmtree(here / "out")
    attack(words, here, SECRETS, quiet=False)
