"""A saved posterior is the same posterior again, for every model; what ArviZ finds in its file; files of before."""

import dataclasses
import warnings

import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.diagnostics.ranks import diagnose
from dpjax.errors import InputError
from dpjax.inference.posterior import Posterior
from dpjax.inference.posterior_file import load_posterior, unpack
from dpjax.inference.posterior_state import pack, restored
from dpjax.inference.replicates import replicate
from dpjax.releases.guarantee import Privacy
from dpjax.releases.release import Release
from dpjax.statistics.kinds import make_statistic

TWO = {"x": (15.0, 45.0), "w w": (-3.0, 1.0), "y": (0.0, 350.0)}
REGRESSION = {"kind": "linear-regression", "target": "y", "features": ["x", "w w"]}
STATISTICS = {
    "regression": make_statistic(**REGRESSION, bounds=TWO),
    "raw": make_statistic(**REGRESSION, bounds=TWO, scaling=None),
    "moments": make_statistic(**REGRESSION, bounds=TWO, moments=True),
    "origin": make_statistic(**REGRESSION, bounds=TWO, intercept=False, squares=False),
    "norms": make_statistic(**REGRESSION, norms={"features": 9.0, "target": 2.0}, intercept=False, averaged=2),
    "normal": make_statistic("normal", target="y", bounds=(0, 350)),
    "log-normal": make_statistic("log-normal", target="y", bounds=(1, 350), rule="redact"),
    "gamma": make_statistic("gamma", target="y", bounds=(0, 9), shape=2.5),
    "poisson": make_statistic("poisson", target="y", bounds=(0, 9)),
    "binomial": make_statistic("binomial", target="y"),
    "multinomial": make_statistic("multinomial", target="y", categories=3, released=[0, 2]),
    "labels": make_statistic("multinomial", target="y", labels=["red", "blue, dark", "null"]),
}


def release_of(statistic, seed=0, records=40, **changes):
    rng = np.random.default_rng(seed)
    sums = dict(zip(statistic.names, rng.integers(1, 20, len(statistic.names)).astype(float).tolist(), strict=True))
    discrete = statistic.integer
    fields = dict(mechanism="discrete-laplace" if discrete else "laplace", noise_scale=2.0, simulated=True)
    return Release(statistic, records, sums, **{**fields, **changes})


def posterior_of(statistic, releases=(), names=None, seed=0, **changes):
    rng = np.random.default_rng(seed)
    names = statistic.parameter_names if names is None else names
    draws = rng.uniform(0.2, 0.4, size=(4, 250, len(names))).astype(np.float32)
    fields = dict(
        draws=draws, names=names, statistic=statistic, records=40, epsilon=1.0, delta=0.0, mechanism="laplace",
        adjacency="replace-one", method="collapsed", seconds=1.25, codes=np.array([0, 0, 0, 0]),
        prior={"shape": 1.0, "rate": 1.0}, prior_draws=rng.uniform(0.1, 0.9, size=(500, len(names))).astype(np.float32),
        compile_seconds=3.5, notes=("one note, with <é>",), releases=tuple(releases),
    )  # fmt: skip
    return Posterior(**{**fields, **changes})


def assert_same(one, other):
    for field in dataclasses.fields(Posterior):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        elif isinstance(a, float):
            np.testing.assert_equal(a, b, err_msg=field.name)
        else:
            assert a == b and type(a) is type(b), field.name
    for scaled in (False, True):
        assert one.table(scaled) == other.table(scaled)
    np.testing.assert_equal(one.summary(), other.summary())
    assert one.warnings() == other.warnings()
    np.testing.assert_array_equal(one.diagnostics.rhat, other.diagnostics.rhat)


@pytest.mark.parametrize("kind", STATISTICS)
def test_the_same_posterior_comes_back(kind, tmp_path):
    statistic = STATISTICS[kind]
    one = posterior_of(statistic, [release_of(statistic)], method="exact" if kind == "binomial" else "collapsed")
    assert_same(one, load_posterior(one.save(tmp_path / "a.nc")))


def test_everything_that_a_posterior_may_say_comes_back(tmp_path):
    """Doubts, codes, reruns, what is not stated, parties, no prior draws; a method that reports less; float64 draws."""
    statistic = STATISTICS["regression"]
    privacy = Privacy(1.0, 0.0, "replace-one", "l1", 9.375)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parties = [release_of(statistic, seed, noise_scale=9.375, privacy=privacy) for seed in (1, 2)]
    names = ("theta[0]", "theta[1]", "theta[2]", "sigma2")
    one = posterior_of(
        statistic, parties, names=names, epsilon=float("nan"), delta=float("nan"), doubts=("do not rely on it",),
        codes=np.array([0, 2, 0, 0]), rerun=True, rerun_seconds=0.5, prior_draws=None, compile_seconds=None,
        parties=({"records": 40, "mechanism": "laplace", "epsilon": None, "delta": None},) * 2,
        draws=np.random.default_rng(0).uniform(0.2, 0.4, size=(4, 250, 4)),
    )  # fmt: skip
    back = load_posterior(one.save(tmp_path / "a.nc"))
    assert_same(one, back)
    assert back.releases[1].z.tolist() == parties[1].z.tolist() and back.doubts == ("do not rely on it",)
    rows = {"x": [20.0, 30.0], "w w": [0.0, 0.5]}
    with pytest.warns(dpjax.errors.ConvergenceWarning):
        np.testing.assert_array_equal(back.predict(rows, seed=3).draws, one.predict(rows, seed=3).draws)
    matrix = posterior_of(STATISTICS["origin"])  # no release file
    assert_same(matrix, load_posterior(matrix.save(tmp_path / "b.nc")))


def test_fields_of_any_kind_are_kept():
    """Results of other classes, arrays in mappings, fields that are unknown here or not there."""
    one = posterior_of(STATISTICS["binomial"])
    found = diagnose(one.draws[None], one.names)
    one = dataclasses.replace(
        one, prior={"a": found, "b": np.array([1.5, np.inf]), "c": (1, [None, True, np.float32(2)])}
    )
    text, arrays = pack(one)
    back = unpack(text.replace('"seconds"', '"no_such_field": 1, "seconds"'), arrays)
    np.testing.assert_array_equal(back.prior["a"].ess_bulk, found.ess_bulk)
    assert back.prior["a"].names == found.names and back.prior["b"].tolist() == [1.5, np.inf]
    assert back.prior["c"] == (1, [None, True, 2.0])
    shorter = unpack(text.replace('"notes"', '"remarks"'), arrays)
    assert shorter.notes == ()
    with pytest.raises(TypeError, match="no form in a file"):
        pack(dataclasses.replace(one, prior={"a": object()}))
    for bad in ('"dpjax", "ess_bulk"', '"os", "Diagnostics"', '"dpjax.errors", "InputError"'):
        with pytest.raises(InputError, match="not a class of results"):
            unpack(text.replace('"dpjax", "Diagnostics"', bad), arrays)


# --- what ArviZ finds ---


def test_groups(tmp_path):
    import arviz

    statistic = STATISTICS["regression"]
    release = release_of(statistic, records=50)
    one = posterior_of(statistic, [release])
    data = arviz.from_netcdf(one.save(tmp_path / "a.nc"))
    np.testing.assert_array_equal(data["observed_data"]["z"].values, release.z)
    assert data["observed_data"]["entry"].values.tolist() == list(statistic.names)
    assert data["posterior_predictive"]["z"].shape == (4, 100, 9) and data["prior_predictive"]["z"].shape == (1, 400, 9)
    assert data["prior"]["theta"].dims == data["posterior"]["theta"].dims
    np.testing.assert_array_equal(data["prior"]["sigma2"].values[0], one.user_prior_draws[:, 3])
    np.testing.assert_array_equal(data["sample_stats"]["scaled"].values, one.draws)
    np.testing.assert_array_equal(data["constant_data"]["noise_scale"].values, release.scale)
    two = posterior_of(statistic, [release, release_of(STATISTICS["regression"], 5)])
    data = arviz.from_netcdf(two.save(tmp_path / "b.nc"))
    assert data["observed_data"]["z"].dims == ("party", "entry")
    assert data["posterior_predictive"]["z"].shape == (4, 100, 2, 9)
    # what is not replicated is said in one line
    for kind, names, match in (
        ("moments", None, "third and fourth moments"), ("regression", ("theta[0]", "theta[1]", "theta[2]"), "sigma2"),
    ):  # fmt: skip
        less = posterior_of(STATISTICS[kind], [release_of(STATISTICS[kind])], names=names)
        data = arviz.from_netcdf(less.save(tmp_path / f"{kind}.nc"))
        groups = data.groups() if hasattr(data, "extend") and callable(data.groups) else list(data.children)
        assert match in data["posterior"].attrs["no_replicates"] and "posterior_predictive" not in groups


@pytest.mark.filterwarnings("ignore")  # of ArviZ and matplotlib
@pytest.mark.parametrize("kind", ["regression", "binomial"])
def test_pictures_of_arviz(kind, tmp_path):
    import arviz
    import matplotlib

    matplotlib.use("Agg")
    statistic = STATISTICS[kind]
    one = posterior_of(statistic, [release_of(statistic)], prior={"alpha": 1.0, "beta": 1.0})
    data = arviz.from_netcdf(one.save(tmp_path / "a.nc"))
    if int(arviz.__version__.split(".")[0]) < 1:
        panels = arviz.plot_ppc(data, kind="cumulative" if kind == "regression" else "scatter")
        assert panels.get_xlabel() == "z"
        assert arviz.plot_dist_comparison(data).shape == (len(one.names), 3)
    else:
        arviz.plot_ppc_dist(data)
        arviz.plot_prior_posterior(data)
    matplotlib.pyplot.close("all")


# --- replicates against independent references ---


def within(values, expected, errors=4.5):
    """Means over the first axis agree within so many standard errors."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) < errors * error + 1e-9).all()


@pytest.mark.parametrize("records", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", ["regression", "origin"])
def test_replicated_regressions_have_the_moments_of_simulated_tables(kind, records):
    """Records drawn one by one with NumPy, in the user's units, released by the statistic itself."""
    statistic = STATISTICS[kind]
    rng = np.random.default_rng(3)
    theta, sigma2, mu, tau2 = [0.1, 0.5, -0.3], 0.04, [0.1, -0.2], np.array([[0.09, 0.03], [0.03, 0.05]])
    given = {"theta[0]": theta[0], "theta[1]": theta[1], "theta[2]": theta[2], "sigma2": sigma2, "mu_x[1]": mu[0],
             "mu_x[2]": mu[1], "tau2[1,1]": 0.09, "tau2[2,1]": 0.03, "tau2[2,2]": 0.05}  # fmt: skip
    intercept = statistic.intercept
    draws = np.tile([given[name] for name in statistic.parameter_names], (20_000, 1))
    one = release_of(statistic, records=records)
    z = replicate(one, statistic.parameter_names, draws, statistic, {}, rng)
    x = np.array(mu) * intercept + rng.standard_normal((20_000, records, 2)) @ np.linalg.cholesky(tau2).T
    y = theta[0] * intercept + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal((20_000, records))
    r = np.concatenate([np.ones((20_000, records, 1)), x, y[..., None]], axis=2)
    sums = np.stack([(r[..., a] * r[..., b]).sum(axis=1) for a, b in statistic.pairs], axis=1)
    sums = sums + rng.laplace(scale=2.0, size=sums.shape)
    both = lambda s: np.concatenate(
        [s, np.stack([s[:, a] * s[:, b] for a in range(s.shape[1]) for b in range(a + 1)], 1)], 1
    )
    a, b = both(z), both(sums)
    error = np.sqrt(a.var(axis=0) + b.var(axis=0)) / np.sqrt(20_000)
    assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4.5 * error).all()


def test_replicates_of_a_party_are_in_its_own_units():
    """Parameters in common units, one record's mean known: the sum of x of 1,000 records."""
    common, own = STATISTICS["regression"], make_statistic(**REGRESSION, bounds=TWO | {"x": (20.0, 30.0)})
    draws = np.tile([0.0, 0.5, 0.0, 0.01, 0.2, 0.0, 0.01, 0.0, 0.01], (4000, 1))
    z = replicate(release_of(own, records=1000), common.parameter_names, draws, common, {}, np.random.default_rng(0))
    x = 30.0 + 15.0 * 0.2  # user's units
    within(z[:, 0], 1000 * (x - 25.0) / 5.0)
    assert z[:, 0].std() == pytest.approx(np.sqrt(1000 * 0.01 * 9.0 + 8.0), rel=0.05)


@pytest.mark.slow
def test_replicated_families():
    rng = np.random.default_rng(0)
    for kind, draws, prior, mean, variance in (
        ("binomial", [[0.3]], {}, [12.0], [40 * 0.21]),
        ("multinomial", [[0.2, 0.3, 0.5]], {}, [8.0, 20.0], [6.4, 10.0]),
        ("poisson", [[2.0]], {"shape": 1.0, "rate": 1.0}, *_clamped(stats.poisson(2.0), 9, 40)),
        ("gamma", [[0.5]], {"shape": 1.0, "rate": 1.0}, *_clamped_density(stats.gamma(2.5, scale=2.0), 9.0, 40)),
    ):  # fmt: skip
        statistic = STATISTICS[kind]
        one = release_of(statistic)
        z = replicate(one, statistic.parameter_names, np.tile(draws, (4000, 1)), statistic, prior, rng)
        within(z, mean)
        noise = 2 * 2.0**2 if one.mechanism == "laplace" else 2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2
        np.testing.assert_allclose(z.var(axis=0), np.array(variance) + noise, rtol=0.15)
        assert (z == np.floor(z)).all() or kind in ("poisson", "gamma")


def _clamped(law, high, n):
    k = np.arange(200)
    c, p = np.minimum(k, high), law.pmf(k)
    return [n * (p @ c)], [n * (p @ c**2 - (p @ c) ** 2)]


def _clamped_density(law, high, n):
    first = law.expect(lambda v: min(v, high))
    return [n * first], [n * (law.expect(lambda v: min(v, high) ** 2) - first**2)]


# --- files of the version before: the group posterior and its attributes alone ---


def old_file(path, target):
    import h5py

    unsealed(path, target)
    with h5py.File(target, "r+") as file:
        for name in list(file):
            if name != "posterior":
                del file[name]
    return target


def unsealed(path, target, keep=False):
    """The file without its digest, as earlier versions wrote it; keep: it still says that it had one."""
    import h5py

    target.write_bytes(path.read_bytes()[:-78])
    if not keep:
        with h5py.File(target, "r+") as file:
            del file.attrs["dpjax_digest"]
    return target


@pytest.mark.parametrize("kind", STATISTICS)
def test_files_of_the_version_before_give_what_they_hold(kind, tmp_path):
    statistic = STATISTICS[kind]
    one = posterior_of(statistic, [release_of(statistic)])
    back = load_posterior(old_file(one.save(tmp_path / "a.nc"), tmp_path / "old.nc"))
    assert back.names == one.names and back.records == one.records and back.prior == one.prior
    np.testing.assert_allclose(back.user_draws, one.user_draws, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back.draws, one.draws, rtol=1e-6, atol=1e-9)
    assert type(back.statistic) is type(statistic) and back.statistic.block() == statistic.block()
    assert back.prior_draws is None and "earlier version" in back.table() and "no digest" in back.table()
    np.testing.assert_allclose(back.diagnostics.ess_bulk, one.diagnostics.ess_bulk, rtol=1e-3)


def test_a_field_that_a_class_no_longer_has():
    """Files of before hold statistics by their fields, among them the moments = False of a line through the origin."""
    fields = {"features": {"$tuple": ["x"]}, "target": "y", "squares": False}
    restore = lambda **more: restored({"$class": ["dpjax", "OriginStatistic", fields | more]})
    assert restore(moments=False) == restore()
    with pytest.raises(TypeError, match="moments"):
        restore(moments=True)
