"""`run`: configs, folders, resuming, and that the files say what is printed."""

import dataclasses
import json
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpjax
from dpjax._base import runtime
from dpjax._base.text import show_number
from dpjax.cli.app import main
from dpjax.errors import ConvergenceWarning, InputError, PrivacyWarning
from dpjax.mechanisms import laplace as _noise
from dpjax.releases.release import Release
from dpjax.runner import checks as _experiment_checks
from dpjax.runner import config as _config
from dpjax.runner import fingerprint, work
from dpjax.runner import run as experiment
from dpjax.runner.methods import sampler_settings
from dpjax.statistics.base import SCALING, to_unit
from dpjax.statistics.regression import RegressionStatistic

ROOT = Path(dpjax.__file__).parents[1]
CONFIG = """
name = "small"
seed = 5

[data]
csv = "table.csv"
data_is_public = true

[release]
target = "y"
features = ["x"]
epsilon = 1.0
[release.bounds]
x = [0, 10]
y = [-5, 25]

[fit]
methods = ["non-private", "naive"]
chains = 4
draws = 60
prior = "prior.toml"

[fit.method.naive]
draws = 200

[calibration]
records = [50, 200]
epsilon = 1
trials = 15
methods = ["naive", "non-private"]
draws = 60
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.uniform(1, 9, 80)
    rows = [f"{a:.5f},{2 * a + rng.normal(0, 3):.5f}" for a in x]
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    (tmp_path / "prior.toml").write_text("sigma2_shape = 4\n")
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(**changes):
    """The config as a mapping, with sections changed (None removes one)."""
    content = tomllib.loads(CONFIG)
    for name, value in changes.items():
        if value is None:
            del content[name]
        elif isinstance(value, dict):
            content[name] = {k: v for k, v in (content.get(name, {}) | value).items() if v is not None}
        else:
            content[name] = value
    return content


def files(path):
    return sorted(str(item.relative_to(path)) for item in path.rglob("*") if item.is_file())


# --- configs ---


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"colour": "red"}, "unknown key colour"),
        ({"release": {"epsilom": 1}}, "unknown key release.epsilom"),
        ({"fit": {"method": {"naive": {"draw": 5}}}}, "unknown key fit.method.*.draw"),
        ({"name": None}, "name is missing"),
        ({"name": "../up"}, "name"),
        ({"seed": -1}, "seed"),
        ({"seed": "one"}, "seed"),
        ({"release": {"epsilon": None}}, "release.epsilon is missing"),
        ({"release": {"bounds": None}}, "[release]: bounds"),
        ({"release": {"target": None}}, "[release]: target"),
        ({"release": {"model": "ridge"}}, "[release]: model 'ridge'"),
        ({"release": {"rule": "clamp"}}, "[release]: rule"),
        ({"release": {"delta": 1e-6}}, "[release]: delta"),
        ({"release": {"mechanism": "gaussian"}}, "[release]: delta"),
        ({"release": {"mechanism": "discrete-laplace"}}, "[release]: mechanism"),
        ({"release": {"options": {"epsilon": 9.0}}}, "release.options: epsilon"),
        ({"release": {"epsilon": "1"}}, "release.epsilon"),
        ({"release": {"file": "r.json"}}, "exclude each other"),
        ({"release": {"bounds": {"x": [0, 10, 20], "y": [0, 1]}}}, "release.bounds"),
        ({"release": None}, "[fit] needs a [release]"),
        ({"release": None, "fit": None}, "[data] is not used"),
        ({"data": None}, "needs [data]"),
        ({"data": {"builtin": "diabetes"}}, "one of csv and builtin"),
        ({"data": {"builtin": "iris", "csv": None}}, "diabetes"),
        ({"data": {"data_is_public": False}}, "data_is_public"),
        ({"data": {"data_is_public": "yes"}}, "data.data_is_public"),
        ({"data": None, "release": None, "fit": None, "calibration": None}, "nothing to do"),
        ({"fit": {"methods": []}}, "fit.methods"),
        ({"fit": {"methods": ["magic"]}}, "magic"),
        ({"fit": {"methods": ["naive", "naive"]}}, "twice"),
        ({"fit": {"chains": 0}}, "fit.chains"),
        ({"fit": {"thin": 7}}, "fit.thin"),
        ({"fit": {"method": {"gibbs": {}}}}, "not among fit.methods"),
        ({"fit": {"methods": None, "method": {"gibbs": {}}}}, "not among fit.methods"),
        ({"fit": {"methods": ["exact"], "method": None}}, "fit.methods: method 'exact'"),
        ({"fit": {"methods": ["naive-untruncated"], "method": None}}, "fit.methods: method 'naive-untruncated'"),
        ({"calibration": {"epsilon": [1, 0]}}, "calibration.epsilon"),
        ({"calibration": {"records": 0}}, "calibration.records"),
        ({"calibration": {"records": []}}, "at least one cell"),
        ({"calibration": {"records": [5, 5]}}, "twice"),
        ({"calibration": {"records": None}}, "calibration.records is missing"),
        ({"calibration": {"model": "ridge"}}, "calibration: model 'ridge'"),
        ({"calibration": {"model": "binomial", "rule": "clamp"}}, "calibration: binomial takes no"),
        ({"calibration": {"model": "binomial", "methods": ["gibbs-literal"]}}, "calibration: method 'gibbs-literal'"),
        ({"calibration": {"model": "gamma"}}, "calibration: gamma needs the option 'shape'"),
        ({"calibration": {"mechanism": "gaussian"}}, "calibration: delta"),
        ({"calibration": {"simulate": "dream"}}, "calibration: simulate"),
        ({"calibration": {"simulate": "clt", "clip": True}}, "clip"),
        ({"calibration": {"bounds": [1, -1]}}, "bounds"),
        ({"calibration": {"sensitivity": -1}}, "sensitivity"),
    ],
)
def test_configs_that_are_refused(folder, change, says):
    with pytest.raises(InputError) as error:
        dpjax.run(small(**change), folder / "out")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": {"csv": "none.csv"}}, "none.csv"),
        ({"release": {"features": ["z"], "bounds": {"z": [0, 1], "y": [0, 1]}}}, "'z' is not in the table"),
        ({"fit": {"prior": "none.toml"}}, "none.toml"),
        ({"fit": {"prior": {"sigma2": 1}}}, "sigma2"),
    ],
)
def test_files_are_read_before_any_work(folder, change, says):
    with pytest.raises(InputError, match=says):
        dpjax.run(small(**change), folder / "out")
    assert not (folder / "out").exists()


def test_command_refuses_in_one_line(folder, capsys):
    (folder / "bad.toml").write_text(CONFIG.replace("epsilon = 1.0", "epsilon = 1.0\nepsilom = 2"))
    assert main(["run", "bad.toml", "--output", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == "error: config bad.toml: unknown key release.epsilom\n"
    assert main(["run", "config.toml", "--output", "table.csv"]) == 2
    assert main(["run", "config.toml", "--output", "."]) == 2
    assert "holds no results" in capsys.readouterr().err
    assert main(["run", "config.toml", "--output", ".", "--force"]) == 2
    assert main(["run", "config.toml", "--output", "out", "--force", "--resume"]) == 2
    assert not (folder / "out").exists()


def test_committed_configs_are_valid():
    """Every experiment that the repository ships, without running it."""
    paths = sorted((ROOT / "experiments").rglob("*.toml"))
    assert len(paths) >= 4
    for path in paths:
        if "name" in tomllib.loads(path.read_text()):
            _config.load(path)
    quickstart, _ = _config.load(ROOT / "experiments" / "quickstart.toml")
    assert quickstart.data.data_is_public and quickstart.release.epsilon == 1.0
    assert set(quickstart.fit.methods) == {"non-private", "naive", "gibbs", "collapsed"}
    assert quickstart.calibration.trials * quickstart.calibration.chains >= 2000
    committed = Release.load(ROOT / "experiments" / "quickstart_release.json")
    assert not committed.simulated and committed.records == 442
    assert committed.bounds == {"bmi": (15, 45), "progression": (0, 350)}


def test_built_in_table_is_the_raw_one():
    pytest.importorskip("sklearn")
    table = _experiment_checks.builtin_table()
    assert {"bmi", "progression", "age", "s6"} <= set(table)
    assert len(table["bmi"]) == 442 and 20 < table["bmi"].mean() < 30


# --- runs ---


@pytest.mark.slow
def test_run_writes_what_it_prints_and_resumes(folder, capsys, monkeypatch):
    real = work.calibrate_study

    def stop(study, method, **options):
        if method == "non-private":
            raise KeyboardInterrupt
        return real(study, method, **options)

    monkeypatch.setattr(work, "calibrate_study", stop)
    words = ["run", "config.toml", "--output", "out"]
    assert main(words) == 130
    out, err = capsys.readouterr()
    assert err.splitlines()[-1].startswith("interrupted: ") and "adds its epsilon" in err
    target = folder / "out"
    assert files(target) == [
        "parts/calibration_naive.npz",
        "parts/posterior_naive.npz",
        "parts/posterior_non-private.npz",
        "parts/wall_seconds.npz",
        "release.json",
        "run.json",
    ]
    drawn = (target / "release.json").read_bytes()
    part = (target / "parts" / "posterior_naive.npz").read_bytes()

    monkeypatch.setattr(work, "calibrate_study", real)
    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("epsilon = 1.0", "epsilon = 2.0"))
    assert main([*words, "--resume"]) == 2
    assert "another table, [data] or [release]" in capsys.readouterr().err
    (folder / "config.toml").write_text(config)
    assert main([*words, "--resume"]) == 0  # naive and non-private are comparisons
    out, err = capsys.readouterr()
    assert "adds its epsilon" not in err  # no second draw
    assert (target / "release.json").read_bytes() == drawn
    assert (target / "parts" / "posterior_naive.npz").read_bytes() == part
    assert not [name for name in files(target) if ".dpjax-" in name]
    check_folder(target, out)

    # a third time everything is there; nothing is computed
    monkeypatch.setattr(work, "calibrate_study", lambda *_, **__: pytest.fail("ran again"))
    monkeypatch.setattr(work, "fit", lambda *_, **__: pytest.fail("ran again"))
    before = json.loads((target / "results.json").read_text())
    again = dpjax_run_quietly("config.toml", target, resume=True)
    assert again.to_dict()["posteriors"].keys() == before["posteriors"].keys()
    assert json.loads((target / "results.json").read_text())["calibration"] == before["calibration"]

    # --force starts again and leaves nothing of the old run
    monkeypatch.undo()
    (target / "posterior_gibbs.nc").write_text("old")
    config = small(fit=None, calibration=None, data={"csv": str(folder / "table.csv")})
    with pytest.warns(PrivacyWarning):
        dpjax.run(config, target, force=True)
    assert files(target) == ["parts/wall_seconds.npz", "release.json", "results.json", "results.txt", "run.json"]
    assert (target / "release.json").read_bytes() != drawn


def dpjax_run_quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return dpjax.run(*arguments, **options)


def check_folder(target, out):
    """Every number that was printed is in results.json, and every file is there."""
    results = json.loads((target / "results.json").read_text())
    assert {"versions", "machine", "config", "seconds"} <= set(results)
    assert results["versions"]["jax"] and results["config"]["fit"]["method"]["naive"]["draws"] == 200
    text = (target / "results.txt").read_text()
    assert text in out
    naive = results["posteriors"]["naive"]
    assert naive["draws"] == 200 and naive["prior"]["sigma2_shape"] == 4
    for rows in (item["parameters"] for item in results["posteriors"].values()):
        for row in rows.values():
            for key in ("mean", "sd", "prior_sd", "q05", "q95"):
                assert f" {show_number(row[key])}" in text
    for study in results["calibration"].values():
        for cell in study["cells"]:
            for name, row in cell["parameters"].items():
                assert f"{name}  {row['ks']:.4f}" in text
    assert json.loads((target / "summary_naive.json").read_text()) == naive
    assert json.loads((target / "calibration_naive.json").read_text()) == results["calibration"]["naive"]
    pictures = ("posteriors.png", "traces.png", "ks.png", "mmd.png")
    for name in (*pictures, "calibration_n50_eps1.png", "calibration_n200_eps1.png"):
        assert (target / name).read_bytes().startswith(b"\x89PNG")
    assert {"posterior_naive.nc", "posterior_non-private.nc"} <= set(files(target))


@pytest.mark.slow
def test_run_from_a_release_file_without_output(folder):
    """A committed release, its public table, and the exact statistics of that table."""
    rows = np.genfromtxt(folder / "table.csv", delimiter=",", names=True)
    bounds = {"x": (0.0, 10.0), "y": (-5.0, 25.0)}
    statistic = RegressionStatistic(("x",), "y", bounds, SCALING)
    exact = statistic.from_records(to_unit(rows["x"], *bounds["x"])[:, None], to_unit(rows["y"], *bounds["y"]))
    published = Release(
        statistic=statistic,
        records=80,
        statistics=dict(zip(statistic.names, (exact + 3.0).tolist(), strict=True)),
        mechanism="laplace",
        noise_scale=5.0,
    )
    published.save(folder / "given.json")
    content = small(release=None, calibration=None)
    content["release"] = {"file": "given.json"}
    results = dpjax_run_quietly(content)
    assert results.release == published and set(results.posteriors) == {"non-private", "naive"}
    slope = results.posteriors["non-private"].summary()["parameters"]["theta[1]"]["mean"]
    assert slope == pytest.approx(np.polyfit(rows["x"], rows["y"], 1)[0], abs=0.15)
    assert results.trusted
    raw = dataclasses.replace(published, statistic=dataclasses.replace(statistic, scaling=None))
    raw.save(folder / "raw.json")
    with pytest.raises(InputError, match=r"fit\.prior"):
        dpjax.run(
            small(release=None, calibration=None, fit={"prior": None}) | {"release": {"file": "raw.json"}},
            folder / "raw",
        )
    assert not (folder / "raw").exists()
    (folder / "other.csv").write_text("x,y\n1,2\n3,4\n")
    with pytest.raises(InputError, match="not the same table"):
        dpjax.run(
            small(release=None, calibration=None, data={"csv": "other.csv"}) | {"release": {"file": "given.json"}}
        )


def test_doubts_set_trust_only_for_methods_that_claim_to_be_right():
    results = experiment.Results("x", {})
    results.doubts = {"gibbs": ["did not mix"], "collapsed": []}
    assert results.trusted and "did not mix" in results.table()
    results.doubts["collapsed"] = ["did not mix"]
    assert not results.trusted


def test_fingerprints_see_public_files_only(folder):
    def prints(**changes):
        return fingerprint.fingerprint(*_config.load(small(**changes)))

    private = {"data": {"data_is_public": False}, "fit": {"methods": ["naive"]}}
    first, hidden = prints(), prints(**private)
    (folder / "prior.toml").write_text("sigma2_shape = 5\n")
    for before, now in ((first, prints()), (hidden, prints(**private)), (first, prints(seed=9))):
        assert now.whole != before.whole and now.release == before.release
    assert prints(release={"epsilon": 2.0}).release != first.release
    first, hidden = prints(), prints(**private)
    with (folder / "table.csv").open("a") as table:
        table.write("5,10\n")
    assert prints(**private) == hidden
    assert prints().release != first.release and prints().whole != first.whole


RELEASE_ONLY = {"fit": None, "calibration": None}
SETTINGS = [
    ("gibbs", {"burn_im": 5}, "burn_im"),
    ("gibbs", {"burn_in": "5"}, "burn_in"),
    ("gibbs", {"burn_in": -1}, "burn_in"),
    ("gibbs", {"burn_in": True}, "burn_in"),
    ("gibbs", {"project": 1}, "project"),
    ("gibbs", {"name": "x"}, "name"),
    ("collapsed", {"target": 1.5}, "target"),
    ("collapsed", {"target": "high"}, "target"),
    ("collapsed", {"max_step": float("nan")}, "max_step"),
    ("collapsed", {"dispersion": float("inf")}, "dispersion"),
    ("collapsed", {"warmup": 30}, "warmup"),
    ("collapsed", {"leapfrogs": 2.5}, "leapfrogs"),
    ("naive", {"burn_in": 5}, "burn_in"),
]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"release": {"epsilon": value}}, "epsilon") for value in (0.0, -1.0, float("nan"), float("inf"), 1e-320)]
    + [
        ({"release": {"bounds": {"x": pair, "y": [-5, 25]}}}, "bounds")
        for pair in ([10, 0], [1, 1], [float("nan"), 1], [0, float("inf")])
    ]
    + [
        ({"release": {"bounds": {"x": [0, 10]}}}, "bounds"),
        ({"release": {"bounds": {"x": [0, 10], "y": [0, 1], "z": [0, 1]}}}, "bounds"),
        ({"release": {"mechanism": "cauchy"}}, "mechanism"),
        ({"release": {"adjacency": "add-remove"}}, "adjacency"),
        ({"release": {"features": []}}, "features"),
        ({"release": {"features": ["x", "x"]}}, "x"),
        ({"release": {"target": "x"}}, "x"),
        ({"calibration": {"chains_per_batch": 1}}, "calibration.chains_per_batch"),
        ({"calibration": {"chains_per_batch": 4, "method": {"naive": {"chains": 8}}}}, "calibration.chains_per_batch"),
        ({"calibration": {"stream": True, "draws": 1}}, "calibration.draws"),
        ({"release": {"epsilon": 1e20}}, "[release]: epsilon = 1e+20"),
        ({"calibration": {"epsilon": 1e-320}}, "calibration.epsilon"),
        ({"calibration": {"epsilon": [1, 1e20]}}, "calibration.epsilon"),
        ({"calibration": {"bounds": [-1e200, 1e200]}}, "bounds"),
        ({"calibration": {"records": 2**60}}, "calibration.records"),
        ({"calibration": {"prior": {"sigma2_shape": -1}}}, "sigma2_shape"),
        ({"fit": {"method": {"naive": {"thin": 30}}}}, "fit.method.naive.thin"),
    ]
    + [
        ({part: {key: size}}, f"{part}.{key}")
        for part, keys in (("fit", ("chains", "draws", "thin")), ("calibration", ("chains", "draws", "thin", "trials")))
        for key in keys
        for size in (10**20, 2**31, 0)
    ]
    + [
        ({"fit": {"chains": 2**31 - 1}}, "fit.chains"),  # times draws
        ({"fit": {"draws": 2**31 - 1, "thin": 20}}, "fit.draws"),
        ({"fit": {"method": {"naive": {"draws": 10**20}}}}, "fit.method.naive.draws"),
        ({"calibration": {"trials": 2**31 - 1}}, "calibration.chains"),
        ({"calibration": {"chains_per_batch": 10**20}}, "calibration.chains_per_batch"),
        ({"calibration": {"features": 10**20}}, "features"),
        ({"calibration": {"parties": 10**20}}, "parties"),
    ]
    + [
        ({part: {"methods": [method], "method": {method: {"settings": settings}}}}, f"{part}.method.{method}.settings")
        for part in ("fit", "calibration")
        for method, settings, _ in SETTINGS
    ],
)
def test_everything_is_checked_before_the_noise(folder, monkeypatch, change, says):
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    before = files(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as error:
            dpjax.run(small(**change), folder / "out")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert files(folder) == before and not (folder / "out").exists()


@pytest.mark.parametrize(("method", "settings", "says"), SETTINGS)
def test_settings_that_are_refused_are_named(method, settings, says):
    with pytest.raises(InputError, match=says):
        sampler_settings(method, settings)


def test_settings_get_their_types():
    typed = sampler_settings("collapsed", {"jitter": 0, "leapfrogs": 3})
    assert typed == {"jitter": 0.0, "leapfrogs": 3} and isinstance(typed["jitter"], float)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["resume", "force"])
def test_a_changed_config_costs_no_second_release(folder, monkeypatch, capsys, how):
    """Only another table, [data] or [release] does."""
    target = folder / "out"
    private = {"data": {"data_is_public": False}, "calibration": None}
    one = small(**private, fit={"methods": ["naive"]})
    with pytest.warns(PrivacyWarning):
        dpjax_run_quietly(one, target)
    drawn = (target / "release.json").read_bytes()
    monkeypatch.setattr(_noise, "add_laplace_noise", lambda *_: pytest.fail("noise was drawn"))
    changed = small(**private, fit={"methods": ["naive"], "draws": 80, "method": None}, seed=8, name="other")
    with pytest.warns(PrivacyWarning, match="its release is kept"):
        results = dpjax_run_quietly(changed, target, **{how: True})
    assert results.posteriors["naive"].draws.shape[1] == 80
    assert (target / "release.json").read_bytes() == drawn
    assert json.loads((target / "run.json").read_text())["name"] == "other"
    # what the new config does not name is gone
    with pytest.warns(PrivacyWarning, match="its release is kept"):
        dpjax_run_quietly(small(**private | {"fit": None}), target, **{how: True})
    assert files(target) == ["parts/wall_seconds.npz", "release.json", "results.json", "results.txt", "run.json"]
    # the next one is the same run again: nothing to say
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpjax.run(small(**private | {"fit": None}), target, resume=True)
    assert (target / "release.json").read_bytes() == drawn


@pytest.mark.slow
def test_resume_refuses_another_public_table_and_other_studies(folder):
    target = folder / "out"
    with pytest.warns(PrivacyWarning):
        dpjax.run(small(**RELEASE_ONLY), target)
    drawn = (target / "release.json").read_bytes()
    table = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(table.replace("\n", "\n5,10\n", 1))
    for content in (small(**RELEASE_ONLY), small(calibration=None)):
        with pytest.raises(InputError, match="another table"):
            dpjax.run(content, target, resume=True)
    assert (target / "release.json").read_bytes() == drawn
    study = {"data": None, "release": None, "fit": None}
    dpjax_run_quietly(small(**study), folder / "study")
    with pytest.raises(InputError, match="another config"):
        dpjax.run(small(**study, seed=6), folder / "study", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["empty", "cut", "text", "changed", "other"])
def test_broken_parts_are_named(folder, capsys, damage):
    private = CONFIG.replace("data_is_public = true", "").replace('"non-private", ', "").replace(', "non-private"', "")
    (folder / "config.toml").write_text(private)
    words = ["run", "config.toml", "--output", "out", "--resume"]
    assert main(words) == 0
    capsys.readouterr()
    for name in ("posterior_naive.npz", "calibration_naive.npz"):
        path = folder / "out" / "parts" / name
        good = path.read_bytes()
        middle = len(good) // 2
        broken = {
            "empty": b"",
            "cut": good[:middle],
            "text": b"not an archive",
            "changed": good[: middle - 50] + bytes(100) + good[middle + 50 :],
        }
        if damage == "other":
            np.savez(path, meta=np.array("{}"))
        else:
            path.write_bytes(broken[damage])
        before = {item: (folder / "out" / item).read_bytes() for item in files(folder / "out")}
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and name in err and "remove it" in err
        assert before == {item: (folder / "out" / item).read_bytes() for item in files(folder / "out")}
        path.write_bytes(good)


def test_advice_inside_run_names_keys_not_options(monkeypatch):
    one = SimpleNamespace(warnings=lambda options=True: ["run more draws (--draws)" if options else "run more draws"])
    results, section = experiment.Results("x", {}), SimpleNamespace(methods=["naive"])
    prepared, parts = SimpleNamespace(posteriors={"naive": one}, calibrations={"naive": one}), work.Parts
    monkeypatch.setattr(parts, "next", lambda *_: {})
    bare = object.__new__(parts)
    results.release = dpjax.Release.__new__(dpjax.Release)
    with pytest.warns(ConvergenceWarning):
        work.fit_all.__wrapped__(section, 0, results, prepared, None, None, bare, None)
        work.calibrate_all.__wrapped__(section, 0, results, prepared, None, bare, None)
    assert results.doubts["naive"] == ["naive: run more draws", "calibration of run more draws"]


@pytest.mark.slow
def test_advice_names_options_only_for_the_command(folder):
    result = dpjax.calibrate("exponential", records=20, epsilon=0.1, trials=2, method="naive", draws=8, chains=2)
    said, plain = result.warnings(), result.warnings(options=False)
    assert said and [line.replace(" (--draws)", "").replace(" (--chains)", "") for line in said] == plain


def test_cache_folder_can_be_moved_and_switched_off(monkeypatch, tmp_path):
    monkeypatch.setenv("DPJAX_CACHE", str(tmp_path / "cache"))
    assert runtime.cache_folder() == tmp_path / "cache"
    for word in ("", "off", "0"):
        monkeypatch.setenv("DPJAX_CACHE", word)
        assert runtime.cache_folder() is None
    monkeypatch.delenv("DPJAX_CACHE")
    assert "dpjax" in str(runtime.cache_folder())


def test_no_home_folder_is_no_cache(monkeypatch):
    def nobody(*_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    for name in ("DPJAX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert runtime.cache_folder() is None
    monkeypatch.setenv("DPJAX_CACHE", "~nosuchuser/x")
    with pytest.raises(InputError, match="DPJAX_CACHE"):
        runtime.cache_folder()


FAMILY = """
name = "waiting"
[data]
csv = "waiting.csv"
data_is_public = true
[release]
model = "exponential"
target = "minutes"
bounds = [0, 4]
rule = "redact"
epsilon = 1.0
[fit]
methods = ["exact", "non-private"]
draws = 100
prior = { shape = 3 }
[calibration]
model = "exponential"
bounds = [0, 4]
rule = "redact"
records = [40, 400]
epsilon = 1
trials = 10
draws = 60
methods = ["naive-untruncated"]
"""


@pytest.mark.slow
def test_a_family_runs_from_release_to_calibration(folder, capsys):
    minutes = np.random.default_rng(0).exponential(2.0, 300)
    (folder / "waiting.csv").write_text("\n".join(["minutes", *map(str, minutes)]) + "\n")
    (folder / "waiting.toml").write_text(FAMILY)
    assert main(["run", "waiting.toml", "--output", "out"]) in (0, 1)
    out = capsys.readouterr().out
    results = json.loads((folder / "out" / "results.json").read_text())
    # the non-private posterior is of all records, those outside the bounds too: Gamma(3 + 300, 0.5 + sum) or so
    rate = results["posteriors"]["non-private"]["parameters"]["rate"]["mean"]
    assert rate == pytest.approx(300 / minutes.sum(), rel=0.03)
    assert results["posteriors"]["exact"]["truncation"] == {"rule": "redact", "bounds": [0, 4]}
    assert results["posteriors"]["exact"]["prior"]["shape"] == 3
    study = results["calibration"]["naive-untruncated"]
    assert study["settings"]["sensitivity"] == 4 and study["settings"]["truncation"]["rule"] == "redact"
    assert "normal law of the sum" in out and "exponential, rule redact, bounds of x 0:4" in out
    assert {"posteriors.png", "traces.png", "ks.png", "mmd.png", "calibration_n40_eps1.png"} <= set(
        files(folder / "out")
    )
    # the parts are read again: nothing else to do
    before = (folder / "out" / "release.json").read_bytes()
    assert main(["run", "waiting.toml", "--output", "out", "--resume"]) in (0, 1)
    assert (folder / "out" / "release.json").read_bytes() == before
    again = json.loads((folder / "out" / "results.json").read_text())
    assert again["posteriors"] == results["posteriors"] and again["calibration"] == results["calibration"]


def test_methods_default_to_the_models(folder):
    study = {"model": "binomial", "methods": None, "method": None, "trials": 5, "mmd": False}
    prepared = _experiment_checks.Prepared(
        *_config.load(small(fit={"methods": None, "method": None}, calibration=study))
    )
    assert prepared.study.methods == ["exact"] and prepared.fit.methods == ["collapsed"]


@pytest.mark.slow
def test_methods_that_report_fewer_parameters_stand_beside_the_others(folder, monkeypatch):
    """plug-in has no mu_x and tau2: tables and pictures show what there is."""
    release = {"moments": True, "target": "y", "features": ["x"], "epsilon": 50.0}
    release["bounds"] = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    content = {"name": "both", "data": {"csv": "table.csv"}, "release": release}
    content["fit"] = {"methods": ["plug-in", "naive"], "chains": 2, "draws": 200}
    rng = np.random.default_rng(0)
    x = rng.uniform(size=200)
    lines = ["x,y", *(f"{a},{b}" for a, b in zip(x, 0.3 + 0.4 * x, strict=True))]
    monkeypatch.chdir(folder)
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dpjax.run(content, folder / "both")
    assert results.posteriors["plug-in"].names == ("theta[0]", "theta[1]", "sigma2")
    text = (folder / "both" / "results.txt").read_text()
    assert text.count("\ntau2[1,1]") == 1 and (folder / "both" / "posteriors.png").exists()


def test_keys_that_came_later_do_not_change_the_hash_of_older_configs():
    """A folder of an older version must be known again, or its release would be drawn, and paid for, once more."""
    release = {"target": "y", "features": ["x"], "bounds": {"x": [0.0, 1.0], "y": [0.0, 1.0]}, "epsilon": 1.0}
    content = {"name": "pinned", "data": {"csv": "t.csv"}, "release": release}
    content |= {"fit": {"methods": ["naive"]}, "calibration": {"records": 100, "epsilon": 0.5}}
    prints = fingerprint.fingerprint(_config.load(content)[0], Path())
    assert prints.release == "a357b68b97c382013ebe2fec587a669c7e7579df9b12a9eddc99bdb9d45cc8cc"
    assert prints.whole == "774f7cbc3254dfbd29b2125c4288eebdd31f4e267eadfdd38d34b6915f1ceba0"
    changed = _config.load(content | {"release": release | {"moments": True}})[0]
    assert fingerprint.fingerprint(changed, Path()).release != prints.release


def test_individual_cannot_stream_and_says_so_before_a_folder_is_made(folder):
    study = {"records": 10, "epsilon": 1.0, "trials": 2, "methods": ["individual"], "stream": True}
    with pytest.raises(InputError, match=r"calibration.stream: individual keeps its draws"):
        dpjax.run({"name": "s", "calibration": study}, folder / "out")
    assert not (folder / "out").exists()
    study |= {"stream": False, "method": {"individual": {"settings": {"covariates": "x"}}}}
    with pytest.raises(InputError, match="no setting 'covariates'"):
        dpjax.run({"name": "s", "calibration": study}, folder / "out")
