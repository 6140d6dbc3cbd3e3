"""Each way in which a machine lies is seen and named; a quiet one is believed."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.measure.noise import LoadMeter, MachineLoad, noise_reason, parse_stat
from edgeserve.measure.stats import spread
from edgeserve.types.reports import Timing

QUIET = MachineLoad(cores=2, others=0.05, stolen=0.0, load=0.1)


def steady(n: int = 200, centre: float = 10.0) -> list[float]:
    return list(np.random.default_rng(0).normal(centre, 0.01 * centre, n))


def judge(
    wall: list[float],
    cpu: list[float] | None = None,
    around: MachineLoad = QUIET,
    *,
    threads: int = 1,
    on_cpu: bool = True,
    warm: bool = True,
) -> str | None:
    run = Timing(wall=spread(wall), cpu=spread(wall if cpu is None else cpu))
    return noise_reason(run, wall, around, threads=threads, on_cpu=on_cpu, warm=warm)


def test_a_quiet_machine_is_believed() -> None:
    assert judge(steady()) is None


def test_a_tail_alone_is_not_noise() -> None:
    wall = steady()
    wall[::25] = [3 * w for w in wall[::25]]  # 4 % of runs: what p99 is for
    assert judge(wall) is None


@pytest.mark.parametrize(
    ("around", "says"),
    [
        (MachineLoad(2, 0.9, 0.0, 0.1), "other programs kept 0.9 of 2 cores busy"),
        (MachineLoad(64, 20.0, 0.0, 0.1), "20.0 of 64"),
        (MachineLoad(2, 0.0, 0.05, 0.1), "hypervisor gave 5 %"),
        (MachineLoad(2, None, None, 2.4), "load average was 2.4 on 2 cores"),
    ],
)
def test_company_is_named(around: MachineLoad, says: str) -> None:
    assert says in (judge(steady(), around=around) or "")


@pytest.mark.parametrize(
    "around",
    [
        MachineLoad(64, 10.0, 0.0, 9.0),
        MachineLoad(2, None, None, 0.4),
        MachineLoad(2),
        # An old load average counts for nothing where what ran meanwhile is known.
        MachineLoad(2, 0.0, 0.0, 5.0),
    ],
)
def test_company_that_does_not_disturb_is_no_reason(around: MachineLoad) -> None:
    assert judge(steady(), around=around) is None


def test_waiting_runs_are_seen_at_the_median() -> None:
    # The case of the recipes: a 4.6 ms model with a median of 36 ms on a busy machine.
    said = judge(steady(centre=36.0), steady(centre=4.6))
    assert said is not None
    assert "half of the runs had to wait" in said
    assert "36" in said
    assert "4.6" in said


def test_waiting_of_one_run_in_ten_is_seen() -> None:
    cpu = steady()
    wall = [2 * c if i % 7 == 0 else c for i, c in enumerate(cpu)]
    assert "one run in ten had to wait" in (judge(wall, cpu) or "")


def test_several_threads_use_more_cpu_than_wall_and_that_is_fine() -> None:
    assert judge(steady(centre=5.0), steady(centre=9.5), threads=2) is None


def test_an_accelerator_may_leave_the_cpu_idle() -> None:
    assert judge(steady(), steady(centre=1.0), on_cpu=False) is None


def test_microseconds_of_timer_are_no_waiting() -> None:
    assert judge(steady(centre=0.03), steady(centre=0.02)) is None


def test_drift_scatter_few_runs_and_cold_start_are_named() -> None:
    slowing = [w * (1.0 if i < 100 else 1.2) for i, w in enumerate(steady())]
    assert "second half was 20 % slower" in (judge(slowing) or "")
    wild = list(np.random.default_rng(1).uniform(5.0, 15.0, 200))
    assert "scatter" in (judge(wild) or "")
    assert "only 4 runs" in (judge(steady(4)) or "")
    assert "settled" in (judge(steady(), warm=False) or "")


def test_all_reasons_are_given_not_only_the_first() -> None:
    said = judge(steady(4), around=MachineLoad(2, 1.5, 0.1, 3.0), warm=False) or ""
    assert said.count(";") == 3


def test_proc_stat_is_read_as_the_kernel_documents_it() -> None:
    # proc(5): user nice system idle iowait irq softirq steal guest guest_nice, in ticks.
    text = "cpu  100 20 30 1000 40 5 6 7 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    ticks = parse_stat(text, 100.0)
    assert ticks.busy == pytest.approx(1.61)
    assert ticks.stolen == pytest.approx(0.07)
    assert ticks.total == pytest.approx(1.61 + 10.40 + 0.07)
    with pytest.raises(ValueError, match="proc/stat"):
        parse_stat("intr 1 2 3")


def test_a_meter_that_hardly_ran_does_not_guess() -> None:
    around = LoadMeter().stop()
    assert around.cores >= 1
    assert around.others is None
    assert around.stolen is None
