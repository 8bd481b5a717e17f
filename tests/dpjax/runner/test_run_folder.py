"""`run` in a folder never goes on with the release of another table."""

import json
import shutil

import numpy as np
import pytest

import dpjax
from dpjax.cli.app import main
from dpjax.errors import PrivacyWarning
from dpjax.mechanisms import laplace as _noise

CONFIG = """
name = "small"
[data]
csv = "table.csv"
[release]
target = "y"
features = ["x"]
epsilon = 1.0
bounds = { x = [0, 10], y = [-5, 25] }
"""


def table(path, records=80, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 9, records)
    rows = [f"{a:.5f},{2 * a + rng.normal(0, 3):.5f}" for a in x]
    path.write_text("\n".join(["x,y", *rows]) + "\n")


@pytest.fixture
def drawn(tmp_path):
    """Two projects whose configs are spelt alike; the folder of results of the first."""
    for name, seed in (("north", 1), ("south", 2)):
        (tmp_path / name).mkdir()
        table(tmp_path / name / "table.csv", seed=seed)
        (tmp_path / name / "config.toml").write_text(CONFIG)
    assert go(tmp_path, "north") == 0
    return tmp_path


def go(folder, project, *options):
    return main(["run", str(folder / project / "config.toml"), "--output", str(folder / "out"), *options])


def refused(folder, capsys, says, project="north"):
    """Both ways to go on are refused in one line, and nothing is drawn or changed."""
    before = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    capsys.readouterr()
    for option in ("--resume", "--force"):
        assert go(folder, project, option) == 2
        out, err = capsys.readouterr()
        assert says in err and err.count("\n") == 1 and out == ""
    assert before == {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["other place", "link"])
def test_the_same_words_for_another_table_are_refused(drawn, capsys, monkeypatch, how):
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    if how == "link":  # the path stays, what it leads to does not
        (drawn / "north" / "table.csv").unlink()
        (drawn / "north" / "table.csv").symlink_to(drawn / "south" / "table.csv")
    refused(drawn, capsys, "at another place", "south" if how == "other place" else "north")


def test_another_number_of_records_at_the_same_place_is_refused(drawn, capsys):
    table(drawn / "north" / "table.csv", records=81)
    refused(drawn, capsys, "records: 80 there, 81 here")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content["bounds"].update(x=[0, 11]), "bounds: "),
        (lambda content: content["privacy"].update(epsilon=0.5), "epsilon: 0.5 there, 1.0 here"),
        (lambda content: content.update(privacy=None), "epsilon: None there, 1.0 here"),
        (lambda content: content["model"].update(features=["z"]), "model: "),
    ],
)
def test_a_release_with_other_public_facts_is_refused(drawn, capsys, change, says):
    path = drawn / "out" / "release.json"
    content = json.loads(path.read_text())
    change(content)
    if "features" in str(content["model"]) and content["model"]["features"] == ["z"]:
        content["bounds"]["z"] = content["bounds"].pop("x")
        content["statistics"] = {k.replace("x", "z"): v for k, v in content["statistics"].items()}
    path.write_text(json.dumps(content))
    capsys.readouterr()
    for option in ("--resume", "--force"):
        assert go(drawn, "north", option) == 2
        out, err = capsys.readouterr()
        last = err.splitlines()[-1]
        assert out == "" and "of another table or [release]" in last and says in last


def test_the_same_table_by_another_way_is_the_same(drawn, capsys, monkeypatch):
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    before = (drawn / "out" / "release.json").read_bytes()
    monkeypatch.chdir(drawn / "north")
    assert main(["run", "config.toml", "--output", "../out", "--resume"]) == 0
    (drawn / "way").symlink_to(drawn / "north")
    assert go(drawn, "way", "--resume") == 0 and go(drawn, "way", "--force") == 0
    assert (drawn / "out" / "release.json").read_bytes() == before


def test_folders_of_the_version_before_are_gone_on_with_and_say_what_is_not_known(drawn, capsys):
    path = drawn / "out" / "run.json"
    content = json.loads(path.read_text())
    del content["table_sha256"]
    path.write_text(json.dumps(content))
    before = (drawn / "out" / "release.json").read_bytes()
    capsys.readouterr()
    assert go(drawn, "north", "--resume") == 0
    assert "number of records and the bounds alone" in capsys.readouterr().err
    assert (drawn / "out" / "release.json").read_bytes() == before
    table(drawn / "north" / "table.csv", records=9)
    assert go(drawn, "north", "--resume") == 2


def test_every_kind_of_release_is_the_one_that_was_asked_for(tmp_path):
    """What a drawn release states is what its config stated, whatever the model and the noise."""
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "t.csv", rng.uniform(1, 3, (40, 3)).round(3), "%g", ",", header="x,w,y", comments="")
    two = {"target": "y", "features": ["x", "w"], "epsilon": 0.3}
    bounds = {name: [0, 4] for name in "xwy"}
    one = {"target": "y", "epsilon": 0.3, "bounds": [0, 4]}
    for number, section in enumerate(
        (
            two | {"bounds": bounds, "moments": True, "moments_share": 0.3},
            two | {"bounds": bounds, "mechanism": "gaussian", "delta": 1e-6},
            two | {"bounds": bounds, "intercept": False, "squares": False},
            two
            | {
                "norms": {"features": 5.0, "target": 3.0},
                "intercept": False,
                "averaged": 2,
                "mechanism": "gaussian",
                "delta": 1e-6,
            },
            one | {"model": "normal"},
            one | {"model": "log-normal", "bounds": [1, 4], "rule": "redact"},
            one | {"model": "gamma", "options": {"shape": 2}},
        )
    ):
        config = {"name": "kinds", "data": {"csv": str(tmp_path / "t.csv"), "accept": True}, "release": section}
        with pytest.warns(PrivacyWarning):
            dpjax.run(config, tmp_path / str(number))
        first = (tmp_path / str(number) / "release.json").read_bytes()
        dpjax.run(config, tmp_path / str(number), resume=True)
        assert (tmp_path / str(number) / "release.json").read_bytes() == first
        shutil.rmtree(tmp_path / str(number))
