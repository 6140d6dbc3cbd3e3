"""`Hosted`: one open model behind the endpoint, with what it needs to answer many at a time."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from edgeserve.serve.figures import Figures
from edgeserve.serve.lane import Lane
from edgeserve.serve.measure import Pace, Plan, candidates, measure, pick
from edgeserve.serve.options import Options
from edgeserve.types.manifest import Manifest
from edgeserve.types.tensors import Signature
from edgeserve.wrapper import Wrapper

__all__ = ["Hosted", "least_of", "most_elements", "open_hosted", "zeros"]

#: Runtimes whose sessions several threads may run at a time; of the others each worker has its own.
_SHARED = ("onnxruntime",)
#: A dynamic size that a measurement takes, within its range: short texts, small batches.
_TYPICAL = 64
#: Elements of one input where the signature sets no lower limit: 1 GiB of float32.
_MOST = 1 << 28


class Hosted:
    """An open model. Requests of one model run in its own lane, so that none starves another.

    Attributes:
        path: What it was opened from.
        name, version, model_id: What answers say of it.
        lane: The queue and the threads.
        figures: What was counted.
        plan: Threads and runs side by side.
        cold_ms: What opening it took.
        memory: What it takes, by an estimate, bytes: never below ``least``.
        least: What its weights alone take: the files of the artifact that runs, a copy a session.
        most: Largest number of elements an input may have.
        uses: Requests that hold it now; it is closed when it is retired and nobody does.
    """

    def __init__(
        self, path: str, wrappers: list[Wrapper], plan: Plan, pace: Pace, options: Options
    ) -> None:
        first = wrappers[0]
        self.path, self.plan, self.manifest = path, plan, first.manifest
        self.name, self.version = first.manifest.name, str(first.manifest.version)
        self.model_id, self.ran_on = first.manifest.model_id, first.ran_on
        self.medium = first.medium
        self.lane = Lane(self.name, plan.workers, options.queue, pace.seconds)
        self.figures = Figures()
        self.pace, self.cold_ms = pace, 0.0
        self.memory = self.least = len(wrappers) * _files(first)
        self.most = most_elements(first.manifest.signature)
        self.uses, self.retired, self.last_used = 0, False, time.monotonic()
        self._all = wrappers
        self._free: queue.SimpleQueue[Wrapper] = queue.SimpleQueue()
        for i in range(plan.workers):
            self._free.put(wrappers[i % len(wrappers)])

    @contextmanager
    def wrapper(self) -> Iterator[Wrapper]:
        """One of the open Wrappers, for a worker's thread."""
        one = self._free.get()
        try:
            yield one
        finally:
            self._free.put(one)

    @contextmanager
    def held(self) -> Iterator[Hosted]:
        """Keep it open while the block runs, whatever is loaded in its place meanwhile."""
        self.uses += 1
        self.last_used = time.monotonic()
        try:
            yield self
        finally:
            self.uses -= 1
            if self.retired and not self.uses:
                self._close()

    def retire(self) -> None:
        """Close it as soon as no request holds it."""
        if not self.retired:
            self.retired = True
            if not self.uses:
                self._close()

    def _close(self) -> None:
        self.lane.close()
        for wrapper in self._all:
            wrapper.close()


def open_hosted(path: str, options: Options) -> Hosted:
    """Open a bundle, prove it, find out how to run it, warm it up. Seconds: not for the loop.

    Raises:
        EdgeError: as `Wrapper`.
    """
    began, before = time.monotonic(), _resident()
    plans = candidates(options.threads, options.workers)
    opened: dict[int, Wrapper] = {}
    try:
        paces = {plan: _try(path, plan, opened) for plan in plans}
        plan = pick(paces)
        wrappers = [opened.pop(plan.threads)]
    finally:
        for other in opened.values():
            other.close()
    if wrappers[0].ran_on.runtime.name not in _SHARED:
        wrappers += [Wrapper(path, threads=plan.threads) for _ in range(plan.workers - 1)]
    hosted = Hosted(path, wrappers, plan, paces[plan], options)
    hosted.cold_ms = 1e3 * (time.monotonic() - began)
    # What the process grew by hides a model that found room in what another one left.
    hosted.memory = max(_resident() - before, hosted.least)
    return hosted


def _try(path: str, plan: Plan, opened: dict[int, Wrapper]) -> Pace:
    if plan.threads not in opened:
        opened[plan.threads] = Wrapper(path, threads=plan.threads)
    wrapper = opened[plan.threads]
    feed = zeros(wrapper.manifest.signature)
    return measure(lambda: wrapper.predict(feed), plan.workers)


def zeros(signature: Signature) -> dict[str, np.ndarray]:
    """A feed of zeros (of empty strings) of the smallest batch and otherwise typical sizes."""
    sizes = {
        name: low if name == signature.batch_dim else min(high, max(low, _TYPICAL))
        for name, (low, high) in signature.dims.items()
    }
    return {
        spec.name: np.zeros(
            [sizes.get(d, 1) if isinstance(d, str) else d for d in spec.shape], spec.dtype
        )
        for spec in signature.inputs
    }


def most_elements(signature: Signature) -> dict[str, int]:
    """The largest number of elements that each input may have."""
    most = {}
    for spec in signature.inputs:
        count = 1
        for size in spec.shape:
            count *= signature.dims[size][1] if isinstance(size, str) else size
        most[spec.name] = min(count, _MOST)
    return most


def least_of(manifest: Manifest) -> int:
    """Bytes that a model takes at the least, whichever of its artifacts runs: unpacked files."""
    return min((artifact.size for artifact in manifest.artifacts), default=0)


def _files(wrapper: Wrapper) -> int:
    """Bytes of the artifact that a Wrapper runs."""
    ran = (wrapper.ran_on.format, wrapper.ran_on.precision)
    sizes = [a.size for a in wrapper.manifest.artifacts if (a.format, a.precision) == ran]
    return max(sizes, default=least_of(wrapper.manifest))


def _resident() -> int:
    """Bytes this process holds in memory; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
