"""The Wrapper's models, and the fault benchmark's worlds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def faults(benchmarks: None) -> ModuleType:
    """``benchmarks/faults.py``, whose cells are run here with fewer calls."""
    return importlib.import_module("benchmarks.faults")


@pytest.fixture(scope="session")
def faulty(benchmarks: None) -> ModuleType:
    """``benchmarks/faulty.py``: the same over real sockets."""
    return importlib.import_module("benchmarks.faulty")


@pytest.fixture(scope="session")
def benchmarks() -> Iterator[None]:
    """Benchmarks can be imported: they lie beside the packages, last in the search path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3])])
        yield
