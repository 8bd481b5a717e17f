"""Alparslan et al.'s experiments: preparation of tables, noise levels, closed forms, MMD, comparison with the paper,
small runs."""

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpjax.errors import InputError
from dpjax.privacy.gaussian import analytic_gaussian_sigma

FOLDER = Path(__file__).parents[2] / "experiments" / "alparslan2023"
TABLES = ("power_plant.csv", "bike_sharing_hour.csv", "air_quality_alparslan.csv")
data = Path(os.environ.get("DPJAX_DATA") or "/nowhere")
missing = [name for name in TABLES if not (data / name).is_file()]
needs_data = pytest.mark.skipif(bool(missing), reason=f"DPJAX_DATA does not name a folder with {', '.join(missing)}")
NAMES = ("s3_data", "s3_release", "s3_table", "s3_simulated", "s3_command", "table1", "figure2", "figure3")
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def modules():
    """The experiment's modules by name, from its folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)


@pytest.fixture
def config(modules):
    return modules["s3_table"].read_config(FOLDER / "table1.toml")


@pytest.fixture
def made_up(modules):
    """A table with a missing code and a feature that is to be dropped."""
    table = modules["s3_data"].Table(
        title="made up", file="none.csv", origin="nowhere", target="y", features=["a", "b"], drop=["b"], missing=-200,
        public={"a": (1.0, 2.0), "y": (0.0, 10.0)},
    )  # fmt: skip
    return table, {"a": np.array([0.0, 1, 2, 9, -200, 1]), "b": np.arange(6.0), "y": np.array([1.0, 2, -200, 4, 5, 26])}


def test_paper_split_by_hand(modules, made_up):
    table, columns = made_up
    split = modules["s3_data"].paper_split(table, columns, 0.7)
    x = np.stack([columns["a"], columns["b"]], 1)
    np.testing.assert_allclose(split.x_train, ((x - x.mean(0)) / x.std(0, ddof=1))[:5])
    y = columns["y"] - columns["y"].mean()
    np.testing.assert_allclose(np.concatenate([split.y_train, split.y_test]), y / abs(y).max())
    assert len(split.y_test) == 1 and split.bound_y == 1.0
    assert split.bound_x == pytest.approx(max(np.linalg.norm(row) for row in split.x_train))
    theta = np.array([[0.5, -1.0], [0.0, 0.0]])
    np.testing.assert_allclose(split.error(theta)[1], (split.y_test**2).mean())


def test_public_split_looks_at_no_data_for_its_scales(modules, made_up):
    """Row 3 is outside of a's range, rows 2 and 4 have a missing value; a test record's response is not clipped."""
    table, columns = made_up
    split = modules["s3_data"].public_split(table, columns, 0.7)
    np.testing.assert_allclose(split.x_train, [[-0.5], [0.0], [1.0]], rtol=1e-13)
    np.testing.assert_allclose(split.y_train, [0.1, 0.2, 0.4])
    np.testing.assert_allclose(split.y_test, [2.6])
    assert (split.bound_x, split.bound_y) == (1.0, 1.0)
    changed = {name: np.append(column[:-1], 3.0) for name, column in columns.items()}
    again = modules["s3_data"].public_split(table, changed, 0.7)
    np.testing.assert_array_equal(again.x_train, split.x_train)


def test_party_sums(modules):
    x, y = rng.standard_normal((11, 2)), rng.standard_normal(11)
    sums, n = modules["s3_data"].party_sums(x, y, 3)
    np.testing.assert_array_equal(n, [3, 3, 5])
    a, b = x[6:], y[6:]
    np.testing.assert_allclose(
        sums[2], [a[:, 0] @ a[:, 0], a[:, 0] @ a[:, 1], a[:, 1] @ a[:, 1], a[:, 0] @ b, a[:, 1] @ b, b @ b]
    )
    gram, cross = modules["s3_release"].matrices(sums, 2)
    np.testing.assert_allclose(gram[2], a.T @ a)
    np.testing.assert_allclose(cross[2], a.T @ b)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 1 / 7655), (1 / 3, 1 / 22965), (0.1, 1e-5)])
def test_authors_multiplier_is_not_private(modules, epsilon, delta):
    """It solves the code's equation, and its delta is far above the one claimed."""
    sigma = modules["s3_release"].authors_sigma(epsilon, delta)
    # back to u: alpha = sqrt(1 + u / 2) + sqrt(u / 2), so u = (alpha - 1 / alpha)^2 / 2
    alpha = sigma * math.sqrt(2 * epsilon)
    u = (alpha - 1 / alpha) ** 2 / 2
    slip = norm.cdf(-math.sqrt(epsilon) * u) - math.exp(epsilon) * norm.cdf(-math.sqrt(epsilon * (u + 2)))
    assert slip == pytest.approx(delta, rel=1e-6)
    real = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    assert real > 200 * delta and sigma < analytic_gaussian_sigma(1.0, epsilon, delta) / 2


def test_levels(modules):
    """Sensitivities of docs/formulas.md#row-norm-sensitivity at (X, Y) = (2, 1) and (1, 2), the paper's beside them."""
    make = lambda noise, x, y: modules["s3_release"].Level(noise, 3, x, y, 1.0, 1e-5, 1.0)
    for (x, y), plain, squares in (((2.0, 1.0), 6.3639610307, 6.3639610307), ((1.0, 2.0), 4.0, 4.6904157598)):
        right, paper = make("replace-one", x, y), make("paper", x, y)
        assert right.sensitivity(False) == pytest.approx(plain, abs=1e-9)
        assert right.sensitivity(True) == pytest.approx(squares, abs=1e-9)
        assert paper.sensitivity(False) == pytest.approx(math.sqrt(x**4 + x**2 * y**2))
        assert paper.sensitivity(True) == pytest.approx(math.sqrt(x**4 + x**2 * y**2 + y**4))
        assert right.scale(False) == pytest.approx(plain * 3.7306316348, rel=1e-8)
        assert (paper.fast_sigma2, right.fast_sigma2) == (pytest.approx(y / 3), pytest.approx(y**2 / 9))
        exact = right.adassp(2)
        np.testing.assert_allclose(exact.cross, 2 * x * y * 10.9706972976, rtol=1e-8)
        np.testing.assert_allclose(paper.adassp(2).cross, x * y * 10.9706972976, rtol=1e-8)
        np.testing.assert_allclose(paper.adassp(2).eigenvalue, x**2 * 3 * math.sqrt(math.log(6e5)), rtol=1e-8)


def test_releases_have_their_noise(modules):
    levels = [modules["s3_release"].Level("replace-one", 2, 1.0, 1.0, e, 1e-5, 1.0) for e in (1.0, 10.0)]
    sums = rng.standard_normal((2, 6))
    z, scale = modules["s3_release"].releases(sums, levels, 4000, False, [1])
    assert z.shape == scale.shape == (8000, 2, 5)
    for k, level in enumerate(levels):
        rows = slice(4000 * k, 4000 * (k + 1))
        np.testing.assert_allclose(scale[rows], level.scale(False))
        off = (z[rows] - sums[:, :-1]) / level.scale(False)
        np.testing.assert_allclose(off.std(0), 1.0, rtol=5 / 8000**0.5)
        assert abs(np.corrcoef(off.reshape(4000, -1).T) - np.eye(10)).max() < 5 / 4000**0.5
    assert modules["s3_release"].releases(sums, levels, 2, True, [1])[0].shape == (4, 2, 6)


def test_fast_is_its_closed_form(modules):
    """Algorithm 3 written out, with the variances of its level; draws have its mean and covariance."""
    release = modules["s3_release"]
    level = release.Level("replace-one", 3, 2.0, 1.5, 1.0, 1e-5, 4.0)
    x = rng.standard_normal((200, 3)) * [1.0, 1.0, 0.1]  # one direction drowned: an eigenvalue is cut off at 0
    sums, _ = modules["s3_data"].party_sums(x, x @ [1.0, -1, 0.5], 2)
    z, noise = release.releases(sums, [level], 3, False, [5])
    found = release.fast(z, noise, [level], 3, 20_000, [6])
    for r in range(3):
        gram, cross = release.matrices(z[r], 3)
        information, linear = np.eye(3) / 4.0, np.zeros(3)
        for one, right in zip(gram, cross, strict=True):
            values, vectors = np.linalg.eigh(one)
            near = vectors * np.maximum(values, 0) @ vectors.T
            inverse = np.linalg.inv(0.25 * near + level.scale(False) ** 2 * np.eye(3))
            information, linear = information + near @ inverse @ near, linear + near @ inverse @ right
        covariance = np.linalg.inv(information)
        np.testing.assert_allclose(found.estimate[r], covariance @ linear, rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(np.cov(found.draws[r, 0].T), covariance, atol=0.05 * covariance.max())


def test_chain_length(modules):
    """Chains of means +a and -a along one direction add a^2 (variance of the mean of two) times its second moment."""
    draws = np.zeros((1, 2, 10, 2))
    draws[0, :, :, 0] = np.array([[0.3], [-0.3]])
    assert modules["s3_release"].chain_length(draws, np.diag([4.0, 1.0]))[0] == pytest.approx(4 * 0.09)


@pytest.mark.slow
def test_scripts_use_every_core():
    """Devices can only be set before JAX is loaded, and half of the modules here load it."""
    clean = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    for script in ("table1", "figure2", "figure3"):
        code = f"import {script}, jax; from dpjax._base.runtime import cores; assert len(jax.devices()) == cores()"
        ran = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, env=clean, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr


def test_mmd_is_unbiased(modules):
    """docs/formulas.md#mmd: N(0, 1) against N(.3, .5^2) with exp(-d^2 / 2) is .0869152857."""
    kernel = lambda v, m: math.sqrt(1 / (1 + v)) * math.exp(-0.5 * m * m / (1 + v))
    exact = kernel(2, 0) + kernel(0.5, 0) - 2 * kernel(1.25, 0.3)
    assert exact == pytest.approx(0.0869152857, abs=1e-9)
    found = [
        modules["s3_simulated"].mmd(rng.standard_normal((60, 1)), 0.3 + 0.5 * rng.standard_normal((90, 1)), 1.0)
        for _ in range(400)
    ]
    assert abs(np.mean(found) - exact) < 4 * np.std(found) / 20


def test_non_private_posterior_is_conjugate(modules, config):
    """d = 1: the posterior of theta by quadrature over sigma2."""
    simulated = modules["s3_simulated"]
    made = simulated.simulate(40, 1, 1.0, 3)
    draws, mean = simulated.non_private(made, config.prior, 200_000, [1])
    x, y = made.x[:, 0], made.y
    precision = x @ x + 0.5 / 19
    assert mean[0] == pytest.approx(x @ y / precision)
    a, b = 40, 0.5 + 0.5 * (y @ y - (x @ y) ** 2 / precision)
    density = lambda s: s ** (-a - 1) * math.exp(-b / s + 40)
    top = b / (a - 1)
    total, first = (quad(lambda s, k=k: s**k * density(s), top / 10, 10 * top)[0] for k in (0, 1))
    assert draws.var() == pytest.approx(first / total / precision, rel=0.02)


def test_simulated_data(modules):
    made = modules["s3_simulated"].simulate(20_000, 2, 1.0, 8)
    np.testing.assert_allclose(np.cov(made.x.T), made.covariance, atol=0.06 * made.covariance.max())
    assert (made.y - made.x @ made.theta).var() == pytest.approx(1.0, rel=0.05)
    assert made.bounds == (pytest.approx(np.linalg.norm(made.x, axis=1).max()), pytest.approx(abs(made.y).max()))


def test_comparison_with_the_paper(modules):
    """Inside, outside and apart are told apart; the last digit is rounded."""
    table = modules["s3_table"]
    rows = {
        "normal-x": {"mean": 0.01285, "interval": [0.0127, 0.0130]},
        "clt": {"mean": 0.0131, "interval": [0.0128, 0.0134]},
        "adassp": {"mean": 0.0150, "interval": [0.0149, 0.0151]},
        "collapsed": {"mean": 0.1, "interval": [0.1, 0.1]},
    }
    table.compare(rows, "PowerPlant", 1)
    assert "paper" not in rows["collapsed"] and rows["normal-x"]["paper"]["mean"] == 0.0129
    seen = {m: (rows[m]["paper"]["inside"], rows[m]["paper"]["intervals_meet"]) for m in ("normal-x", "clt", "adassp")}
    assert seen == {"normal-x": (True, True), "clt": (False, True), "adassp": (False, False)}
    results = {"sets": {"power": {"variants": {"published": {"parties": {"1": rows}}}}}}
    assert [d["method"] for d in table.differences(results)] == ["clt", "adassp"]
    for title, by_parties in table.TABLE_1.items():  # every mean lies in its interval
        for parties, means in by_parties.items():
            for mean, (low, high) in zip(means, table.TABLE_2[title][parties], strict=True):
                assert low <= mean <= high


def test_refusals(modules, tmp_path, monkeypatch, capsys):
    text = (FOLDER / "table1.toml").read_text()
    for old, new, said in (
        ("unsafe_paper_sensitivity = true", "unsafe_paper_sensitivity = false", "not private as claimed (published)"),
        ("data_is_public = true", "data_is_public = false", "data_is_public must be"),
        ('noise = "authors"', 'noise = "none"', "noise of authors, paper, replace-one"),
        ("repetitions = 50", "repetition = 50", "repetition"),
        ('"adassp", "collapsed"]', '"adassp", "magic"]', "methods must be"),
    ):
        assert old in text
        path = tmp_path / "own.toml"
        path.write_text(text.replace(old, new, 1))
        assert modules["table1"].main([str(path), "--output", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    for folder, match in ((None, "DPJAX_DATA is not set"), (str(tmp_path), "power_plant.csv is missing")):
        monkeypatch.delenv("DPJAX_DATA", raising=False)
        if folder:
            monkeypatch.setenv("DPJAX_DATA", folder)
        assert modules["table1"].main(["--output", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert match in error and "UCI" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    figures = FOLDER / "figure2.toml"
    own = tmp_path / "figure.toml"
    own.write_text(figures.read_text().replace("unsafe_paper_sensitivity = true", "unsafe_paper_sensitivity = false"))
    with pytest.raises(InputError, match="not private as claimed"):
        modules["s3_simulated"].read_config(own)
    assert modules["figure3"].read_config(str(FOLDER / "figure3.toml")).methods[-1] == "collapsed"


@needs_data
def test_tables_are_those_of_the_paper(modules, config):
    """Sizes, bounds and errors of least squares as the authors' preparation gives them."""
    read = modules["s3_data"]
    for name, n, d, bound_x, bound_y, ols, zero in (
        ("power", 7655, 4, 4.1666, 1.0, 1.2685e-2, 0.1684),
        ("bike", 13904, 14, 8.2982, 0.9746, 0.0, 0.0841),
        ("air", 7486, 12, 12.0552, 1.0, 2.9677e-5, 0.0474),
    ):
        table = config.sets[name]
        split = read.paper_split(table, read.read_table(table), config.train)
        assert (len(split.y_train), split.d) == (n, d)
        assert (split.bound_x, split.bound_y) == (pytest.approx(bound_x, rel=1e-4), pytest.approx(bound_y, rel=1e-4))
        error = split.error(read.least_squares(split.x_train, split.y_train))
        assert error == pytest.approx(ols, rel=1e-3, abs=1e-20)
        assert split.error(np.zeros(d)) == pytest.approx(zero, rel=1e-3)
        honest = read.public_split(table, read.read_table(table), config.train)
        assert abs(honest.x_train).max() <= 1 and abs(honest.y_train).max() <= 1
        assert np.linalg.norm(honest.x_train, axis=1).max() <= honest.bound_x


@pytest.mark.slow
@needs_data
def test_published_numbers_come_out(modules, config, tmp_path):
    """adaSSP and Bayes-fixedS-fast on the power plant with one party: as in the paper's 90% intervals with the authors'
    noise, above them with noise for replaced records."""
    text = (FOLDER / "table1.toml").read_text()
    for key, value in (("parties", "[1]"), ("methods", '["fixed-s-fast", "adassp"]')):
        old = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(old, f"{key} = {value}", 1)
    for start, end in (("[variants.later-prior]", "[method."), ("[sets.bike]", None)):  # one compilation is enough
        first = text.index(start)
        text = text[:first] + ("" if end is None else text[text.index(end, first) :])
    path = tmp_path / "own.toml"
    path.write_text(text)
    assert modules["table1"].main([str(path), "--output", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    variants = results["sets"]["power"]["variants"]
    rows = variants["published"]["parties"]["1"]
    assert all(rows[method]["paper"]["intervals_meet"] for method in ("fixed-s-fast", "adassp"))
    right = variants["replace-one"]["parties"]["1"]
    assert right["fixed-s-fast"]["interval"][0] > rows["fixed-s-fast"]["paper"]["interval"][1]
    assert right["adassp"]["interval"][0] > rows["adassp"]["paper"]["interval"][1]
    shown = (tmp_path / "out" / "results.txt").read_text()
    assert "NOT (epsilon, delta)-differentially private as claimed" in shown and results["private"] is False


@pytest.mark.slow
def test_figure_2_on_a_small_config(modules, tmp_path):
    """Errors fall with epsilon, and with more noise they are larger; figures are drawn."""
    text = (FOLDER / "figure2.toml").read_text()
    for key, value in (
        ("records", "20_000"), ("features", "[2]"), ("parties", "[2]"), ("epsilon", "[0.5, 50]"), ("repetitions", "20"),
        ("methods", '["fixed-s-fast", "adassp"]'), ("mmd_draws", "100"), ("mmd_reference", "300"),
    ):  # fmt: skip
        old = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(old, f"{key} = {value}", 1)
    path = tmp_path / "own.toml"
    path.write_text(text)
    assert modules["figure2"].main([str(path), "--output", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = results["features"]["2"]["parties"]["2"]
    for method in ("fixed-s-fast", "adassp"):
        low, high = (entry["mse"]["mean"] for entry in found["replace-one"][method])
        assert high < low
        assert found["published"][method][0]["mse"]["mean"] < low
    assert (tmp_path / "out" / "figure_2_published.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "figure_4_replace-one.png").stat().st_size > 10_000
