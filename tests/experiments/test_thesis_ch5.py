"""The social mobility case study: Opportunity Insights' formula, the scores, and the whole of it on a small config."""

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from dpjax.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments" / "thesis_ch5"
TABLE = "oi_simulated_cells.csv"
has_data = bool(os.environ.get("DPJAX_DATA")) and (Path(os.environ["DPJAX_DATA"]) / TABLE).is_file()
needs_data = pytest.mark.skipif(not has_data, reason=f"DPJAX_DATA does not name a folder with {TABLE}")
#: The config of the page, made small: one epsilon, one method, one prior, few draws.
SMALL = {
    "epsilon = [0.25, 1, 4, 16, 64]": "epsilon = [4]",
    'methods = ["naive", "collapsed", "noisy", "plug-in"]': 'methods = ["naive", "no-such-method"]',
    "chains = 2\ndraws = 500\n\n[data]": "chains = 2\ndraws = 100\n\n[data]",
    "replicates = { collapsed = 20, noisy = 4, naive = 4 }": "replicates = { naive = 1 }",
}


@pytest.fixture(scope="module")
def modules():
    """The experiment's modules by name, from its folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        names = ("run", "mobility_data", "mobility_study", "mobility_simulated")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in [n for n in sys.modules if n == "run" or n.startswith("mobility_")]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def config_text():
    text = (FOLDER / "config.toml").read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_local_sensitivity_by_hand(modules):
    """Four records at the corners of a square: the least squares line is flat at 1/2."""
    x, y = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    data = modules["mobility_data"]
    assert data.ols_line(x, y, 0.25) == pytest.approx(0.5)
    # with a fifth at (0, 1): mean (.4, .6), slope -.2 / 1.2, at .25: .6 + .15 / 6
    assert data.local_sensitivity(x, y, 0.25) == pytest.approx(0.6 + 0.15 / 6 - 0.5)


@pytest.mark.slow
def test_output_perturbation_has_its_scale(modules, config_text, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(config_text)
    data, rng = modules["mobility_data"], np.random.default_rng(0)
    config = data.read_config(path)
    cells = [{"parent_rank": rng.uniform(size=n), "kid_rank": rng.uniform(size=n)} for n in [10] * 2000 + [40] * 2000]
    oi = data.output_perturbation(cells, config)
    sensitivities = [data.local_sensitivity(c["parent_rank"], c["kid_rank"], 0.25) * len(c["kid_rank"]) for c in cells]
    assert oi.chi == pytest.approx(max(sensitivities))
    error = oi.points[4.0] - oi.exact
    for part, n in ((slice(0, 2000), 10), (slice(2000, 4000), 40)):
        # sd of the sd of 2,000 Laplace draws: about 2.5%
        assert error[part].std() == pytest.approx(2**0.5 * oi.chi / (4 * n), rel=0.1)


def test_deciles_and_confusion(modules):
    study = modules["mobility_study"]
    values = np.random.default_rng(1).permutation(111).astype(float)
    np.testing.assert_array_equal(np.bincount(study.deciles(values)), [12] + [11] * 9)
    same, turned = study.confusion(values, values), study.confusion(-values, values)
    assert same["diagonal"] == same["top_kept"] == same["bottom_kept"] == 1.0
    assert np.trace(np.array(same["matrix"])) == 111
    assert turned["top_kept"] == turned["bottom_within_two"] == 0.0
    size = np.arange(1, 112)
    scores = study.score_points(values + 1.0 / size, values, size)
    assert scores["slope_log_error_log_size"] == pytest.approx(-1.0)
    assert scores["mae"] == pytest.approx((1.0 / size).mean())
    assert scores["mae_by_size"][0] > scores["mae_by_size"][1] > scores["mae_by_size"][2]


def test_records_inside_moves_them_along_the_line(modules):
    x = np.linspace(0, 1, 11)
    cell = {"parent_rank": x, "kid_rank": 0.2 + 0.6 * x}
    study = modules["mobility_study"]
    assert study.records_inside(np.array([[0.34, 0.36]]), [cell], 0.25) == 1.0
    assert study.records_inside(np.array([[0.36, 0.38]]), [cell], 0.25) == 0.0


@pytest.mark.slow
def test_releases_have_the_noise_of_their_epsilon(modules, config_text, tmp_path):
    """Exact joint sensitivity 5 on [0, 1]; with moments half of epsilon each, 5 and 2
    (docs/formulas.md#box-sensitivity, #moment-sensitivity)."""
    path = tmp_path / "config.toml"
    path.write_text(config_text)
    config = modules["mobility_data"].read_config(path)
    rng, study = np.random.default_rng(0), modules["mobility_study"]
    cells = [{"parent_rank": rng.uniform(size=n), "kid_rank": rng.uniform(size=n)} for n in [20] * 600]
    for moments, scale in ((False, [5 / 4] * 5), (True, [5 / 2] * 5 + [2 / 2] * 2)):
        made = study.releases(cells, config, moments)
        np.testing.assert_allclose(made[0].scale, scale)
        assert made[0].simulated and made[0].privacy.epsilon == 4
        noise = np.stack([release.z for release in made]) - study.exact_sums(cells, moments)
        # mean of |Laplace| is its scale, here within 5 standard errors of 600 draws
        np.testing.assert_allclose(abs(noise).mean(0), scale, rtol=5 / 600**0.5)


def test_coverage_of_simulated_cells_can_fail(modules, config_text, tmp_path):
    """Right draws hold the truth as often as they should; draws of half the spread do not."""
    path = tmp_path / "config.toml"
    path.write_text(config_text)
    config = modules["mobility_data"].read_config(path)
    rng = np.random.default_rng(3)
    center = rng.standard_normal((4000, 2))
    truth = np.column_stack([center + rng.standard_normal((4000, 2)), np.full(4000, 0.25)])
    spread = rng.standard_normal((4000, 2, 250, 2))
    for factor, good in ((1.0, True), (0.5, False)):
        theta = center[:, None, None] + factor * spread
        draws = np.concatenate([theta, np.full((4000, 2, 250, 1), 0.25)], axis=-1)
        rows = modules["mobility_simulated"].levels_held(draws, truth, config, 1)
        found = {"p": {"collapsed": {"epsilon": {"4": rows}, "trials": 4000}}}
        verdict = modules["mobility_simulated"].judge(found, config)
        assert verdict["comparisons"] == 4 and (not verdict["outside"]) == good


def test_missing_data_is_one_line(modules, monkeypatch, tmp_path, capsys):
    for folder, match in ((None, "DPJAX_DATA is not set"), (str(tmp_path), f"{TABLE} is missing")):
        monkeypatch.delenv("DPJAX_DATA", raising=False)
        if folder:
            monkeypatch.setenv("DPJAX_DATA", folder)
        assert modules["run"].main(["--output", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert match in error and "OpportunityInsights" in error and error.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_bad_configs_are_refused(modules, config_text, tmp_path):
    path = tmp_path / "config.toml"
    for old, new, match in (
        ("seed = 54", "seeds = 54", "seed"),
        ("epsilon = [4]", "epsilon = [-4]", "epsilon must be"),
        ("levels = [0.5, 0.9]", "levels = [0.5, 1.9]", "levels must be"),
        ('noise = "laplace"', 'noise = "cauchy"', "oi.noise"),
        ("epsilon = 4\n", "epsilon = 5\n", "figures.epsilon"),
    ):
        path.write_text(config_text.replace(old, new))
        with pytest.raises(InputError, match=match):
            modules["mobility_data"].read_config(path)


@pytest.mark.slow
@needs_data
def test_the_whole_study(modules, config_text, tmp_path, capsys):
    path = tmp_path / "config.toml"
    path.write_text(config_text)
    out, kept = tmp_path / "out", tmp_path / "kept.json"
    command = [str(path), "--output", str(out), "--keep", str(kept)]
    assert modules["run"].main(command) == 0
    text = capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    assert (results["cells"], results["records"]) == (111, 10_000) and len(results["by_cell"]["size"]) == 111
    assert "no method 'no-such-method'" in text and "NOT formally" in text
    assert results["oi"]["formally_private"] is False and "by_cell" not in json.loads(kept.read_text())
    for prior in ("thesis", "weak"):
        methods = results["priors"][prior]["methods"]
        assert set(methods) == {"non-private", "naive", "oi"}
        row = methods["naive"]["epsilon"]["4"]
        assert np.array(row["deciles"]["matrix"]).sum() == 111 and row["mae"] > 0
        assert (out / f"figure_5_13_coverage_{prior}.png").stat().st_size > 10_000
    # docs/formulas.md#prior-precision: with the printed prior the non-private 90% interval holds far fewer records than
    # 90%
    inside = {p: results["priors"][p]["methods"]["non-private"]["records_inside"]["0.9"] for p in ("thesis", "weak")}
    assert inside["thesis"] < 0.6 and inside["weak"] == pytest.approx(0.9, abs=0.05)
    assert results["simulated"]["priors"]["weak"]["naive"]["trials"] == 111
    assert modules["run"].main(command) == 2 and "not an empty folder" in capsys.readouterr().err
