"""The package as such: imports are light, the link and the README's commands hold."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dpjax

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("jax", "opendp", "arviz", "matplotlib", "blackjax", "numpyro", "optax", "h5netcdf", "sklearn", "typer")


def python(script, folder):
    """Standard output of a fresh interpreter that finds the package, started elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(Path(dpjax.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environment,
        timeout=120,
    ).stdout.split()


def test_import_is_light(tmp_path):
    script = "import dpjax, sys; dpjax.release; dpjax.Release; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in python(script, tmp_path)}
    assert not loaded & set(HEAVY)


def test_public_names():
    for name in dpjax.__all__:
        assert getattr(dpjax, name) is not None
    assert set(dpjax.__all__) <= set(dir(dpjax))
    assert callable(dpjax.release) and callable(dpjax.run)


def test_release_stays_the_function_after_its_module_is_imported(tmp_path):
    script = "import dpjax, dpjax.releases.release, dpjax.cli.app, dpjax.runner.run; print(callable(dpjax.release))"
    assert python(script, tmp_path) == ["True"]


def test_version_is_one():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    assert project["project"]["version"] == dpjax.__version__


def test_no_lapack_in_compiled_programs():
    """A batched LAPACK call shares its work out over XLA's threads and waits for them; on a CPU that is cut into one
    device per core every thread may be one that waits, and the program never ends (seen with 640 4 x 4
    eigen-decompositions). `kernels` has what is needed."""
    for path in [*(ROOT / "kernels").glob("**/*.py"), *(ROOT / "dpjax").glob("**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            else:
                used = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
            bad = [name for name in used if re.match(r"(jnp|jsp|lax|jax(\.(numpy|scipy|lax|_src))?)\.linalg", name)]
            assert not bad, f"{path.name}: {bad}"


def test_no_module_called_kernels_is_needed(tmp_path):
    script = "import sys, dpjax.kernels, dpjax.inference.methods; print('kernels' in sys.modules)"
    assert python(script, tmp_path) == ["False"]


def test_link_is_relative():
    link = ROOT / "dpjax" / "kernels"
    assert link.is_symlink() and os.readlink(link) == "../kernels"
    assert link.resolve() == ROOT / "kernels"


def readme_commands():
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    return [line for block in blocks for line in block.splitlines() if line.startswith("python3.11 -m venv")]


def test_readme_has_two_commands_for_a_fresh_machine():
    job, tests = readme_commands()
    assert "dpjax run experiments/quickstart.toml --output" in job
    assert tests.endswith("-m pytest")
    ci = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in ci and "-m pytest" in ci


@pytest.mark.slow
def test_sampler_of_the_readme_runs(monkeypatch):
    """The example for people who write samplers, as printed, against `collapsed` with the same prior."""
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    (example,) = [block for block in blocks if "SamplingAlgorithm" in block]
    names: dict = {}
    exec(compile(example, "README.md", "exec"), names)
    draws = np.asarray(names["draws"], np.float64)
    assert draws.shape == (64, 1500, 5)
    fitted = dpjax.fit(names["release"], method="collapsed", prior=names["model"].as_dict(), draws=2000, seed=0)
    assert fitted.names == tuple(names["model"].parameter_names)
    other = np.asarray(fitted.draws, np.float64)
    spread = other.std((0, 1))
    # Monte Carlo errors of both are under 3% of a standard deviation
    assert (abs(draws.mean((0, 1)) - other.mean((0, 1))) < 0.1 * spread).all()
    assert (abs(draws.std((0, 1)) / spread - 1) < 0.1).all()


@pytest.mark.slow
def test_blackjax_algorithm_of_the_readme_is_calibrated():
    """The example as printed, but for fewer trials."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    (example,) = [block for block in blocks if "from_blackjax" in block]
    assert "trials=300" in example
    names: dict = {}
    exec(compile(example.replace("trials=300", "trials=40"), "README.md", "exec"), names)
    (cell,) = names["study"].cells
    (found,) = cell["parameters"].values()
    assert names["study"].method == "walk" and found["ks"] < 1.3 * found["ks_critical"], found


def test_no_place_of_one_machine_in_the_files():
    """Paths of a home or work folder, and registries, have no business in a published file."""
    places = re.compile(r"/(?:home|root|Users|work)/|https?://[\w.]*(?:pypi|pythonhosted|mirror)[\w.]*/(?:simple|root)")
    suffixes = {".py", ".md", ".toml", ".json", ""}
    for folder in ("dpjax", "kernels", "experiments", "tests", ".ci"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in suffixes and path != Path(__file__):
                assert not places.search(path.read_text()), path
    for name in ("README.md", "pyproject.toml"):
        assert not places.search((ROOT / name).read_text()), name
