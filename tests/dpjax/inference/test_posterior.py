"""Posterior: units, summary, table, warnings and the ArviZ file on both ArviZ lines."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dpjax._base import files
from dpjax.errors import InputError
from dpjax.families import family_named
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_groups import variables
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.multinomial import MultinomialStatistic
from dpjax.statistics.regression import RegressionStatistic

LOWER, UPPER = np.array([15.0, -3.0, 0.0]), np.array([45.0, 1.0, 350.0])  # two features, then the target
COLUMNS = ("bmi", "blood pressure"), "progression"
BOUNDS = {"bmi": (15.0, 45.0), "blood pressure": (-3.0, 1.0), "progression": (0.0, 350.0)}
STATISTIC = RegressionStatistic(*COLUMNS, BOUNDS, "bounds-to-[-1,1]")
NAMES = (
    "theta[0]", "theta[1]", "theta[2]", "sigma2", "mu_x[1]", "mu_x[2]", "tau2[1,1]", "tau2[2,1]", "tau2[2,2]",
)  # fmt: skip


def draws_of(rng, shape, p=2):
    factor = rng.normal(size=(*shape, p, p))
    covariance = factor @ np.swapaxes(factor, -1, -2)
    row, column = np.tril_indices(p)
    parts = [
        rng.normal(size=(*shape, p + 1)),
        rng.gamma(3.0, 0.1, size=(*shape, 1)),
        rng.normal(size=(*shape, p)),
        covariance[..., row, column],
    ]
    return np.concatenate(parts, axis=-1)


def make(chains=2, length=300, seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = dict(
        draws=draws_of(rng, (chains, length)).astype(np.float32),
        names=NAMES,
        statistic=STATISTIC,
        records=442,
        epsilon=1.0,
        delta=0.0,
        mechanism="laplace",
        adjacency="replace-one",
        method="collapsed",
        seconds=1.25,
        codes=np.zeros(chains, dtype=int),
        prior={"sigma2_shape": 2.0, "theta_mean": [0.0, 0.0, 0.0]},
        prior_draws=draws_of(rng, (500,)),
    )
    return Posterior(**{**fields, **changes})


def test_records_fit_equally_in_both_units():
    """Residuals, means and covariances of the same records, computed in either parametrisation."""
    rng = np.random.default_rng(1)
    scaled = draws_of(rng, (4, 7))
    user = STATISTIC.to_user_units(scaled)
    centre, half = (LOWER + UPPER) / 2, (UPPER - LOWER) / 2
    records = rng.uniform(LOWER, UPPER, size=(50, 3))
    mapped = (2 * records - (LOWER + UPPER)) / (UPPER - LOWER)

    def residuals(draws, table):
        return table[:, 2] - draws[..., :1] - draws[..., 1:3] @ table[:, :2].T

    np.testing.assert_allclose(residuals(user, records), half[2] * residuals(scaled, mapped), atol=1e-9)
    # the normal log density changes by the Jacobian of the map, record by record
    quotient = residuals(user, records) ** 2 / user[..., 3:4]
    np.testing.assert_allclose(quotient, residuals(scaled, mapped) ** 2 / scaled[..., 3:4])

    def distance(draws, table):
        covariance = np.empty((*draws.shape[:-1], 2, 2))
        row, column = np.tril_indices(2)
        covariance[..., row, column] = covariance[..., column, row] = draws[..., 6:]
        gap = table[:, :2] - draws[..., None, 4:6]
        return np.einsum("...ni,...ij,...nj->...n", gap, np.linalg.inv(covariance), gap)

    np.testing.assert_allclose(distance(user, records), distance(scaled, mapped), rtol=1e-6)
    unit = RegressionStatistic(*COLUMNS, dict.fromkeys(BOUNDS, (-1.0, 1.0)), "bounds-to-[-1,1]")
    np.testing.assert_array_equal(unit.to_user_units(scaled), scaled)
    assert centre.shape == (3,)


def test_raw_units_coincide():
    posterior = make(statistic=RegressionStatistic(*COLUMNS))
    np.testing.assert_array_equal(posterior.user_draws, posterior.draws.astype(np.float64))
    found = posterior.summary()
    assert found["parameters"] == found["scaled"]
    with pytest.raises(InputError, match="draws"):
        make(names=NAMES[:-1])


def test_summary_has_the_layout_of_summary_json():
    posterior = make()
    found = posterior.summary()
    assert list(found["parameters"]) == list(found["scaled"]) == list(NAMES)
    keys = {"mean", "sd", "q05", "q95", "ess_bulk", "ess_tail", "rhat", "prior_sd"}
    assert all(set(row) == keys for part in ("parameters", "scaled") for row in found[part].values())
    assert found["seconds"] == 1.25 and found["prior"]["sigma2_shape"] == 2.0 and found["epsilon"] == 1.0
    assert json.loads(files.to_json(found)) == found
    row = found["scaled"]["sigma2"]
    flat = posterior.draws[..., 3].astype(np.float64).ravel()
    assert row["mean"] == pytest.approx(flat.mean()) and row["q05"] == pytest.approx(np.quantile(flat, 0.05))
    assert row["prior_sd"] == pytest.approx(posterior.prior_draws[:, 3].std(ddof=1))
    ratio = found["parameters"]["sigma2"]["prior_sd"] / row["prior_sd"]
    assert ratio == pytest.approx(175.0**2)
    assert make(prior_draws=None).summary()["scaled"]["sigma2"]["prior_sd"] is None


def test_table_shows_posterior_and_prior_side_by_side():
    text = make().table()
    lines = text.splitlines()
    assert "n = 442" in lines[0] and "epsilon = 1" in lines[0] and "user's units" in lines[0]
    columns = re.split(r"\s{2,}", lines[1].strip())
    assert columns == ["parameter", "mean", "sd", "prior sd", "5%", "95%", "ESS bulk", "ESS tail", "R-hat"]
    assert len(lines) == 3 + len(NAMES) and len({len(line) for line in lines[1:]}) == 1
    assert "covariance of blood pressure, bmi" in text and "mean of bmi" in text and "intercept" in text
    assert "scaled units" in make().table(scaled=True)
    assert " - " in make(prior_draws=None).table()


def test_in_a_notebook():
    """The same numbers as the table, every text escaped, and not longer than a screen or two."""
    odd = RegressionStatistic(("<b>x</b>", "a&b"), "y")
    posterior = make(chains=4, length=500, statistic=odd, notes=("a < b",), doubts=("1 < 2",))
    text = posterior._repr_html_()
    assert "<b>" not in text and "&lt;b&gt;x&lt;/b&gt;" in text and "a&amp;b" in text
    assert "a &lt; b" in text and "not to be trusted yet: 1 &lt; 2" in text and "n = 442" in text
    tree = ElementTree.fromstring(text)
    rows = [[cell.text or "" for cell in row] for row in tree.iter("tr")]
    shown = [re.split(r"\s{2,}", line.strip()) for line in posterior.table().splitlines()[3:12]]
    assert [[cell for cell in row if cell] for row in rows[1:]] == shown and len(rows) == 10
    assert "not to be trusted" not in make(chains=4, length=500)._repr_html_()
    assert repr(posterior).startswith("Posterior(collapsed: n = 442") and len(repr(posterior)) < 150
    many = make(names=tuple(f"theta[{i}]" for i in range(90)), draws=np.zeros((2, 9, 90)), prior_draws=None,
                statistic=RegressionStatistic([f"x{i}" for i in range(89)], "y"))  # fmt: skip
    assert (
        "and 50 more" in many._repr_html_() and len(list(ElementTree.fromstring(many._repr_html_()).iter("tr"))) == 41
    )


def test_warnings_say_what_to_do():
    assert make(chains=4, length=500).warnings() == []
    rng = np.random.default_rng(2)
    apart = draws_of(rng, (2, 300))
    apart[1, :, 3] += 5.0
    apart[:, :, 4] = 0.25
    found = make(draws=apart, codes=np.array([0, 3]), method="gibbs").warnings()
    assert any("1 of 2 chains" in text for text in found)
    assert any("mu_x[1] never moved" in text for text in found)
    assert any(text.startswith("R-hat is") and "for sigma2" in text for text in found)
    assert any(text.startswith("bulk ESS is") for text in found)
    assert all("--method collapsed" in text for text in found[1:])
    short = make(length=20).warnings()
    assert any("more draws" in text and "--method gibbs" in text for text in short)


def test_files_are_whole_and_never_overwritten(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"x": np.float32(np.nan), "y": np.array([1.0, np.inf]), "z": np.int64(3)})
    assert json.loads(path.read_text()) == {"x": None, "y": [1.0, None], "z": 3}
    with pytest.raises(InputError, match="--force"):
        files.write_json(path, {})
    files.write_json(path, {}, force=True)
    assert json.loads(path.read_text()) == {}
    with pytest.raises(InputError, match="does not exist"):
        files.write_text(tmp_path / "no" / "b.txt", "")
    with pytest.raises(InputError, match="is a folder"):
        files.write_text(tmp_path, "")

    def broken(file):
        file.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.write_with(path, broken, force=True)
    assert path.read_text() == "{}\n"

    def slow(file):
        (tmp_path / "c.txt").write_text("someone else's")

    with pytest.raises(InputError, match="exists"):
        files.write_with(tmp_path / "c.txt", slow)
    assert (tmp_path / "c.txt").read_text() == "someone else's"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.json", "c.txt"]
    with pytest.raises(TypeError):
        files.to_json(object())


@pytest.fixture
def saved(tmp_path):
    pytest.importorskip("arviz")
    # an autoregressive posterior with rejected moves, so that R-hat and ESS are not trivial
    rng = np.random.default_rng(3)
    draws = draws_of(rng, (4, 250))
    for s in range(1, 250):
        keep = rng.uniform(size=4) < 0.3
        draws[:, s] = np.where(keep[:, None], draws[:, s - 1], draws[:, s])
    posterior = make(draws=draws.astype(np.float32), codes=np.zeros(4, dtype=int))
    path = posterior.save(tmp_path / "posterior.nc")
    return posterior, path


def test_saved_file_opens_in_arviz(saved):
    import arviz

    posterior, path = saved
    with pytest.raises(InputError, match="--force"):
        posterior.save(path)
    posterior.save(path, force=True)
    group = arviz.from_netcdf(path)["posterior"]
    assert dict(group.sizes) == {"chain": 4, "draw": 250, "coefficient": 3, "feature": 2, "feature_pair": 3}
    assert group["coefficient"].values.tolist() == ["intercept", "bmi", "blood pressure"]
    assert group["feature_pair"].values.tolist() == [
        "bmi*bmi",
        "blood pressure*bmi",
        "blood pressure*blood pressure",
    ]
    np.testing.assert_array_equal(group["theta"].values, posterior.user_draws[..., :3])
    np.testing.assert_array_equal(group["sigma2"].values, posterior.user_draws[..., 3])
    np.testing.assert_array_equal(group["tau2"].values, posterior.user_draws[..., 6:])
    assert group.attrs["method"] == "collapsed" and group.attrs["epsilon"] == 1.0
    assert group.attrs["scaling"] == "bounds-to-[-1,1]"
    assert json.loads(group.attrs["bounds"])["progression"] == [0.0, 350.0]
    assert json.loads(group.attrs["features"]) == ["bmi", "blood pressure"]


def test_arviz_summary_agrees_with_the_table(saved):
    import arviz

    posterior, path = saved
    data = arviz.from_netcdf(path)
    if int(arviz.__version__.split(".")[0]) < 1:
        table = arviz.summary(data, round_to="none")
    else:
        # ArviZ 1.x takes the tail quantiles of its ESS from this setting: .95 means 5% and 95%, as in 0.x
        with arviz.rc_context({"stats.ci_prob": 0.95}):
            table = arviz.summary(data, round_to="none", ci_kind="eti", ci_prob=0.9)
    rows = list(posterior.summary()["parameters"].values())
    assert len(table) == len(rows)
    order = [table.index.get_loc(label) for label in arviz_labels(posterior)]
    for key, column in (("mean", "mean"), ("sd", "sd"), ("ess_bulk", "ess_bulk"), ("rhat", "r_hat")):
        expected = table[column].to_numpy(dtype=float)[order]
        np.testing.assert_allclose([row[key] for row in rows], expected, rtol=1e-6, err_msg=key)
    tail = table["ess_tail"].to_numpy(dtype=float)[order]
    np.testing.assert_allclose([row["ess_tail"] for row in rows], tail, rtol=0.05)
    if "eti90_lb" in table:
        for key, column in (("q05", "eti90_lb"), ("q95", "eti90_ub")):
            np.testing.assert_allclose([row[key] for row in rows], table[column].to_numpy(float)[order])


def arviz_labels(posterior):
    values, dims, coords = variables(posterior.statistic, posterior.names, posterior.user_draws)
    return [
        label
        for name in values
        for label in ([f"{name}[{c}]" for c in coords[dims[name][0]]] if name in dims else [name])
    ]


def test_families_have_their_own_names_and_units():
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.ones(3), size=(2, 50))
    counts = MultinomialStatistic(labels=("red", "green", "blue"), column="colour")
    posterior = make(draws=shares, names=counts.parameter_names, statistic=counts, prior_draws=None, notes=("law",))
    values, dims, coords = variables(posterior.statistic, posterior.names, posterior.user_draws)
    assert values["p"].shape == (2, 50, 3) and dims == {"p": ["category"]}
    assert coords["category"] == ["red", "green", "blue"]
    assert "share of colour = blue" in posterior.table() and posterior.table().endswith("law")
    summary = posterior.summary()
    assert summary["model"] == "multinomial" and summary["categories"] == 3 and summary["notes"] == ["law"]
    heights = FamilyStatistic(family_named("normal"), "clamp", (150.0, 190.0), "bounds-to-[-1,1]", "height")
    scaled = np.abs(rng.normal(size=(2, 50, 2)))
    posterior = make(draws=scaled, names=heights.parameter_names, statistic=heights, prior_draws=scaled[0])
    np.testing.assert_allclose(posterior.user_draws, [170.0, 0.0] + scaled * [20.0, 400.0])
    assert json.loads(files.to_json(posterior.summary()))["truncation"] == {"rule": "clamp", "bounds": [150, 190]}
    assert variables(posterior.statistic, posterior.names, posterior.user_draws)[1] == {}
