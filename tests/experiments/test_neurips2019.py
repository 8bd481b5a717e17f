"""The configs of experiments/neurips2019 are accepted, and the parts of its cirrhosis.py do what they say."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dpjax.errors import InputError
from dpjax.runner import config as _config
from dpjax.runner.checks import Prepared

FOLDER = Path(__file__).parents[2] / "experiments" / "neurips2019"
sys.path.insert(0, str(FOLDER))
try:
    import cirrhosis
finally:
    del sys.path[0]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The committed config with few splits, on a table with the same columns that is made up."""
    rng = np.random.default_rng(0)
    x = rng.uniform(2, 30, 46).round()
    rows = zip(x, (30 + 2 * x + rng.normal(0, 8, 46)).round(1), strict=True)
    text = "wine_per_capita,cirrhosis_death_rate\n" + "".join(f"{a:g},{b:g}\n" for a, b in rows)
    (tmp_path / "x20_cirrhosis.csv").write_text(text)
    monkeypatch.setenv("DPJAX_DATA", str(tmp_path))
    content = (FOLDER / "cirrhosis.toml").read_text()
    for key, value in (
        ("splits", "3"),
        ("epsilon", "[1, 1e7]"),
        ("methods", '["non-private", "naive"]'),
        ("draws", "250"),
    ):
        old = next(line for line in content.splitlines() if line.startswith(f"{key} ="))
        content = content.replace(old, f"{key} = {value}")
    (tmp_path / "own.toml").write_text(content)
    return tmp_path / "own.toml"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("figure3*.toml")), ids=lambda path: path.stem)
def test_configs(path):
    typed, base = _config.load(path)
    prepared = Prepared(typed, base)
    assert prepared.study.trials in (20, 300) and typed.name == f"neurips2019-{path.stem.replace('_', '-')}"
    prior = prepared.design.model.as_dict()
    assert prior["sigma2_shape"] == 20 and prior["sigma2_scale"] == 0.5
    np.testing.assert_allclose(prior["theta_precision"], np.eye(2) * 0.5 / 19, rtol=1e-6)


def test_cirrhosis_refusals(config, monkeypatch, capsys):
    output = str(config.parent / "out")
    own = config.parent / "other.toml"
    for old, new, said in (
        ("data_is_public = true", "data_is_public = false", "data_is_public must be true"),
        ("wine_per_capita", "beer_per_capita", "beer_per_capita"),
        ("train = 36", "train = 46", "train must be below the number of rows, 46"),
        ("seed = 2019", "seeed = 2019", "seeed"),
    ):
        own.write_text(config.read_text().replace(old, new))
        assert cirrhosis.main([str(own), "--output", output]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    (config.parent / "x20_cirrhosis.csv").unlink()
    assert cirrhosis.main([str(config), "--output", output]) == 2
    error = capsys.readouterr().err
    assert "x20_cirrhosis.csv is missing" in error and "x20.txt" in error and error.count("\n") == 1
    monkeypatch.delenv("DPJAX_DATA")
    with pytest.raises(InputError, match="DPJAX_DATA is not set"):
        cirrhosis.read_points(cirrhosis.read_config(config))
    assert not Path(output).exists()


def test_cirrhosis_problems(config):
    typed = cirrhosis.read_config(config)
    x, y = cirrhosis.read_points(typed)
    for v in (x, y):
        assert v.min() == 0.0 and v.max() == 1.0 and len(v) == 46
    train, test = cirrhosis.split(46, typed)
    assert train.shape == (3, 36) and test.shape == (3, 10)
    assert all(len({*a, *b}) == 46 for a, b in zip(train, test, strict=True)) and not (train[0] == train[1]).all()
    problems = cirrhosis.problems_of(x, y, train, typed)
    rows = train[1]  # split 1 at the second epsilon
    sums = [x[rows].sum(), (x[rows] ** 2).sum(), y[rows].sum(), (x[rows] * y[rows]).sum(), (y[rows] ** 2).sum()]
    np.testing.assert_allclose(problems.exact[4], sums)
    np.testing.assert_allclose(problems.z[4], sums, atol=1e-4)
    # joint sensitivities on [0, 1] (docs/formulas.md#box-sensitivity, #moment-sensitivity): 5 of the usual sums, 2 of
    # the two more
    np.testing.assert_allclose(problems.scale[0], 5.0)
    view = problems.views["moments"]
    np.testing.assert_allclose(view.scale[0], [10.0] * 5 + [4.0] * 2)
    np.testing.assert_allclose((view.z - view.exact)[:, :5], 2 * (problems.z - problems.exact))
    np.testing.assert_allclose(view.exact[4, 5:], [(x[rows] ** 3).sum(), (x[rows] ** 4).sum()])


def test_predictive_intervals():
    draws = {"theta[0]": np.full((1, 200_000), 0.2), "theta[1]": np.full((1, 200_000), 0.5)}
    draws["sigma2"] = np.full((1, 200_000), 0.04)
    ends = cirrhosis.intervals(draws, np.array([[0.0, 1.0]]), [0.5, 0.9], [1])
    for k, level in enumerate((0.5, 0.9)):
        reach = 0.2 * norm.ppf((1 + level) / 2)
        np.testing.assert_allclose(ends[0, :, k], [[0.2 - reach, 0.2 + reach], [0.7 - reach, 0.7 + reach]], atol=0.004)


def test_standard_error():
    """Independent hits: binomial. Hits that only depend on the point or on the split: as many as there are of those."""
    rng = np.random.default_rng(2)
    splits, count = 200, 20
    point = np.stack([rng.permutation(count) for _ in range(splits)])
    hit = rng.uniform(size=point.shape) < 0.8
    assert cirrhosis.standard_error(hit, point) == pytest.approx(
        (hit.mean() * (1 - hit.mean()) / hit.size) ** 0.5, rel=0.35
    )
    by_point = np.arange(count) < 15
    assert cirrhosis.standard_error(by_point[point], point) == pytest.approx((0.75 * 0.25 / count) ** 0.5, rel=0.02)
    by_split = np.broadcast_to((np.arange(splits) < 150)[:, None], point.shape)
    assert cirrhosis.standard_error(by_split, point) == pytest.approx((0.75 * 0.25 / splits) ** 0.5, rel=0.02)
    first, second = rng.normal(size=count), 3 * rng.normal(size=splits)
    together = (first.var() / count + second.var() / splits) ** 0.5
    found = cirrhosis.standard_error(first[point] + second[:, None], point)
    assert found == pytest.approx(together, rel=0.05)


@pytest.mark.slow
def test_cirrhosis_run(config, capsys):
    """Without noise to speak of, naive is non-private; at epsilon = 1 it covers less."""
    typed = cirrhosis.read_config(config)
    results = cirrhosis.study(typed)
    exact, (noisy, close) = results["methods"]["non-private"]["rows"][0], results["methods"]["naive"]["rows"]
    assert close["coverage"]["0.9"] == pytest.approx(exact["coverage"]["0.9"], abs=0.07)
    assert close["width"]["0.9"] == pytest.approx(exact["width"]["0.9"], rel=0.05)
    assert noisy["coverage"]["0.9"] < exact["coverage"]["0.9"] - 0.1 and results["private"] is False
    text = cirrhosis.table(results)
    assert "nearly correct coverage" in text and "drastically worse" in text and "Not private" in text
    drawn = cirrhosis.figure(results)
    assert [axis.get_title() for axis in drawn.axes[:2]] == ["50% predictive intervals", "90% predictive intervals"]
