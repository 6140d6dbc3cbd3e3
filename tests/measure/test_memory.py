"""Memory: against psutil, and free of the parent's."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from edgeserve.measure.run import parse_status, resident_mb

MB = 1024 * 1024


def test_resident_memory_equals_psutils() -> None:
    assert resident_mb() == pytest.approx(psutil.Process().memory_info().rss / MB, rel=0.05)


def _in_a_process_of_its_own(code: str) -> float:
    """What ``code`` prints: this process may reuse memory that earlier tests let go."""
    code = f"from edgeserve.measure.run import peak_mb, resident_mb\n{code}"
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True)
    return float(out.stdout)


def test_the_peak_keeps_what_was_let_go() -> None:
    code = f"before = resident_mb(); block = b'x' * {80 * MB}; del block; print(peak_mb() - before)"
    assert _in_a_process_of_its_own(code) >= 75.0


def test_a_worker_does_not_show_its_parents_memory() -> None:
    ours = b"x" * (150 * MB)  # touched, so resident here; ru_maxrss of the child would show it
    assert _in_a_process_of_its_own("print(peak_mb())") < len(ours) / MB


def test_fields_of_proc_status() -> None:
    text = "Name:\tpython\nVmHWM:\t  204800 kB\nVmRSS:\t   51200 kB\n"
    assert parse_status(text, "VmHWM") == 200.0
    assert parse_status(text, "VmRSS") == 50.0
    with pytest.raises(ValueError, match="VmSwap"):
        parse_status(text, "VmSwap")
