"""Shared by the kernel tests."""

import jax
import pytest


@pytest.fixture
def x64():
    """Run one test in 64-bit mode whatever the mode of the test run."""
    with jax.enable_x64(True):
        yield
