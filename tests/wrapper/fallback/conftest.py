"""The Wrapper's models, and the fault benchmark's worlds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from testkit.modules import load


@pytest.fixture(scope="session")
def faults() -> ModuleType:
    """``benchmarks/faults.py``, whose cells are run here with fewer calls."""
    path = Path(__file__).parents[3] / "benchmarks" / "faults.py"
    return load(path, "fallback_faults")
