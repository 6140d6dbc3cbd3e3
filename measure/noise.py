"""Whether a measurement can be trusted, and if not, why not.

Machine load, waiting, scatter, drift.

A report that prints a median of 36 ms for a model that needs 4.6 ms is worse than none. What
other programs and a hypervisor did meanwhile is read from the system. Each rule below looks at
one way in which figures become wrong, and says in words what it saw.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edgeserve.measure.stats import drift, mad, median
from edgeserve.types.base import plain
from edgeserve.types.reports import Spread, Timing

_STAT = Path("/proc/stat")
#: /proc/stat counts in hundredths of a second; shorter stretches say nothing.
_MIN_SECONDS = 0.5


class MachineLoad(NamedTuple):
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


class CpuTicks(NamedTuple):
    """CPU time since boot over all cores, in seconds."""

    busy: float
    stolen: float
    total: float


def parse_stat(text: str, ticks_per_second: float = 100.0) -> CpuTicks:
    """Read the first line of ``/proc/stat``: user nice system idle iowait irq softirq steal ..."""
    line = text.split("\n", 1)[0].split()
    if line[:1] != ["cpu"]:
        raise ValueError("not /proc/stat")
    user, nice, system, idle, iowait, irq, softirq, steal = (int(v) for v in line[1:9])
    busy = user + nice + system + irq + softirq
    total = busy + idle + iowait + steal
    return CpuTicks(*(v / ticks_per_second for v in (busy, steal, total)))


class LoadMeter:
    """Watches the machine between its making and `stop`."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1
        self._load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._start = (time.perf_counter(), time.process_time(), self._read())

    def stop(self) -> MachineLoad:
        """Say what ran beside this process since the start."""
        wall, cpu, before = self._start
        after = self._read()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if before is None or after is None or wall < _MIN_SECONDS:
            return MachineLoad(self._cores, load=self._load)
        others = max(0.0, (after.busy - before.busy - cpu) / wall)
        total = after.total - before.total
        stolen = (after.stolen - before.stolen) / total if total > 0 else 0.0
        return MachineLoad(self._cores, others, stolen, self._load)

    @staticmethod
    def _read() -> CpuTicks | None:
        try:
            return parse_stat(_STAT.read_text(), float(os.sysconf("SC_CLK_TCK")))
        except (OSError, ValueError, AttributeError):
            return None


#: Wall time may exceed CPU time by this share; the rest is waiting.
_WAITING = 1.10
#: ... and by this many milliseconds, which timers and wake-ups cost.
_WAITING_MS = 0.05
#: Scatter (MAD over median) above which a median is an accident.
_SCATTER = 0.10
#: The halves may differ by this share, or by three standard errors, whichever is more.
_DRIFT = 0.05
_DRIFT_SIGMAS = 3.0
#: Other programs may keep this share of the machine busy, or half a core, whichever is more.
_MAX_OTHER_LOAD = 0.25
#: A hypervisor may take this share.
_MAX_STEAL = 0.01
#: Fewer runs than this say nothing about a 90th percentile.
_MIN_RUNS = 10


def noise_reason(
    run: Timing,
    wall: Sequence[float],
    around: MachineLoad,
    *,
    threads: int,
    on_cpu: bool = True,
    warm: bool = True,
) -> str | None:
    """Say why the figures are not to be trusted, or None when nothing speaks against them.

    Args:
        run: Summary of the runs.
        wall: Wall time of each run in the order they ran, ms.
        around: What else the machine did meanwhile.
        threads: Threads given to the runtime.
        on_cpu: The delegate computes on the CPU, so wall and CPU time should agree.
        warm: The warm-up settled.
    """
    found = [*_waiting(run, on_cpu), *_instability(run.wall, wall, warm)]
    found += _other_load(around, threads)
    return "; ".join(found) or None


def _waiting(run: Timing, on_cpu: bool) -> Iterator[str]:
    if not on_cpu:
        return
    for which in ("p50", "p90"):
        wall, cpu = plain(getattr(run.wall, which)), plain(getattr(run.cpu, which))
        if wall > _WAITING * cpu and wall > cpu + _WAITING_MS:
            share = "half of the runs" if which == "p50" else "one run in ten"
            yield f"{share} had to wait: {which} is {wall:.2f} ms wall but {cpu:.2f} ms CPU"
            return


def _instability(summary: Spread, wall: Sequence[float], warm: bool) -> Iterator[str]:
    if len(wall) < _MIN_RUNS:
        yield f"only {len(wall)} runs fitted into the time given"
    if not warm:
        yield "times had not settled when the warm-up ended"
    if mad(wall) > _SCATTER * median(wall):
        yield f"runs scatter: the MAD is {_share(mad(wall) / median(wall))} of the median"
    change, sigmas = drift(wall)
    if abs(change) > _DRIFT and sigmas > _DRIFT_SIGMAS:
        how = f"{_share(abs(change))} {'slower' if change > 0 else 'faster'}"
        yield f"the second half was {how} than the first (clock, heat, company)"


def _share(value: float) -> str:
    return f"{100.0 * value:.0f} %"


def _other_load(around: MachineLoad, threads: int) -> Iterator[str]:
    cores = around.cores
    if around.others is not None:
        if around.others > max(0.5, _MAX_OTHER_LOAD * cores):
            yield f"other programs kept {around.others:.1f} of {cores} cores busy"
    elif around.load is not None and around.load + threads > cores + 0.5:
        yield f"the load average was {around.load:.1f} on {cores} cores before the runs"
    if around.stolen is not None and around.stolen > _MAX_STEAL:
        yield f"the hypervisor gave {_share(around.stolen)} of the CPU time to other machines"
