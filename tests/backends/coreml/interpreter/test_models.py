"""Whole models against eager PyTorch; `python -m dev.benchmarks.mil` has the large ones as well."""

from __future__ import annotations

from typing import Any

import pytest

from dev.benchmarks.mil import measure

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("Swin, 4 blocks", "biLSTM, 2 layers", "detector with NMS")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the benchmark finds, by model."""
    return {name: measure(name, tmp_path_factory.mktemp("model"), 0) for name in NAMES}


@pytest.mark.slow
def test_float32_is_pytorchs(rows: dict[str, Any]) -> None:
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
