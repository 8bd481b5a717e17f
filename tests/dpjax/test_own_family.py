"""A family of a reader's own: the one file of docs/adding_a_family.md, through every command, and files with bugs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpjax.cli import app as cli
from dpjax.families import FAMILIES

DOCUMENT = Path(__file__).parents[2] / "docs" / "adding_a_family.md"


@pytest.fixture
def forget():
    """Families registered by a test are unknown afterwards."""
    known = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(known)


def code():
    return re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)[1]


@pytest.mark.slow
def test_one_file_goes_from_release_to_calibration(tmp_path, forget, capsys):
    file, table, release = tmp_path / "rayleigh.py", tmp_path / "waits.csv", tmp_path / "release.json"
    file.write_text(code())
    x = np.sqrt(np.random.default_rng(0).exponential(1 / 1.3, 3000))
    table.write_text("wait\n" + "\n".join(f"{value:.6f}" for value in x) + "\n")
    load = ["--load", str(file)]
    arguments = ["--model", "rayleigh", "--target", "wait", "--bounds", "wait=0:3", "--epsilon", "5"]
    assert cli.main([*load, "release", str(table), *arguments, "--output", str(release)]) == 0
    assert json.loads(release.read_text())["privacy"]["sensitivity"] == pytest.approx(9, rel=1e-9)
    assert cli.main([*load, "check", str(release)]) == 0
    summary = tmp_path / "summary.json"
    assert cli.main([*load, "fit", str(release), "--draws", "500", "--json", str(summary)]) == 0
    rate = json.loads(summary.read_text())["parameters"]["rate"]
    # next to no noise: the posterior of all records, Gamma(1 + n, 1 + sum of squares)
    z = json.loads(release.read_text())["statistics"]["x*x"]
    law = stats.gamma(3001, scale=1 / (1 + z))
    assert abs(rate["mean"] - law.mean()) < 0.2 * law.std() and rate["sd"] == pytest.approx(law.std(), rel=0.1)
    result = tmp_path / "calibration.json"
    study = ["calibrate", "rayleigh", "--records", "50", "--epsilon", "1", "--trials", "200", "--draws", "100"]
    assert cli.main([*load, *study, "--json", str(result)]) == 0
    assert json.loads(result.read_text())["parameters"]["rate"]["p_value"] > 1e-3
    assert cli.main(["fit", str(release)]) == 0  # it is known now ...
    FAMILIES.pop("rayleigh")
    assert cli.main(["fit", str(release)]) == 2  # ... and is not without its file
    assert "rayleigh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('prior = "gamma"', 'prior = "gama"', "prior must be one of"),
        ('("rate",)', '("a", "b")', "parameters must be a tuple of 1 names"),
        ('{"x*x": 2}', '{"x*x": 0}', "whole powers"),
        ("def update", "def updates", "update must be written"),
        ('kind = "rayleigh"', 'kind = "poisson"', "already"),
        ("@register", "@registers", "line 10: NameError"),
        ("import math", "import maths", "ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_a_release(tmp_path, forget, capsys, old, new, says):
    file, output = tmp_path / "own.py", tmp_path / "release.json"
    assert old in code()
    file.write_text(code().replace(old, new, 1))
    (tmp_path / "t.csv").write_text("wait\n1\n2\n")
    arguments = ["--model", "rayleigh", "--target", "wait", "--bounds", "wait=0:3", "--epsilon", "1"]
    assert cli.main(["--load", str(file), "release", str(tmp_path / "t.csv"), *arguments, "--output", str(output)]) == 2
    assert says in capsys.readouterr().err and not output.exists()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("return -jnp.log(-2.0 * eta[0])", "return jnp.log(-2.0 * eta[0])", "log_partition.*mean of t"),
        ("return eta[0] * v**2", "return eta[0] * v", "add up to 1"),
        ("return eta[0] * v**2", "return eta[0] * w**2", "log_survival fails: NameError"),
        ("prior.rate + statistic[0]", "prior.rate - statistic[0]", "update is not the conjugate posterior"),
        ("return -theta", "return -theta[0]", "natural must return 1 numbers"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_fit(tmp_path, forget, old, new, says):
    from dpjax import errors
    from dpjax.models import model_for
    from dpjax.statistics.kinds import make_statistic

    assert old in code()
    file = tmp_path / "own.py"
    file.write_text(code().replace(old, new, 1))
    cli.loading.load_python(file)
    with pytest.raises(errors.InputError, match=says):
        model_for(make_statistic("rayleigh", target="x", bounds={"x": (0.0, 3.0)}))
