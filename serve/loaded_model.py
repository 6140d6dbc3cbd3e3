"""`LoadedModel`: one open model behind the endpoint, with what it needs to answer many at a time.

How many runs side by side, and with how many threads each, is found by a short measurement. The
number of cores does not say it: a quota, a neighbour or the model itself may make four threads
slower than one.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from edgeserve import backends
from edgeserve.durations import Throughput, time_runs
from edgeserve.environment import usable_cores
from edgeserve.serve.admission import AdmissionQueue
from edgeserve.serve.options import ServeOptions
from edgeserve.serve.telemetry import ModelStatistics
from edgeserve.types.manifest import Manifest
from edgeserve.types.tensors import Signature
from edgeserve.wrapper import Wrapper
from edgeserve.wrapper.engine import zero_feed
from edgeserve.wrapper.prober import isolated

#: Elements of one input where the signature sets no lower limit: 1 GiB of float32.
_MAX_ELEMENTS = 1 << 28


class LoadedModel:
    """An open model. Each model has its own queue and threads, so that no model starves another.

    Attributes:
        path: What it was opened from.
        name, version, model_id: What answers say of it.
        admission: The queue and the threads.
        figures: What was counted.
        plan: Threads and runs side by side.
        cold_ms: What opening it took.
        memory: What it takes, bytes: what its trial took, never below ``least``.
        least: What its weights alone take: the files of the artifact that runs, a copy a session.
        most: Largest number of elements an input may have.
        uses: Requests that hold it now; it is closed when it is retired and nobody does.
    """

    def __init__(
        self,
        path: str,
        wrappers: list[Wrapper],
        plan: ConcurrencyPlan,
        pace: Throughput,
        options: ServeOptions,
    ) -> None:
        first = wrappers[0]
        self.path, self.plan, self.manifest = path, plan, first.manifest
        self.name, self.version = first.manifest.name, str(first.manifest.version)
        self.model_id, self.ran_on = first.manifest.model_id, first.ran_on
        self.medium = first.medium
        self.admission = AdmissionQueue(self.name, plan.workers, options.queue, pace.seconds)
        self.figures = ModelStatistics()
        self.pace, self.cold_ms = pace, 0.0
        self.least = len(wrappers) * _artifact_bytes(first)
        self.memory = max(self.least, sum(wrapper.trial_memory for wrapper in wrappers))
        self.most = max_elements(first.manifest.signature)
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
    def held(self) -> Iterator[LoadedModel]:
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
        self.admission.close()
        for wrapper in self._all:
            wrapper.close()


def load_model(
    path: str, options: ServeOptions, stop: threading.Event | None = None
) -> LoadedModel:
    """Open a bundle, prove it, find out how to run it, warm it up. Seconds: not for the loop.

    Whatever this process is to run has been run by a child process first, within limits of time and
    memory.

    Args:
        path: Of the bundle.
        options: Of the endpoint.
        stop: Once set, the load ends with EDGE-WORKER-006.

    Raises:
        EdgeError: as `Wrapper`.
    """
    began = time.monotonic()
    plans = concurrency_plans(options.threads, options.workers)
    opened: dict[int, Wrapper] = {}
    with isolated(stop or threading.Event()):
        try:
            paces = {plan: _try_plan(path, plan, opened) for plan in plans}
            plan = best_plan(paces)
            wrappers = [opened.pop(plan.threads)]
        finally:
            for other in opened.values():
                other.close()
        # Each worker has its own session.
        if not backends.get(wrappers[0].ran_on.format).thread_safe:
            wrappers += [Wrapper(path, threads=plan.threads) for _ in range(plan.workers - 1)]
    hosted = LoadedModel(path, wrappers, plan, paces[plan], options)
    hosted.cold_ms = 1e3 * (time.monotonic() - began)
    return hosted


def _try_plan(path: str, plan: ConcurrencyPlan, opened: dict[int, Wrapper]) -> Throughput:
    if plan.threads not in opened:
        opened[plan.threads] = Wrapper(path, threads=plan.threads)
    wrapper = opened[plan.threads]
    feed = zero_feed(wrapper.manifest.signature)
    return measure_throughput(lambda: wrapper.predict(feed), plan.workers)


def max_elements(signature: Signature) -> dict[str, int]:
    """The largest number of elements that each input may have."""
    most = {}
    for spec in signature.inputs:
        sizes = (signature.dims[dim][1] if isinstance(dim, str) else dim for dim in spec.shape)
        most[spec.name] = min(math.prod(sizes), _MAX_ELEMENTS)
    return most


def min_memory(manifest: Manifest) -> int:
    """Bytes that a model takes at the least, whichever of its artifacts runs: unpacked files."""
    return min((artifact.size for artifact in manifest.artifacts), default=0)


def _artifact_bytes(wrapper: Wrapper) -> int:
    """Bytes of the artifact that a Wrapper runs."""
    ran = (wrapper.ran_on.format, wrapper.ran_on.precision)
    sizes = [a.size for a in wrapper.manifest.artifacts if (a.format, a.precision) == ran]
    return max(sizes, default=min_memory(wrapper.manifest))


#: What one candidate is tried for, seconds, and runs at least.
_MEASURE_S = 0.25
_MIN_RUNS = 3
#: More throughput than this, and more runs side by side are worth the longer single answer.
_MIN_GAIN = 1.1


class ConcurrencyPlan(NamedTuple):
    """Threads of one run, and runs side by side."""

    threads: int
    workers: int


def concurrency_plans(
    threads: int | None, workers: int | None, cores: int | None = None
) -> list[ConcurrencyPlan]:
    """Plans worth trying: what is given is kept, and no more threads than cores in all."""
    cores = cores or usable_cores()
    if threads and workers:
        return [ConcurrencyPlan(threads, workers)]
    if threads:
        return [ConcurrencyPlan(threads, n) for n in sorted({1, max(1, cores // threads)})]
    if workers:
        return [ConcurrencyPlan(n, workers) for n in sorted({1, max(1, cores // workers)})]
    halves = max(1, cores // 2)
    pairs = ((cores, 1), (halves, cores // halves), (1, cores))
    return list(dict.fromkeys(ConcurrencyPlan(*pair) for pair in pairs))


def best_plan(paces: dict[ConcurrencyPlan, Throughput]) -> ConcurrencyPlan:
    """The fewest runs side by side whose throughput is near the best: each answer comes sooner."""
    best = max(pace.rate for pace in paces.values())
    good = [plan for plan, pace in paces.items() if pace.rate * _MIN_GAIN >= best]
    return min(good, key=lambda plan: (plan.workers, paces[plan].seconds))


def measure_throughput(
    run: Callable[[], object], workers: int, seconds: float = _MEASURE_S
) -> Throughput:
    """Call ``run`` from so many threads at a time for a moment."""
    run()  # the first run also sets memory up
    times: list[float] = []
    began = time.perf_counter()

    def work() -> None:
        times.extend(time_runs(run, seconds, _MIN_RUNS))

    others = [threading.Thread(target=work) for _ in range(workers - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    took = time.perf_counter() - began
    return Throughput(len(times) / took, sorted(times)[len(times) // 2])
