"""Files that the first version wrote are still read, and mean what they meant."""

import json
import math
import shutil

import numpy as np
import pytest

import dpjax
from dpjax.releases.release import Release, describe_problems
from dpjax.runner import config as _config
from tests.golden import stored

RELEASES = sorted(path.stem for path in stored.OLD.glob("*.json"))
#: Means and standard deviations of all draws in each file, in the user's units, by parameter.
POSTERIORS = json.loads((stored.FOLDER / "old_posteriors.json").read_text())


@pytest.fixture
def read(request):
    return dpjax.load_posterior(stored.OLD / f"{request.param}.nc")


def test_there_is_a_file_of_every_kind():
    assert set(RELEASES) == {*stored.RELEASES, "regression-other"}
    assert (
        set(POSTERIORS) == {path.stem for path in stored.OLD.glob("*.nc")} == {"regression", "exponential", "parties"}
    )


@pytest.mark.parametrize("name", RELEASES)
def test_releases(name):
    path = stored.OLD / f"{name}.json"
    written = json.loads(path.read_text())
    assert describe_problems(path) == []
    read = Release.load(path)
    content = read.to_dict()
    missing = written.keys() - content.keys()
    assert not missing and {key: content[key] for key in written} == written  # fields may come, none may go
    assert read.records == written["records"] and read.kind == written["model"]["kind"]
    assert dict(zip(read.names, read.z, strict=True)) == written["statistics"]
    scale = written["mechanism"]["scale"]
    scales = scale if isinstance(scale, dict) else dict.fromkeys(written["statistics"], scale)
    assert dict(zip(read.names, read.scale, strict=True)) == scales


@pytest.mark.parametrize(("read", "name"), [(name, name) for name in POSTERIORS], indirect=["read"])
def test_posteriors(read, name):
    rows = read.summary()["parameters"]
    assert list(rows) == list(POSTERIORS[name])
    for parameter, (mean, sd) in POSTERIORS[name].items():
        draws = read.user_draws[..., read.names.index(parameter)]
        assert math.isclose(draws.mean(), mean, rel_tol=1e-6) and math.isclose(draws.std(), sd, rel_tol=1e-6)
        assert all(np.isfinite(rows[parameter][key]) for key in ("mean", "sd", "q05", "q95", "rhat", "prior_sd"))
    assert all(parameter in read.table() for parameter in rows)
    assert "no digest" not in " ".join(read.notes) and "earlier version" not in " ".join(read.notes)
    assert read.epsilon > 0 and read.draws.shape[:2] == (2, 50)


@pytest.mark.parametrize("read", ["regression", "parties"], indirect=True)
def test_predictions_from_an_old_posterior(read):
    prediction = read.predict({"x": [1.5, 2.5]})
    theta = [read.user_draws[..., read.names.index(f"theta[{k}]")].ravel() for k in range(2)]
    np.testing.assert_allclose(prediction.mean, [(theta[0] + theta[1] * x).mean() for x in (1.5, 2.5)], rtol=1e-6)
    assert (prediction.sd > prediction.line_sd).all() and (prediction.line_sd > 0).all()


def test_config(tmp_path):
    shutil.copy(stored.OLD / "experiment.toml", tmp_path)
    columns = stored.table()
    rows = [f"{x!r};{y!r}" for x, y in zip(columns["x"], columns["y"], strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["x;y", *rows]) + "\n")
    config, folder = _config.load(tmp_path / "experiment.toml")
    assert folder == tmp_path and (config.name, config.seed) == ("old", 3)
    assert config.release.bounds == {"x": (1.0, 3.0), "y": (0.0, 20.0)} and config.release.delta == 1e-5
    assert config.fit.methods == ["collapsed", "naive"] and config.fit.method["collapsed"].settings == {"warmup": 200}
    assert config.fit.prior["covariates"] == {"kappa": 1, "psi": [[1]], "nu": 6}
    assert config.calibration.cells == [(60, 1), (120, 1)] and config.calibration.simulate == "clt"
    assert config.data.missing == "impute" and config.data.impute == {"x": 2.0, "y": 10.0}
