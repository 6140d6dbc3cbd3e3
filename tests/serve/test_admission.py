"""Admission and the queue, on a clock of the test's own where it can be, else on tiny times."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from edgeserve.durations import DurationEstimate
from edgeserve.serve.admission import AdmissionQueue, LoopLag, _Waiter
from edgeserve.serve.request_errors import RequestRejected


def lane(workers: int = 1, queue: int = 8, first: float = 0.01) -> AdmissionQueue:
    return AdmissionQueue("m", workers, queue, first)


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def test_jobs_run_in_order_and_no_more_than_the_workers() -> None:
    one = lane(workers=2)
    seen: list[int] = []
    running, most = 0, 0
    lock = threading.Lock()

    def job(i: int) -> Callable[[], int]:
        def work() -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                seen.append(i)
            time.sleep(0.01)
            with lock:
                running -= 1
            return i

        return work

    async def go() -> list[Any]:
        return await asyncio.gather(*(one.run(job(i), soon()) for i in range(8)))

    ran = asyncio.run(go())
    assert [r.result for r in ran] == list(range(8))
    assert seen == sorted(seen)
    assert most == 2
    assert (one.active, one.waiting) == (0, 0)
    assert ran[7].queued > ran[0].queued


def test_who_would_be_late_is_turned_away_at_once() -> None:
    one = lane(first=1.0)
    started = threading.Event()
    release = threading.Event()

    def hold() -> None:
        started.set()
        release.wait(10)

    async def go() -> tuple[float, RequestRejected]:
        task = asyncio.ensure_future(one.run(hold, soon(60)))
        await asyncio.get_running_loop().run_in_executor(None, started.wait)
        began = time.perf_counter()
        with pytest.raises(RequestRejected) as refused:
            await one.run(hold, soon(1.5))  # one second is running, one would be its own
        took = time.perf_counter() - began
        release.set()
        await task
        return took, refused.value

    took, refused = asyncio.run(go())
    assert took < 0.1
    assert (refused.status, refused.error.code) == (503, "EDGE-SERVE-020")
    assert refused.retry_after
    assert dict(refused.headers())[b"retry-after"].isdigit()


def test_the_queue_is_bounded_whatever_the_deadlines_allow() -> None:
    one = lane(queue=2)
    release = threading.Event()

    async def go() -> int:
        tasks = [asyncio.ensure_future(one.run(release.wait, soon(3600))) for _ in range(6)]
        await asyncio.sleep(0.05)
        release.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(d, RequestRejected) for d in done)

    assert asyncio.run(go()) == 3  # one runs, two wait


def test_who_waited_in_vain_does_not_cost_a_run() -> None:
    """The pace was foretold wrongly: the deadline passes in the queue."""
    one = lane(first=0.001)
    ran: list[str] = []

    async def go() -> Any:
        first = asyncio.ensure_future(one.run(lambda: time.sleep(0.2), soon()))
        await asyncio.sleep(0)
        late = one.run(lambda: ran.append("late"), soon(0.05))
        last = one.run(lambda: ran.append("last"), soon(10))
        return await asyncio.gather(first, late, last, return_exceptions=True)

    _, late, last = asyncio.run(go())
    assert isinstance(late, RequestRejected)
    assert not isinstance(last, BaseException)
    assert ran == ["last"]


def test_a_job_that_fails_frees_its_place() -> None:
    one = lane()

    def fail() -> None:
        raise ValueError("no")

    async def go() -> Any:
        return await asyncio.gather(
            *(one.run(fail, soon()) for _ in range(3)), return_exceptions=True
        )

    assert [type(r) for r in asyncio.run(go())] == [ValueError] * 3
    assert one.active == 0


def test_who_gives_up_in_the_queue_leaves_it() -> None:
    one = lane()
    release = threading.Event()

    async def go() -> Any:
        first = asyncio.ensure_future(one.run(release.wait, soon()))
        waits = asyncio.ensure_future(one.run(lambda: 2, soon()))
        await asyncio.sleep(0.02)
        waits.cancel()
        last = asyncio.ensure_future(one.run(lambda: 3, soon()))
        await asyncio.sleep(0.02)
        release.set()
        await first
        return (await last).result

    assert asyncio.run(go()) == 3
    assert (one.active, one.waiting) == (0, 0)


def test_spans_follow_a_change_of_pace() -> None:
    spans = DurationEstimate(0.01)
    for _ in range(100):
        spans.add(0.05)
    assert spans.mean == pytest.approx(0.05, rel=0.05)
    assert spans.upper() > spans.mean


def test_a_quick_answer_is_admitted_with_little_time_left() -> None:
    clock = [100.0]
    one = AdmissionQueue("m", 1, 8, 0.002, lambda: clock[0])
    one.admit(100.02)
    with pytest.raises(RequestRejected):
        one.admit(100.003)


def test_a_queue_that_moves_more_slowly_than_foretold_takes_fewer() -> None:
    """Jobs were thought to take 10 ms each; each wait turns out half as long again."""
    clock = [0.0]
    one = AdmissionQueue("m", 1, 100, 0.01, lambda: clock[0])

    async def go(slower: float) -> int:
        release = threading.Event()
        tasks = [asyncio.ensure_future(one.run(release.wait, 1e9))]
        tasks += [asyncio.ensure_future(one.run(lambda: None, 1e9)) for _ in range(40)]
        await asyncio.sleep(0)
        for _ in range(40):  # the places are handed over, by the test's clock
            clock[0] += 0.01 * slower
            one._leave()
        release.set()
        await asyncio.gather(*tasks)
        one.spans = DurationEstimate(0.01)
        one.active = 1  # one is running, as far as admission knows
        admitted = 0
        while True:
            try:
                one.admit(clock[0] + 0.5)
            except RequestRejected:
                break
            admitted += 1
            one._waiting.append(_Waiter(asyncio.get_running_loop().create_future(), 0, 0, None))
        one._waiting.clear()
        one.active = 0
        return admitted

    as_foretold = asyncio.run(go(1.0))
    later = asyncio.run(go(1.5))
    assert 38 <= as_foretold <= 44  # of 50 that would go by the pace alone
    assert later <= 0.75 * as_foretold


def test_a_lag_is_seen_counts_and_is_forgotten() -> None:
    clock = [10.0]
    lag = LoopLag(lambda: clock[0])
    assert lag.seconds == 0
    lag.observe(0.1)
    assert lag.seconds == pytest.approx(0.1)
    lag.observe(0.01)
    assert lag.seconds == pytest.approx(0.1), "the largest of late counts"
    clock[0] += 0.2
    assert lag.seconds == pytest.approx(0.025)
    lag.observe(3600.0)  # the lid was shut
    assert lag.seconds <= 0.5
    clock[0] += 2.0
    assert lag.seconds < 0.001


def test_a_loop_that_is_held_up_lags() -> None:
    lag = LoopLag()

    async def go() -> float:
        lag.watch()
        await asyncio.sleep(0.03)
        time.sleep(0.2)  # somebody holds the loop
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return lag.seconds

    assert asyncio.run(go()) > 0.05
