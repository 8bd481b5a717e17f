"""Several data holders: how their releases are put together, what is refused, and whether the posterior is right."""

import json
import os
import shutil

import numpy as np
import pytest
from scipy import stats

import dpjax
from dpjax.errors import InputError
from dpjax.families import family_named
from dpjax.inference.posterior_file import load_posterior
from dpjax.releases.guarantee import Privacy
from dpjax.releases.parties import gather, load_parties, release_files
from dpjax.releases.release import Release
from dpjax.statistics.base import SCALING
from dpjax.statistics.family import FamilyStatistic
from dpjax.statistics.origin import OriginStatistic
from dpjax.statistics.regression import RegressionStatistic

CHAINS, DRAWS = 4, 500
THETA, SIGMA2, TAU2 = 0.8, 0.5, 0.6
KEYS = ["records", "mechanism", "epsilon", "delta"]


def records(seed, n, intercept=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(0.3 if intercept else 0.0, np.sqrt(TAU2), n)
    return {"x": x, "y": 0.5 * intercept + THETA * x + rng.normal(0, np.sqrt(SIGMA2), n)}


def party(
    seed=0, n=300, scale=6.0, bounds=((-2, 2), (-3, 3)), *, mechanism="laplace", squares=True, intercept=False,
    noise=True, features=("x",), target="y", privacy=None, **changes,
):  # fmt: skip
    """A simulated release: sums of one party's records with seeded noise, or without any."""
    limits = None if bounds is None else dict(zip((*features, target), bounds, strict=True))
    kind = {} if intercept else {"squares": squares}
    statistic = (RegressionStatistic if intercept else OriginStatistic)(
        features, target, **{"bounds": limits, "scaling": SCALING} | kind | changes
    )
    data = records(seed, n, intercept)
    sums = statistic.from_columns({target: data["y"]} | {name: data["x"] for name in features})
    rng = np.random.default_rng([seed, 1])
    scales = np.broadcast_to(scale, sums.shape)
    drawn = rng.laplace(size=sums.shape) if mechanism == "laplace" else rng.normal(size=sums.shape)
    z = dict(zip(statistic.names, (sums + noise * scales * drawn).tolist(), strict=True))
    by_entry = dict(zip(statistic.names, scales.tolist(), strict=True)) if np.ndim(scale) else float(scale)
    return Release(statistic, n // getattr(statistic, "averaged", 1), z, mechanism, by_entry, privacy, simulated=True)


def three(scale=6.0, intercept=False, squares=(True, False, True), noise=True):
    """One Laplace, one Gaussian, one Laplace; bounds and records of their own."""
    first = {} if intercept else {"squares": squares[0]}
    second, third = ({}, {}) if intercept else ({"squares": squares[1]}, {"squares": squares[2]})
    return [
        party(1, 300, scale, noise=noise, intercept=intercept, **first),
        party(2, 2000, 2 * scale, ((-4, 3), (-3, 5)), mechanism="gaussian", noise=noise, intercept=intercept, **second),
        party(3, 40, scale / 2, ((-1.5, 4), (-6, 2.5)), noise=noise, intercept=intercept, **third),
    ]


def fit(releases, **more):
    return dpjax.fit(releases, chains=CHAINS, draws=DRAWS, **more)


def agree(a, b, deviations=5.0):
    """Means within Monte Carlo error, and spreads about as near as chains of this length can tell."""
    for name, one in a.summary()["parameters"].items():
        other = b.summary()["parameters"][name]
        ess = [min(row["ess_bulk"], CHAINS * DRAWS) for row in (one, other)]
        error = np.sqrt(one["sd"] ** 2 / ess[0] + other["sd"] ** 2 / ess[1])
        assert abs(one["mean"] - other["mean"]) < deviations * error, name
        assert abs(np.log((one["q95"] - one["q05"]) / (other["q95"] - other["q05"]))) < 0.25, name


@pytest.fixture(scope="module")
def fitted():
    return fit(three())


# --- put together -------------------------------------------------------------------------------------------------


def test_parties_keep_their_units_noise_and_entries():
    found = gather(three())
    assert found.statistic.bounds == {"x": (-4, 4), "y": (-6, 6)} and found.statistic.squares
    np.testing.assert_allclose(found.half, [[2 / 4, 3 / 6], [1, 5 / 6], [1, 1]])
    assert not found.centre.any() and found.records.tolist() == [300, 2000, 40]
    assert found.mechanisms == ("laplace", "gaussian", "laplace")
    np.testing.assert_array_equal(found.present, [[1, 1, 1], [1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(found.scale, [[6, 6, 6], [12, 12, 1], [3, 3, 3]])
    assert found.z[1, 2] == 0
    np.testing.assert_array_equal(found.z[0], three()[0].z)


def test_parties_with_an_intercept_are_moved_into_the_widest_bounds():
    found = gather(three(intercept=True))
    assert found.statistic.bounds == {"x": (-4, 4), "y": (-6, 5)}
    np.testing.assert_allclose(found.centre, [[0, 0.5 / 5.5], [-0.5 / 4, 1.5 / 5.5], [1.25 / 4, -1.25 / 5.5]])
    np.testing.assert_allclose(found.half, [[2 / 4, 3 / 5.5], [3.5 / 4, 4 / 5.5], [2.75 / 4, 4.25 / 5.5]])


def test_norms_and_bounds_may_stand_side_by_side():
    norms = party(5, bounds=None, norms={"features": 2.0, "target": 8})
    found = gather([norms, party(6)])
    assert found.statistic.bounds == {"x": (-2, 2), "y": (-8, 8)} and found.statistic.norms is None
    np.testing.assert_allclose(found.half, [[1, 1], [1, 3 / 8]])


DIFFERENT = {
    "target": ({"target": "z"}, "differ in target: 'y' and 'z'"),
    "features": ({"features": ("w",)}, r"differ in features: \['x'\] and \['w'\]"),
    "more features": ({"features": ("x", "w"), "bounds": ((-1, 1),) * 3}, "differ in features"),
    "intercept": ({"intercept": True}, "differ in an intercept: False and True"),
    "scaling": ({"scaling": None}, f"differ in scaling: '{SCALING.replace('[', '.').replace(']', '.')}' and None"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_parties_of_other_regressions_are_refused_by_number(what):
    changes, message = DIFFERENT[what]
    with pytest.raises(InputError, match=f"parties 1 and 3 {message}"):
        dpjax.fit([party(1), party(2), party(3, **changes)])


def test_other_models_and_noise_are_refused_by_number():
    family = FamilyStatistic(family_named("poisson"), "clamp", (0, 9))
    other = Release(family, 50, {family.names[0]: 60}, "laplace", 9.0)
    with pytest.raises(InputError, match="party 2 released poisson"):
        dpjax.fit([party(1), other])
    moments = RegressionStatistic(["x"], "y", {"x": (-1, 1), "y": (-1, 1)}, SCALING, moments=True)
    full = Release(moments, 9, dict.fromkeys(moments.names, 1.0), "laplace", 1.0)
    with pytest.raises(InputError, match="third and fourth moments can only be fitted one by one"):
        dpjax.fit([party(1, intercept=True), full])
    with pytest.raises(InputError, match="at least one"):
        dpjax.fit([])
    with pytest.raises(InputError, match="not for several parties"):
        dpjax.fit([party(1), party(2)], method="gibbs")
    with pytest.raises(InputError, match="sum of squares of the target, which a party has not released"):
        dpjax.fit(three(), method="naive")


# --- files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for number, one in enumerate(three()):
        one.save(tmp_path / f"{number}.json")
    return tmp_path


def test_folders_and_files_may_be_mixed(folder):
    (folder / "more").mkdir()
    party(9).save(folder / "more" / "late.JSON")
    (folder / ".hidden.json").write_text("no release")
    (folder / "notes.txt").write_text("no release")
    (folder / "inside.json").mkdir()
    assert [path.name for path in release_files(folder)] == ["0.json", "1.json", "2.json"]
    given = [folder / "more" / "late.JSON", str(folder)]
    assert [one.records for one in load_parties(given)] == [300, 300, 2000, 40]
    assert load_parties([party(8), folder])[0] == party(8)


def test_one_release_counts_once(folder):
    """Given twice, in any way, it would count twice."""
    for given in ([folder / "0.json", folder / "0.json"], [folder, folder / "1.json"], [folder, str(folder) + "/."]):
        with pytest.raises(InputError, match=r"[01]\.json' is named twice"):
            dpjax.fit(given)
    os.symlink(folder / "2.json", folder / "3.json")
    with pytest.raises(InputError, match=r"3\.json' is named twice"):
        dpjax.fit(folder)
    (folder / "3.json").unlink()
    shutil.copy(folder / "1.json", folder / "3.json")
    with pytest.raises(InputError, match="parties 2 and 4 are one release given twice"):
        dpjax.fit(folder)
    with pytest.raises(InputError, match="parties 1 and 2 are one release given twice"):
        dpjax.fit([party(1), party(1)])


def test_a_broken_file_is_named(folder):
    (folder / "1.json").write_text((folder / "1.json").read_text().replace('"records": 2000', '"records": -5'))
    with pytest.raises(InputError, match=r"release file '.*1\.json': 'records' must be an integer from 1"):
        dpjax.fit(folder)
    (folder / "1.json").write_text("{")
    with pytest.raises(InputError, match=r"1\.json': is not JSON"):
        dpjax.fit([party(7), folder])
    with pytest.raises(InputError, match=r"absent\.json': cannot be read"):
        dpjax.fit([folder / "0.json", folder / "absent.json"])
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty' holds no release file"):
        dpjax.fit(folder / "empty")


# --- the posterior -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_order_of_parties_does_not_matter(fitted):
    first, second, third = three()
    agree(fitted, fit([third, first, second], seed=1))
    assert fitted.records == 2340 and not fitted.warnings()


def pooled(intercept):
    """All records of `three`, in the units of the widest bounds."""
    sizes = {1: 300, 2: 2000, 3: 40}
    every = [records(seed, n, intercept) for seed, n in sizes.items()]
    limits = [((-2, 2), (-3, 3)), ((-4, 3), (-3, 5)), ((-1.5, 4), (-6, 2.5))]
    rows = [
        np.stack([np.clip(one["x"], *x), np.clip(one["y"], *y)]) for one, (x, y) in zip(every, limits, strict=True)
    ]  # fmt: skip
    centre, half = (np.array([0, -0.5]), np.array([4, 5.5])) if intercept else (np.zeros(2), np.array([4.0, 6.0]))
    return (np.concatenate(rows, 1).T - centre) / half


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
def test_with_little_noise_it_is_the_conjugate_posterior_of_all_records(intercept):
    """Parties of other bounds and noise, pooled: means and spreads of the closed form. (The noise that is stated is
    small beside the sampling variation; none is drawn, as it would move the means by a fifth of their spread.)"""
    rows = pooled(intercept)
    found = fit(three(0.1, intercept, (True, True, True), noise=False))
    x = np.column_stack([np.ones(len(rows)), rows[:, 0]])[:, 0 if intercept else 1 :]
    prior = found.prior
    precision = np.array(prior["theta_precision"]) + x.T @ x
    mean = np.linalg.solve(precision, x.T @ rows[:, 1])  # the prior's mean is 0
    shape = prior["sigma2_shape"] + len(rows) / 2
    rate = prior["sigma2_scale"] + (rows[:, 1] @ rows[:, 1] - mean @ precision @ mean) / 2
    covariates, n = prior["covariates"], len(rows)
    between = 0.0
    if intercept:
        average, kappa = rows[:, 0].mean(), covariates["kappa"]
        between = -n * average**2 + kappa * n / (kappa + n) * (average - covariates["mean"][0]) ** 2
    psi = covariates["psi"][0][0] + rows[:, 0] @ rows[:, 0] + between
    spread = np.sqrt(rate / shape * np.diag(np.linalg.inv(precision)))
    laws = {f"theta[{1 - intercept + k}]": stats.t(2 * shape, mean[k], spread[k]) for k in range(len(mean))}
    laws["sigma2"] = stats.invgamma(shape, scale=rate)
    laws["tau2[1,1]"] = stats.invgamma((covariates["nu"] + n) / 2, scale=psi / 2)
    scaled = found.summary()["scaled"]
    for name, law in laws.items():
        row = scaled[name]
        error = law.std() / np.sqrt(min(row["ess_bulk"], CHAINS * DRAWS))
        assert abs(row["mean"] - law.mean()) < 5 * error, name
        assert row["sd"] == pytest.approx(law.std(), rel=0.15), name


@pytest.mark.slow
def test_the_units_of_a_release_do_not_matter():
    """The same sums in other bounds, with the same noise in the user's units."""
    tight, wide = ((-4, 3), (-6, 5)), ((-8, 5), (-3, 9))
    last = party(3, 40, 0.3, ((-8, 8), (-9, 9)), noise=False)
    factors = np.array([(4 / 8) ** 2, (4 / 8) * (6 / 9), (6 / 9) ** 2])
    narrow, wider = (party(1, 200, 2 * f, b, noise=False) for f, b in ((np.ones(3), tight), (factors, wide)))
    second = party(2, 200, 2.0, noise=False, mechanism="gaussian")
    np.testing.assert_allclose(narrow.z * factors, wider.z, rtol=1e-9)  # no record is outside of either
    agree(fit([narrow, second, last]), fit([wider, second, last], seed=1))


@pytest.mark.slow
def test_the_targets_squares_are_what_tells_the_residual_variance(fitted):
    without = fit(three(squares=(False, False, False)))
    width = lambda p: np.diff([p.summary()["parameters"]["sigma2"][q] for q in ("q05", "q95")])[0]
    assert width(without) > 3 * width(fitted)
    assert without.statistic.block()["squares"] is False and "squares" not in fitted.statistic.block()


@pytest.mark.slow
def test_two_hundred_parties_of_ten_to_a_million_records(tmp_path):
    sizes = np.round(np.geomspace(10, 1e6, 200)).astype(int)
    statistic = OriginStatistic(["a", "b"], "y", {"a": (-1, 1), "b": (-2, 2), "y": (-3, 3)}, SCALING)
    covariance = np.array([[0.2, 0.05, 0], [0.05, 0.1, 0], [0, 0, 0.1]])
    loading = np.eye(3)
    loading[2, :2] = 0.5, -0.4  # y = 0.5 a - 0.4 b + e
    covariance = loading @ covariance @ loading.T
    rng = np.random.default_rng(0)
    for j, n in enumerate(sizes):
        s = stats.wishart(n, covariance).rvs(random_state=rng)
        noise = rng.laplace(0, 6, 6) if j % 2 else rng.normal(0, 6, 6)
        z = s[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]] + noise
        Release(
            statistic, int(n), dict(zip(statistic.names, z.tolist(), strict=True)), "laplace" if j % 2 else "gaussian",
            6.0, simulated=True,
        ).save(tmp_path / f"{j:03d}.json")  # fmt: skip
    found = dpjax.fit(tmp_path)
    assert np.nanmax(found.diagnostics.rhat) < 1.05 and not found.warnings()
    assert len(found.parties) == 200 and found.records == sizes.sum()
    truth = dict(zip(found.names, [0.5, -0.4, 0.1, 0.2, 0.05, 0.1], strict=True))
    for name, row in found.summary()["scaled"].items():
        assert abs(row["mean"] - truth[name]) < 5 * row["sd"], name
        assert row["sd"] < 3e-3, name  # and the parties' records are all used


# --- what is reported -----------------------------------------------------------------------------------------------


def guarantee(epsilon, delta=0.0, norm="l1"):
    return Privacy(epsilon, delta, "replace-one", norm, 3.0)


def test_the_guarantee_is_that_of_the_weakest_party():
    stated = [guarantee(0.5), guarantee(0.2, 1e-6, "l2"), guarantee(2.0)]
    parties = [
        party(seed, mechanism="gaussian" if p.delta else "laplace", privacy=p) for seed, p in enumerate(stated)
    ]  # fmt: skip
    found = fit(parties)
    assert (found.epsilon, found.delta, found.adjacency) == (2.0, 1e-6, "replace-one")
    told = found.summary()["parties"]
    assert [list(one) for one in told] == [KEYS] * 3
    assert told[1] == {"records": 300, "mechanism": "gaussian", "epsilon": 0.2, "delta": 1e-6}
    one_silent = fit([*parties[:2], party(2)])
    assert np.isnan(one_silent.epsilon) and one_silent.adjacency == "not stated"
    assert one_silent.summary()["parties"][2]["epsilon"] is None


def test_summary_and_file_hold_the_parties_and_serve_predictions(fitted, tmp_path):
    summary = fitted.summary()
    assert summary["mechanism"] == "gaussian, laplace" and summary["intercept"] is False
    assert summary["bounds"] == {"x": [-4, 4], "y": [-6, 6]}
    path = fitted.save(tmp_path / "posterior.nc")
    import h5netcdf

    with h5netcdf.File(path, "r") as file:
        group = file["posterior"]
        attributes = dict(group.attrs)
        assert group.variables["theta"].shape == (CHAINS, DRAWS, 1)
    assert json.loads(attributes["parties"]) == summary["parties"]
    assert [list(one) for one in summary["parties"]] == [KEYS] * 3 and int(attributes["intercept"]) == 0
    new = {"x": [0.0, 1.0, -2.0, 9.0]}
    now, later = fitted.predict(new), load_posterior(path).predict(new)
    np.testing.assert_array_equal(now.mean, later.mean)
    assert now.mean[0] == 0 and now.line_sd[0] == 0 and now.sd[0] > 0.3
    assert now.intervals(0.9).line_low[0] == now.intervals(0.9).line_high[0] == 0
    slope = summary["parameters"]["theta[1]"]
    np.testing.assert_allclose(now.mean, np.array(new["x"]) * slope["mean"], rtol=1e-5)
    assert "outside of the release's bounds of x" in now.notes()[0] and now.notes() == later.notes()
    assert "theta[1]" in fitted.table() and "theta[0]" not in fitted.table() and "mu_x" not in fitted.table()
