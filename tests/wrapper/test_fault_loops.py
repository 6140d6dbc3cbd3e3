"""A few cells of `dev.benchmarks.fault_loops`, which tries them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.benchmarks.fault_injection import FAULTS
from dev.benchmarks.fault_loops import OPENING, Loop, bundle_template, changing, run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_a_file_operation_is_over_at_the_next_start(fault: str, tmp_path: Path) -> None:
    loop = Loop("open", OPENING["open"], bundle_template(tmp_path / "bundle"))
    right, cells = loop.cells()
    of_fault = [cell for cell in cells if cell[0] == fault]
    for cell in of_fault[len(of_fault) // 4 :: len(of_fault) // 2]:
        assert loop.wrong(right, *cell) == ""


def test_a_fault_is_one(tmp_path: Path) -> None:
    """What the loops inject is met: each operation of the first start can fail it, or is passed."""
    loop = Loop("open", OPENING["open"], bundle_template(tmp_path / "bundle"))
    ran = run(loop.act, loop.fresh(), "EACCES", 0)
    assert ran.coded
    assert "Permission denied" in ran.answer
    assert run(loop.act, loop.fresh(), "SIGKILL", 40).answer == "killed"


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_the_bytes_that_run_are_those_that_were_hashed(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESERVE_CACHE", "")  # `changing` sets it
    ended, wrong = changing(bundle_template(tmp_path / "bundle"), 25, format)
    assert wrong == "", ended
    assert ended["the right model"] > 0
