"""Whole models against eager PyTorch; `python -m dev.benchmarks.mil` has the large ones as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
NAMES = ("Swin", "biLSTM", "detector")


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    """What the benchmark finds, by model."""
    command = [sys.executable, "-m", "dev.benchmarks.mil", "--once", "--json", "--only", *NAMES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=550
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["model"]: row for row in found}


@pytest.mark.slow
def test_float32_is_pytorchs(rows: dict[str, Any]) -> None:
    assert len(rows) == len(NAMES)
    assert {name: row["fp32"] for name, row in rows.items() if not row["fp32"] <= 1e-5} == {}


@pytest.mark.slow
def test_float16_is_near(rows: dict[str, Any]) -> None:
    """Rounded somewhere, and not more than some steps of float16 away."""
    assert {n: row["fp16"] for n, row in rows.items() if not 1e-5 < row["fp16"] < 1e-2} == {}


@pytest.mark.slow
def test_the_detector_keeps_the_right_boxes(rows: dict[str, Any]) -> None:
    row = rows["detector with NMS"]
    assert "non_maximum_suppression" in row["kinds"]
    assert row["nms_same"]
    assert row["nms_boxes"] < 1e-5
