"""Zhang and Reiter: records and sums, noise and sensitivities, plug-in estimates, and a small posterior."""

import importlib
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.errors import InputError
from dpjax.kernels.order import origin_places

FOLDER = Path(__file__).parents[2] / "experiments" / "zhang_reiter"


@pytest.fixture(scope="module")
def modules():
    """The experiment's modules by name, from its folder."""
    names = ("run", "zr_data", "zr_posteriors", "zr_plug_in", "zr_cost")
    known = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # run.py sets it: not for the tests that follow
        yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - known:
        if name == "run" or name.startswith("zr_"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def config(modules):
    return modules["zr_data"].read_config(FOLDER / "config.toml")


def test_records_lie_in_the_box_and_have_the_law(modules):
    """x is N(0, 1) truncated to [-1, 1], not set to 0 outside: variance 1 - 2 phi(1) / (2 Phi(1) - 1) = .29112."""
    data = modules["zr_data"]
    theta = np.array([1.0, 0.0, 1.0])
    rows = data.scaled_records(np.random.default_rng(0), 40_000, theta, 0.1, 1.5)
    assert abs(rows).max() <= 1.0 and (abs(rows[:, 3]) == 1.0).mean() > 0.01
    # standard error of the variance: below .0014
    np.testing.assert_allclose(rows[:, :3].var(0), 0.291125, atol=0.006)
    inside = abs(rows[:, 3]) < 1.0
    residual = 1.5 * rows[inside, 3] - rows[inside, :3] @ theta
    assert residual.std() == pytest.approx(0.1, rel=0.03)


def test_sums_do_not_depend_on_chunks_or_other_sizes(modules, monkeypatch):
    data = modules["zr_data"]
    theta = data.truth(4, 2)
    np.testing.assert_array_equal(theta, [1, 1, 0, 0])
    monkeypatch.setattr(data, "CHUNK", 7)
    found, clipped = data.grams([1, 2], [5, 7, 20], theta, 0.1, 6.0)
    rng = np.random.default_rng([1, 2])
    rows = np.concatenate([data.scaled_records(rng, size, theta, 0.1, 6.0) for size in (5, 2, 7, 6)])
    for n, gram in zip((5, 7, 20), found, strict=True):
        np.testing.assert_allclose(gram, rows[:n].T @ rows[:n])
    assert clipped == [0.0, 0.0, 0.0]


def test_sensitivities(modules):
    """docs/formulas.md#box-sensitivity: 1 for a square, 2 for a product; Zhang and Reiter's formula counts the width
    twice."""
    data = modules["zr_data"]
    assert data.sensitivity(1) == 4.0 and data.paper_sensitivity(1) == 12.0
    assert data.sensitivity(2) == 9.0 and data.paper_sensitivity(2) == 24.0
    assert data.sensitivity(30) == 31 + 30 * 31 and data.paper_sensitivity(30) == 1984.0
    i, j = origin_places(2)
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]


@pytest.mark.slow
def test_releases_have_their_noise_in_the_order_of_the_model(modules, config):
    """Entry by entry mean |noise| is b, and the model's exact sums have the places of the released ones."""
    posteriors, data = modules["zr_posteriors"], modules["zr_data"]
    theta = data.truth(2, 1)
    (gram,), _ = data.grams([0], [200_000], theta, 0.1, 6.0)
    problems = posteriors.problems_of([gram] * 2000, [200_000] * 2000, 6.0, config, [3])
    noise = problems.z - gram[origin_places(2)]
    # standard error of a mean of 2,000 exponentials: 2.2%
    np.testing.assert_allclose(abs(noise).mean(0), 90.0, rtol=0.1)
    np.testing.assert_allclose(problems.scale, 90.0)
    observed = jax.tree.map(lambda x: jnp.asarray(np.moveaxis(x[:1], 0, -1), jnp.float32), problems.observed())
    model = problems.model_template().given(observed)
    base = model.base
    # theta, log sigma2, log of the diagonal of L, no correlation: the law of the records, in the user's units
    phi = jnp.concatenate([jnp.array([1.0, 0.0, np.log(0.01), *[0.5 * np.log(0.291125)] * 2]), jnp.zeros(1)])
    x = jnp.concatenate([phi.astype(jnp.float32), jnp.zeros(model.latent_dim)])
    np.testing.assert_allclose(model.sums_lanes(x[:, None])[:, 0], gram[origin_places(2)], atol=600.0)
    np.testing.assert_allclose(base.theta_precision, 0.01 * np.eye(2), rtol=1e-6)
    # mean of the inverse Wishart: psi / (nu - p - 1) = I / 3
    np.testing.assert_allclose(base.psi / (base.nu - 3), np.eye(2) / 3, rtol=1e-6)
    assert base.independent


@pytest.mark.slow
def test_laplace_noise_is_symmetric_with_its_scale(modules):
    gram = jnp.arange(16.0).reshape(4, 4) + jnp.arange(16.0).reshape(4, 4).T
    seen = jax.vmap(lambda key: modules["zr_plug_in"].laplace_noise(key, gram, 3.0))(
        jax.random.split(jax.random.key(0), 3000)
    )
    np.testing.assert_allclose(seen, jnp.swapaxes(seen, 1, 2), rtol=1e-6)
    np.testing.assert_allclose(abs(np.asarray(seen) - np.asarray(gram)).mean(0), 3.0, rtol=0.1)


def test_errors_of_plug_in_estimates(modules):
    from dpjax.mechanisms.matrix import theta_plug_in

    theta, rng = np.array([1.0, 0.0]), np.random.default_rng(4)
    rows = rng.standard_normal((3, 20, 3))
    seen = np.swapaxes(rows, 1, 2) @ rows
    found = modules["zr_plug_in"].errors_of(seen, 2.0, theta)
    for gram, error in zip(seen, found, strict=True):
        estimate = 2.0 * np.asarray(theta_plug_in(jnp.asarray(gram), 2))
        assert error == pytest.approx(min(np.linalg.norm(estimate - theta), 1.0), rel=1e-4)
    assert modules["zr_plug_in"].errors_of(np.zeros((1, 3, 3)), 2.0, theta) == 1.0


@pytest.mark.slow
def test_plug_in_errors_by_mechanism(modules, config):
    """The ridge of the undebiased matrix mechanisms biases, debiasing removes it; Zhang and Reiter's sensitivity is
    more noise; all are useless at few records, and none where there is no noise."""
    import msgspec

    small = msgspec.structs.replace(
        config,
        tables=msgspec.structs.replace(config.tables, p=5),
        figure2=msgspec.structs.replace(config.figure2, records=[100, 30_000, 300_000], draws=64),
    )
    found = {row["n"]: row for row in modules["zr_plug_in"].plug_in_errors(small, lambda text: None)}
    median = lambda n, name: found[n]["errors"][name][1]
    assert set(found[100]["errors"]) == set(modules["zr_plug_in"].LOOKS)
    for name in ("laplace", "wishart", "inverse-wishart"):
        assert median(100, name) > 0.9 > median(300_000, name)
    for name in ("wishart", "inverse-wishart"):
        assert median(300_000, f"{name}, debiased") < 0.5 * median(300_000, name)
        assert median(300_000, f"{name}, calibrated, debiased") < 0.5 * median(300_000, f"{name}, debiased")
    ratio = median(300_000, "laplace, S2's sensitivity") / median(300_000, "laplace")
    assert ratio == pytest.approx(modules["zr_data"].paper_sensitivity(5) / modules["zr_data"].sensitivity(5), rel=0.35)
    assert median(300_000, "no noise") < 0.01
    constants = found[30_000]["constants"]
    assert constants["wishart"]["dof"] == np.floor(6 + 28 * np.log(40) / 0.01)
    assert constants["inverse-wishart"]["dof"] == 30_006


def test_intervals_and_convergence_can_fail(modules):
    posteriors = modules["zr_posteriors"]
    bounds = np.array([[[-1.0, 0.5], [-1.0, 2.0]], [[0.5, 2.0], [1.5, 2.0]]])
    found = posteriors.covering(bounds, np.array([0.0, 1.0]))
    assert found["covers_truth"] == 0.5 and found["covers_0"] == 0.5
    assert found["covers_truth_where_0"] == 0.5 and found["mean_width_where_1"] == pytest.approx(1.75)
    rows = [{"p": 10, "milliseconds": 1.0, "milliseconds_of_the_gradient": 1.0}]
    rows.append({"p": 20, "milliseconds": 16.0, "milliseconds_of_the_gradient": 8.0})
    exponents = modules["zr_cost"].growth(rows)["10 to 20"]
    assert exponents == {"milliseconds": pytest.approx(4.0), "milliseconds_of_the_gradient": pytest.approx(3.0)}


@pytest.mark.slow
def test_costs_are_measured(modules, config):
    import msgspec

    small = msgspec.structs.replace(config, cost=msgspec.structs.replace(config.cost, features=[2], repeats=1))
    (row,) = modules["zr_cost"].costs(small, lambda text: None)
    # 3 + 3 parameters: theta, sigma2, tau2; as many latent variables
    assert (row["parameters"], row["dimension"], row["chains"]) == (6, 12, 4)
    assert row["metric_megabytes"] == pytest.approx(3 * 4 * 36 / 1e6)
    assert row["milliseconds"] > 0 and row["seconds_of_the_metric"] > 0


def test_bad_input_is_one_line(modules, tmp_path, capsys):
    text = (FOLDER / "config.toml").read_text()
    path, out = tmp_path / "config.toml", tmp_path / "out"
    for old, new, match in (
        ("seed = 19", "seeds = 19", "seed"),
        ("epsilon = 0.1", "epsilon = -1", "epsilon must be"),
        ("y_bound = 6.0\nwarmup = 300\nrows", "y_bound = 0.0\nwarmup = 300\nrows", "y_bound must be"),
        ("true = 6,", "true = 60,", "high.rows"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError, match=match):
            modules["zr_data"].read_config(path)
    for arguments, match in ((["--parts", "none"], "parts"), (["--records", "7"], "no row with 7")):
        assert modules["run"].main(["--output", str(out), *arguments]) == 2
        error = capsys.readouterr().err
        assert match in error and error.count("\n") == 1 and not out.exists()


@pytest.mark.slow
def test_a_small_study(modules, tmp_path, capsys):
    """Few records, large noise: the posterior is near the prior N(0, 100), whose intervals hold 1 and 0; with
    hardly any noise (epsilon = 1e5) it finds theta*."""
    text = (FOLDER / "config.toml").read_text()
    start, end = text.index("rows = [\n  { n = 10,"), text.index("[low]")
    small = text[:start] + "rows = [{ n = 50, leapfrogs = 8, draws = 400 }]\n\n" + text[end:]
    for old, new in (
        ("[tables]                  # Tables 1 and 2\np = 30", "[tables]\np = 5"),
        ("warmup = 300", "warmup = 100"),
    ):
        assert old in small
        small = small.replace(old, new, 1)
    widths = {}
    for epsilon in ("0.1", "1e5"):
        path, out = tmp_path / f"{epsilon}.toml", tmp_path / f"out_{epsilon}"
        path.write_text(small.replace("epsilon = 0.1", f"epsilon = {epsilon}", 1))
        assert modules["run"].main([str(path), "--output", str(out), "--parts", "tables"]) in (0, 1)
        (row,) = json.loads((out / "tables.json").read_text())["rows"]
        widths[epsilon] = row["mean_width"]
        assert row["covers_truth"] >= 0.8 and row["seconds"] >= row["run_seconds"] > 0 and row["cpu_seconds"] > 0
        if epsilon == "0.1":
            assert row["covers_0"] == row["covers_truth"] == 1.0
        else:
            assert row["error_of_mean"] < 0.2
        assert row["milliseconds_per_iteration"] > 0 and len(row["intervals"]) == 5
    # 2 x 1.96 x 10 = 39.2 for the prior
    assert 25 < widths["0.1"] < 45 and widths["1e5"] < 1
    assert "R-hat" in capsys.readouterr().out
    assert modules["run"].main([str(path), "--output", str(out), "--parts", "tables"]) == 2
    assert "holds results" in capsys.readouterr().err
