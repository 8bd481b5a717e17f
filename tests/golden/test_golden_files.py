"""What the package writes for others to read: files, their fields and the help of every command, as stored here.

Structure (names and types) is compared exactly, numbers that nothing random enters too; of draws and noise only the
types.
"""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import typer

import dpjax
from tests.golden import stored

#: Posteriors in old/.
POSTERIORS = ("regression", "exponential", "parties")
#: Attributes that change with the day and the versions.
CHANGING = {"dpjax_version", "created_at", "arviz_version", "dpjax_digest"}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=POSTERIORS)
def read(request):
    """A posterior that lies here, so that nothing is sampled."""
    return request.param, dpjax.load_posterior(stored.OLD / f"{request.param}.nc")


# ---- releases ------------------------------------------------------------------------------------------------
def test_release_files():
    """All but the sums, which hold noise of the operating system."""
    found = {}
    for name, arguments in stored.RELEASES.items():
        content = dpjax.release(stored.table(), report=False, **arguments).to_dict()
        content["statistics"] = stored.kinds(content["statistics"])
        found[name] = stored.rounded(content)
    stored.compare("releases.json", found)


def test_private_bounds():
    """They are drawn too."""
    search = dpjax.PrivateQuantile((0.0, 8.0), share=0.25)
    made = dpjax.release(stored.table(), model="exponential", target="wait", bounds=search, epsilon=4.0, report=False)
    stored.compare("release_private_bounds.json", stored.kinds(made.to_dict()))


# ---- posteriors ----------------------------------------------------------------------------------------------
def test_summary(read):
    """Its numbers too: they are of the same draws."""
    name, posterior = read
    summary = {key: value for key, value in posterior.summary().items() if key != "prior"}
    summary["prior"] = stored.kinds(posterior.prior)
    stored.compare(f"summary_{name}.json", stored.rounded(summary))


def test_saved_posterior(read, tmp_path):
    import h5netcdf

    name, posterior = read
    path = posterior.save(tmp_path / "posterior.nc")
    with h5netcdf.File(path, "r") as file:
        found = {"/": attributes(file.attrs)}
        for group in sorted(file.groups):
            variables = {
                key: [*map(str, variable.dimensions), str(np.asarray(variable[...]).dtype.kind)]
                for key, variable in sorted(file.groups[group].variables.items())
            }
            found[group] = {"attributes": attributes(file.groups[group].attrs), "variables": variables}
    stored.compare(f"netcdf_{name}.json", found)


def attributes(attrs):
    """Attributes as they are, but for times and versions."""
    found = {}
    for key in sorted(attrs):
        value = attrs[key]
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        found[key] = stored.kinds(value) if key in CHANGING else stored.rounded(value)
    return found


# ---- calibration ---------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_calibration_file():
    study = dpjax.calibrate(
        "exponential", records=[50, 100], epsilon=1.0, trials=4, method="naive", draws=40, chains=2, seed=1, devices=1,
    ).to_dict()  # fmt: skip
    exact = {key: study[key] for key in ("method", "chains_in_call")}
    exact["settings"] = {key: value for key, value in study["settings"].items() if key != "run"}
    exact["cells"] = [{key: cell[key] for key in ("records", "epsilon", "trials")} for cell in study["cells"]]
    types = stored.kinds(study) | {"warnings": "texts"}
    types["verdict"] |= {"uniformity_rejected": "texts", "coverage_outside": "texts"}
    stored.compare("calibration.json", {"types": types, "exact": stored.rounded(exact)})


# ---- help ----------------------------------------------------------------------------------------------------
def test_help_of_every_command():
    """In a fresh process, as a terminal of fixed width without colours would show it."""
    plain = {"TERM": "dumb", "COLUMNS": "100", "NO_COLOR": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "GITHUB_ACTIONS")}
    script = (
        "import dpjax.cli.app as cli, typer\n"
        "for name in ['', *typer.main.get_command(cli.app).commands]:\n"
        "    print('=' * 9, name)\n"
        "    cli.main([*name.split(), '--help'])\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment | plain, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    head = f"typer {'.'.join(typer.__version__.split('.')[:2])}\n"
    path = stored.FOLDER / "help.txt"
    text = head + stored.words(shown)
    if not stored.RENEW and path.read_text() != text and not path.read_text().startswith(head):
        pytest.skip(f"another version of Typer ({head.strip()}) words its help in another way")
    stored.compare("help.txt", text)
