"""What else the machine did while we measured: other programs, and time taken by a hypervisor."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Meter", "Surroundings", "Ticks", "parse_stat"]

_STAT = Path("/proc/stat")
#: /proc/stat counts in hundredths of a second; shorter stretches say nothing.
_SHORTEST_S = 0.5


class Surroundings(NamedTuple):
    """What ran beside us.

    Attributes:
        cores: Cores of the machine (not only those we may use: others use theirs too).
        others: Cores that other programs kept busy; None where the system does not say.
        stolen: Share of CPU time that a hypervisor gave to other guests; None likewise.
        load: One-minute load average before the runs; None where there is none.
    """

    cores: int
    others: float | None = None
    stolen: float | None = None
    load: float | None = None


class Ticks(NamedTuple):
    """CPU time since boot over all cores, in seconds."""

    busy: float
    stolen: float
    total: float


def parse_stat(text: str, ticks_per_second: float = 100.0) -> Ticks:
    """Read the first line of ``/proc/stat``: user nice system idle iowait irq softirq steal ..."""
    line = text.split("\n", 1)[0].split()
    if line[:1] != ["cpu"]:
        raise ValueError("not /proc/stat")
    user, nice, system, idle, iowait, irq, softirq, steal = (int(v) for v in line[1:9])
    busy = user + nice + system + irq + softirq
    total = busy + idle + iowait + steal
    return Ticks(*(v / ticks_per_second for v in (busy, steal, total)))


class Meter:
    """Watches the machine between its making and `stop`."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1
        self._load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._start = (time.perf_counter(), time.process_time(), self._read())

    def stop(self) -> Surroundings:
        """Say what ran beside this process since the start."""
        wall, cpu, before = self._start
        after = self._read()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if before is None or after is None or wall < _SHORTEST_S:
            return Surroundings(self._cores, load=self._load)
        others = max(0.0, (after.busy - before.busy - cpu) / wall)
        total = after.total - before.total
        stolen = (after.stolen - before.stolen) / total if total > 0 else 0.0
        return Surroundings(self._cores, others, stolen, self._load)

    @staticmethod
    def _read() -> Ticks | None:
        try:
            return parse_stat(_STAT.read_text(), float(os.sysconf("SC_CLK_TCK")))
        except (OSError, ValueError, AttributeError):
            return None
