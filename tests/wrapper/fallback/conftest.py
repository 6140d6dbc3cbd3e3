"""The Wrapper's models, and the fault benchmark's worlds."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def faults() -> ModuleType:
    """``dev/benchmarks/faults.py``, whose cells are run here with fewer calls."""
    return importlib.import_module("dev.benchmarks.faults")


@pytest.fixture(scope="session")
def faulty() -> ModuleType:
    """``dev/benchmarks/faulty.py``: the same over real sockets."""
    return importlib.import_module("dev.benchmarks.faulty")


@pytest.fixture(scope="session")
def strangers() -> ModuleType:
    """``dev/benchmarks/strangers.py``: endpoints that break HTTP."""
    return importlib.import_module("dev.benchmarks.strangers")
