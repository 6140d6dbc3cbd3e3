"""Admission control: a bounded queue of one model's requests that can meet their deadlines.

How long an answer will take is predicted from how long the last ones took. Who would be answered
too late is rejected at once, which costs microseconds, rather than after its deadline, which
would have cost a run of the model. So under any load the model works on answers that somebody
waits for.

Under a flood, bytes lie in the system's buffers until the event loop comes round to them. That
time is part of the caller's deadline, and no clock that starts with the request knows of it:
`LoopLag` measures how far behind the loop is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from edgeserve.durations import DurationEstimate
from edgeserve.serve.request_errors import RequestRejected, rejected
from edgeserve.serve.threads import DaemonThreads

T = TypeVar("T")

#: What is kept back of a deadline for reading and writing the message, seconds.
_SLACK = 0.005
#: How many times longer than predicted a wait in the queue is taken to be, at least and at most;
#: what lies between is learnt from how the last ones turned out. On a machine of its own the queue
#: moves as predicted; beside busy processes it does not, and admitted requests miss their deadline.
_MIN_WAIT_FACTOR, _MAX_WAIT_FACTOR = 1.1, 2.0
#: A wait behind fewer than these says little: how much of the running job is left decides it.
_MIN_QUEUE = 4


class JobResult(NamedTuple, Generic[T]):
    """What a job gave, and the seconds it waited and worked."""

    result: T
    queued: float
    worked: float


class _Waiter(NamedTuple):
    """One who waits: until when, since when, and how long that was thought to take."""

    given: asyncio.Future[None]
    deadline: float
    came: float
    predicted: float | None


class AdmissionQueue:
    """Runs jobs of one model in threads, so many at a time, the others waiting in order.

    Only the event loop's thread may use it; the jobs themselves run in others.

    Args:
        name: Of the model.
        workers: Jobs at a time.
        queue: Jobs that may wait at most.
        first: What a job is thought to take before any has run, seconds.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        queue: int,
        first: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.workers, self._most, self._clock = name, workers, queue, clock
        self.spans = DurationEstimate(first)
        #: Waits, as multiples of the predicted wait.
        self.waits = DurationEstimate(1.0, 0.0)
        self.active = 0
        self._waiting: deque[_Waiter] = deque()
        self._pool = DaemonThreads(workers, f"edgeserve-{name}")

    @property
    def waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._waiting)

    def admit(self, deadline: float) -> None:
        """Reject a request whose answer would miss its deadline.

        Raises:
            RequestRejected: EDGE-SERVE-020 with the time after which there will be room.
        """
        wait = self.expected_wait()
        if self.waiting >= self._most:
            raise self._overloaded(wait, f"{self.waiting} requests waiting already")
        longer = min(_MAX_WAIT_FACTOR, max(_MIN_WAIT_FACTOR, self.waits.upper()))
        late = self._clock() + longer * wait + self.spans.upper() + _SLACK - deadline
        if late > 0:
            reason = f"expected to miss the deadline by {1e3 * late:.0f} ms"
            raise self._overloaded(max(late, self.spans.mean), reason)

    def _overloaded(self, retry_after: float, why: str) -> RequestRejected:
        """The queue is as long as deadlines allow."""
        thing, wanted = f"model {self.name}", "an answer within the deadline"
        return rejected("EDGE-SERVE-020", thing, wanted, why, retry_after=retry_after)

    def expected_wait(self) -> float:
        """Seconds until a job that came now would begin."""
        if self.active < self.workers:
            return 0.0
        return (self.waiting + 1) * self.spans.mean / self.workers

    async def run(self, job: Callable[[], T], deadline: float) -> JobResult[T]:
        """Run a job in its turn.

        Raises:
            RequestRejected: EDGE-SERVE-020 at once, or when the deadline has passed in the queue.
        """
        self.admit(deadline)
        came = self._clock()
        if self.active < self.workers:
            self.active += 1
        else:
            await self._turn(deadline)
        began = self._clock()
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._pool, job)
        finally:
            self._leave()
        worked = self._clock() - began
        self.spans.add(worked)
        return JobResult(result, began - came, worked)

    async def _turn(self, deadline: float) -> None:
        """Wait for a place, which whoever leaves one hands over."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        predicted = self.expected_wait() if self.waiting >= _MIN_QUEUE else None
        self._waiting.append(_Waiter(turn, deadline, self._clock(), predicted))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave()
            raise

    def _leave(self) -> None:
        """Hand the place over to the next who can still make it."""
        now = self._clock()
        while self._waiting:
            turn, deadline, came, predicted = self._waiting.popleft()
            if turn.done():
                continue
            if predicted:
                self.waits.add((now - came) / predicted)
            if now + self.spans.mean > deadline:
                reason = "the queue moved more slowly than predicted"
                turn.set_exception(self._overloaded(self.expected_wait(), reason))
                continue
            turn.set_result(None)
            return
        self.active -= 1

    async def idle(self) -> None:
        """Wait until nothing runs or waits."""
        while self.active or self._waiting:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """End the threads once what runs has ended."""
        self._pool.shutdown(wait=False)


#: The loop is looked at so often, and a lag that was seen counts half after so long, seconds.
_INTERVAL_S, _HALF_LIFE_S = 0.02, 0.1
#: More is no flood but a pause of the whole process, which is over when it is seen.
_MAX_LAG_S = 0.5
#: Looks without a request after which nobody looks any more.
_IDLE_LOOKS = 250


class LoopLag:
    """The lag of the loop it is watched on.

    Args:
        clock: Seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen, self._at = 0.0, 0.0
        self._looks = 0
        self._watching = False

    @property
    def seconds(self) -> float:
        """The lag by now: the largest of late, older ones counting less."""
        age = self._clock() - self._at
        return float(self._seen * 0.5 ** (age / _HALF_LIFE_S))

    def watch(self) -> None:
        """Go on looking, or begin to; called with each request."""
        self._looks = _IDLE_LOOKS
        if not self._watching:
            self._watching = True
            self._again()

    def observe(self, late: float) -> None:
        """The loop came so late."""
        self._seen, self._at = min(_MAX_LAG_S, max(late, self.seconds)), self._clock()

    def _again(self) -> None:
        asyncio.get_running_loop().call_later(_INTERVAL_S, self._look, self._clock() + _INTERVAL_S)

    def _look(self, due: float) -> None:
        self.observe(self._clock() - due)
        self._looks -= 1
        if self._looks > 0:
            self._again()
        else:
            self._watching = False
