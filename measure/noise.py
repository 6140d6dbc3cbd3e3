"""A measurement's verdict on itself: may these figures be trusted, and if not, why not.

A report that prints a median of 36 ms for a model that needs 4.6 ms is worse than none. Each rule
below looks at one way in which a machine lies, and says in words what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgeserve.measure.stats import drift, mad, median
from edgeserve.measure.surroundings import Surroundings
from edgeserve.types.base import plain
from edgeserve.types.reports import Spread, Timing

__all__ = ["noise"]

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
_OTHERS = 0.25
#: A hypervisor may take this share.
_STOLEN = 0.01
#: Fewer runs than this say nothing about a 90th percentile.
_FEW = 10


def noise(
    run: Timing,
    wall: Sequence[float],
    around: Surroundings,
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
    found = [*_waiting(run, on_cpu), *_unsteady(run.wall, wall, warm), *_company(around, threads)]
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


def _unsteady(summary: Spread, wall: Sequence[float], warm: bool) -> Iterator[str]:
    if len(wall) < _FEW:
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


def _company(around: Surroundings, threads: int) -> Iterator[str]:
    cores = around.cores
    if around.others is not None:
        if around.others > max(0.5, _OTHERS * cores):
            yield f"other programs kept {around.others:.1f} of {cores} cores busy"
    elif around.load is not None and around.load + threads > cores + 0.5:
        yield f"the load average was {around.load:.1f} on {cores} cores before the runs"
    if around.stolen is not None and around.stolen > _STOLEN:
        yield f"the hypervisor gave {_share(around.stolen)} of the CPU time to other machines"
