"""Two fake CPU devices, strict promotion and run-time shape checks: set before JAX is imported."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2").strip()

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("dpjax", "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs_do_not_pile_up():
    yield
    from dpjax.engine import programs

    programs.make_room()


#: Names of tests that are too long for continuous integration.
LONG_TESTS = Path(__file__).with_name("long_tests.txt")


def pytest_collection_modifyitems(items):
    names = {line for line in LONG_TESTS.read_text().splitlines() if not line.startswith("#")}
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.long)
