"""Resident memory of this process in MiB, now and at its peak."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edgeserve.errors import MeasureError

__all__ = ["parse_status", "peak_mb", "resident_mb"]

_STATUS = Path("/proc/self/status")
_MB = 1024.0 * 1024.0


def resident_mb() -> float:
    """Resident memory now.

    Raises:
        MeasureError: EDGE-MEASURE-007, psutil is needed here and missing.
    """
    if _STATUS.exists():
        return parse_status(_STATUS.read_text(), "VmRSS")
    return float(_psutil_memory().rss) / _MB


def peak_mb() -> float:
    """Highest resident memory so far.

    On Linux this is VmHWM and not ``ru_maxrss``, which a process inherits over fork and exec: a
    worker started by a process that holds PyTorch would show PyTorch's memory.

    Raises:
        MeasureError: EDGE-MEASURE-007, psutil is needed here and missing.
    """
    if _STATUS.exists():
        return parse_status(_STATUS.read_text(), "VmHWM")
    if sys.platform == "win32":
        return float(_psutil_memory().peak_wset) / _MB
    import resource

    unit = 1.0 if sys.platform == "darwin" else 1024.0  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MB


def parse_status(text: str, field: str) -> float:
    """Read a memory field of ``/proc/self/status`` (kernel kB, which are KiB) in MiB."""
    for line in text.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024.0
    raise ValueError(f"no {field} in /proc/self/status")


def _psutil_memory() -> Any:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError as error:
        raise MeasureError(
            "EDGE-MEASURE-007",
            "psutil",
            wanted="the package that reads this system's memory",
            got="not installed",
            hint="pip install 'edgeserve[measure]'",
        ) from error
    return psutil.Process().memory_info()
