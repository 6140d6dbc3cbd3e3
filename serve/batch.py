"""Dynamic batching: requests that came together go through the model together.

Off unless asked for: on a processor a batch gains at most a tenth and makes every answer wait for
the slowest. On a GPU it is what makes it pay.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgeserve.serve import work
from edgeserve.serve.hosted import Hosted
from edgeserve.serve.lane import Ran
from edgeserve.serve.work import Arrays, Done

__all__ = ["Batcher"]


_READERS = 64


@dataclass
class _Item:
    """One request on its way: its feed, what it may be joined with, and where its answer goes."""

    feed: Arrays
    rows: int
    deadline: float
    answer: asyncio.Future[tuple[Arrays, float, float, int]]


@dataclass
class _Open:
    """A batch that still takes more."""

    items: list[_Item] = field(default_factory=list)
    rows: int = 0


class Batcher:
    """Joins requests of one model and of like shapes.

    Args:
        most: Samples in a run at most; 1: no batching.
        delay: Seconds that the first of a batch waits for others.
    """

    def __init__(self, most: int, delay: float) -> None:
        self._most, self._delay = most, delay
        self._open: dict[tuple[object, ...], _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # A thread reads a request and waits for its batch: as many as may wait at a time.
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="edgeserve-read")

    def applies(self, hosted: Hosted) -> bool:
        """Whether requests of this model are joined at all."""
        sign = hosted.manifest.signature
        return self._most > 1 and sign.batch_dim is not None and sign.dims[sign.batch_dim][1] > 1

    async def infer(
        self, hosted: Hosted, body: bytes, head: int | None, deadline: float
    ) -> Ran[Done]:
        """Answer an inference request, its run shared with others.

        Raises:
            Refused: as `edgeserve.serve.work.infer`, and by the lane.
        """
        hosted.lane.admit(deadline)
        loop = asyncio.get_running_loop()
        came = time.monotonic()
        fed: Future[Arrays] = Future()
        ran: Future[tuple[Arrays, float, float, int]] = Future()

        def run(feed: Arrays) -> Arrays:
            """Called in a thread that reads the request; the batch runs in one of the lane."""
            fed.set_result(feed)
            return ran.result()[0]

        job = loop.run_in_executor(self._readers, work.infer, hosted, body, head, run)
        waiting = asyncio.wrap_future(fed)
        both: set[asyncio.Future[Any]] = {job, waiting}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            return Ran(await job, 0.0, time.monotonic() - came)  # it never came to a run
        try:
            found = await self._join(hosted, waiting.result(), deadline)
        except BaseException as error:
            ran.set_exception(error)
            await asyncio.wait({job})
            job.exception()
            raise
        ran.set_result(found)
        done: Done = await job
        _, queued, worked, shared = found
        times = replace(done.times, ran=worked)
        return Ran(replace(done, times=times, shared=shared), queued, worked)

    async def _join(
        self, hosted: Hosted, feed: Arrays, deadline: float
    ) -> tuple[Arrays, float, float, int]:
        key = (id(hosted), *((name, x.shape[1:]) for name, x in feed.items()))
        rows = len(next(iter(feed.values())))
        item = _Item(feed, rows, deadline, asyncio.get_running_loop().create_future())
        limit = min(
            self._most, hosted.manifest.signature.dims[str(hosted.manifest.signature.batch_dim)][1]
        )
        batch = self._open.get(key)
        if batch is not None and batch.rows + rows > limit:
            self._close(hosted, key)
            batch = None
        if batch is None:
            batch = self._open[key] = _Open()
            asyncio.get_running_loop().call_later(self._delay, self._due, hosted, key, batch)
        batch.items.append(item)
        batch.rows += rows
        if batch.rows >= limit:
            self._close(hosted, key)
        return await item.answer

    def _due(self, hosted: Hosted, key: tuple[object, ...], batch: _Open) -> None:
        if self._open.get(key) is batch:
            self._close(hosted, key)

    def _close(self, hosted: Hosted, key: tuple[object, ...]) -> None:
        batch = self._open.pop(key)
        task = asyncio.ensure_future(self._go(hosted, batch.items))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go(self, hosted: Hosted, items: list[_Item]) -> None:
        """Run a closed batch; whatever goes wrong goes wrong for each of its requests."""
        feed = {name: np.concatenate([item.feed[name] for item in items]) for name in items[0].feed}
        try:
            ran = await hosted.lane.run(lambda: _run(hosted, feed), max(i.deadline for i in items))
        except BaseException as error:
            for item in items:
                if not item.answer.done():
                    item.answer.set_exception(error)
            return
        start = 0
        for item in items:
            rows = slice(start, start + item.rows)
            start += item.rows
            piece = {name: y[rows] for name, y in ran.result.items()}
            if not item.answer.done():
                item.answer.set_result((piece, ran.queued, ran.worked, len(items)))


def _run(hosted: Hosted, feed: Arrays) -> Arrays:
    with hosted.wrapper() as wrapper:
        return wrapper.engine.run(feed)
