"""Shared by the processing tests: the conformance modules, and processors for any steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conformance import sounds
from conformance.images import input_processor
from testkit.modules import load

from edgeserve.processing import Processor
from edgeserve.processing.steps.decode import Decode
from edgeserve.types.steps import InputStep

CONFORMANCE = Path(__file__).parents[2] / "spec" / "conformance" / "processing"


def _load(name: str) -> ModuleType:
    return load(CONFORMANCE / f"{name}.py", f"conformance_{name}")


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    """The independent integer arithmetic of resize/1."""
    return _load("kernel")


@pytest.fixture(scope="session")
def runner() -> ModuleType:
    """What runs the conformance cases of sounds."""
    return sounds


@pytest.fixture(scope="session")
def wavs() -> ModuleType:
    """WAV files written by hand."""
    return _load("soundfiles")


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of the processing cases."""
    return CONFORMANCE


@pytest.fixture(scope="session")
def carry_out() -> Callable[..., np.ndarray]:
    """Decode ``raw`` and run some steps on it: ``carry_out(raw, Resize(...), ...)``."""

    def act(raw: Any, *steps: InputStep, decode: Decode | None = None) -> np.ndarray:
        processor: Processor = input_processor((decode or Decode(), *steps))
        return processor.prepare(raw)["x"]

    return act
