"""The Wrapper's models, and the fault benchmark's worlds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def faults() -> ModuleType:
    """``benchmarks/faults.py``, whose cells are run here with fewer calls."""
    path = Path(__file__).parents[3] / "benchmarks" / "faults.py"
    spec = importlib.util.spec_from_file_location("fallback_faults", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
