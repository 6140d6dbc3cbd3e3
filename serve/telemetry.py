"""Logs, the protocol's statistics, Prometheus metrics and OpenTelemetry traces of an endpoint.

Logs are structured, one JSON object a line, on one stream: never a request's body, never a key.

Of OpenTelemetry only the API is used: which SDK, exporter and sampling there are is for whoever
runs the process to say (``opentelemetry-instrument edgeserve serve ...``). Without the package,
or with nobody to collect, a request costs one look more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from edgeserve import __version__

if TYPE_CHECKING:
    from edgeserve.serve.repository import Repository


#: The system's own source gives the GIL away at each call, under load for a tenth of a millisecond.
_IDS = random.Random()


def new_id() -> str:
    """A request id: 64 random bits, which need to be different and not secret."""
    return f"{_IDS.getrandbits(64):016x}"


class Log:
    """Writes events.

    Args:
        stream: Where to; None: standard error.
        requests: Whether each request is told, not only loads and faults.
    """

    def __init__(self, stream: TextIO | None = None, requests: bool = True) -> None:
        self._stream, self.requests = stream, requests
        self._lock = threading.Lock()
        self._shed, self._shed_at = 0, float("-inf")
        self._encode = msgspec.json.Encoder().encode

    def event(self, what: str, **fields: Any) -> None:
        """One line: when, what, and the fields that are not None."""
        entry = {"at": round(time.time(), 3), "event": what}
        entry |= {name: value for name, value in fields.items() if value is not None}
        line = self._encode(entry).decode()
        with self._lock:
            print(line, file=self._stream or sys.stderr, flush=True)

    def fault(self, request_id: str, model: str, error: BaseException) -> None:
        """What went wrong inside, in full: the caller is told only that it did."""
        import traceback

        trace = "".join(traceback.format_exception(error))
        self.event("fault", request_id=request_id, model=model, error=repr(error), trace=trace)

    def request(self, exchange: Any, route: str, model: str, key: str) -> None:
        """One request: which route and model, for whom, how it ended and how long it took.

        In a flood, rejected requests are logged once a second, with their number.
        """
        if exchange.status == 503:
            self._shed += 1
            if exchange.came - self._shed_at < 1.0:
                return
            shed, self._shed, self._shed_at = self._shed, 0, exchange.came
        else:
            shed = None
        took = 1e3 * (time.monotonic() - exchange.came)
        self.event(
            "request",
            request_id=exchange.id,
            route=route,
            model=model or None,
            key=key or None,
            status=exchange.status,
            ms=round(took, 3),
            bytes_out=exchange.sent,
            shed=shed,
        )


@contextlib.contextmanager
def captured_stderr() -> Iterator[Log]:
    """A log on standard error, into which all others' lines go as events while the block runs.

    Libraries in C write there what a stranger's file makes them write, and Python its warnings: as
    they are, they would be lines that are no JSON, and as many as the stranger likes.
    """
    sys.stderr.flush()
    own = os.dup(2)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    with open(own, "w", encoding="utf-8") as stream:
        log = Log(stream)
        reader = threading.Thread(target=_told, args=(read, log), daemon=True)
        reader.start()
        try:
            yield log
        finally:
            sys.stderr.flush()
            os.dup2(own, 2)  # the pipe's last writer is gone: the reader ends
            reader.join(1.0)


#: Lines a second of others, and characters of each, that are told.
_MOST_LINES, _MOST_CHARACTERS = 10, 500


def _told(descriptor: int, log: Log) -> None:
    """Tell what is written to a pipe until nobody can write any more."""
    second, count, rest = 0, 0, b""
    while piece := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + piece).split(b"\n")
        rest = rest[: 4 * _MOST_CHARACTERS]
        for line in filter(None, whole):
            if second != (now := int(time.monotonic())):
                second, count = now, 0
            count += 1
            if count <= _MOST_LINES:
                text = line.decode("utf-8", "replace")[:_MOST_CHARACTERS]
                log.event(
                    "stderr", text=text, more="lines left out" if count == _MOST_LINES else None
                )
    os.close(descriptor)


_PARTS = ("queued", "before", "ran", "after")


@dataclass(frozen=True)
class RequestTimes:
    """Where the time of one request went, seconds."""

    queued: float = 0.0
    before: float = 0.0
    ran: float = 0.0
    after: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.queued + self.before + self.ran + self.after

    def parts(self) -> Iterable[tuple[str, float]]:
        """Its parts one after the other, by the names that metrics and traces have for them."""
        parts = (self.queued, self.before, self.ran, self.after)
        return zip(("queue", "pre", "run", "post"), parts, strict=True)


@dataclass
class ModelStatistics:
    """Sums since the model was loaded; seconds become nanoseconds only when they are shown."""

    answered: int = 0
    failed: int = 0
    samples: int = 0
    runs: float = 0.0
    last_ms: int = 0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PARTS, 0.0))
    failed_s: float = 0.0
    batches: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, times: RequestTimes, samples: int, batch: int = 1) -> None:
        """Count an answer.

        Args:
            times: Where its time went.
            samples: How many samples it held.
            batch: How many requests shared its run.
        """
        self.answered += 1
        self.samples += samples
        self.runs += 1 / batch
        self.last_ms = int(time.time() * 1e3)
        for part in _PARTS:
            self.sums[part] += getattr(times, part)
        count, seconds = self.batches.get(samples, (0, 0.0))
        self.batches[samples] = (count + 1, seconds + times.ran)

    def fail(self, seconds: float) -> None:
        """Count a request that was not answered."""
        self.failed += 1
        self.failed_s += seconds

    def snapshot(self, name: str, version: str) -> dict[str, Any]:
        """As the statistics extension has it."""
        spent = {part: _duration(self.answered, s) for part, s in self.sums.items()}
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.samples,
            "execution_count": round(self.runs),
            "inference_stats": {
                "success": _duration(self.answered, sum(self.sums.values())),
                "fail": _duration(self.failed, self.failed_s),
                "queue": spent["queued"],
                "compute_input": spent["before"],
                "compute_infer": spent["ran"],
                "compute_output": spent["after"],
            },
            "batch_stats": [
                {"batch_size": size, "compute_infer": _duration(count, seconds)}
                for size, (count, seconds) in sorted(self.batches.items())
            ],
        }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}


_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters and histograms, in a registry of their own.

    Labels are models of this endpoint, codes and routes: nothing a caller can make up.

    Args:
        price: Cost of one hour of this machine.
    """

    def __init__(self, price: float = 0.0) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self._price, self._text = price, b""

        def made(kind: Any, name: str, text: str, *also: str, **more: Any) -> Any:
            labels = ("model", *also)
            return kind(f"edgeserve_{name}", text, labels, registry=self.registry, **more)

        text = "Requests by model, route and status"
        self.requests = made(Counter, "requests", text, "route", "status")
        self.sheds = made(Counter, "sheds", "Requests rejected, by code", "code")
        self.loads = made(Counter, "loads", "Models loaded")
        self.evictions = made(Counter, "evictions", "Models evicted for others")
        text = "Where the time of answers went"
        self.spans = made(Histogram, "seconds", text, "part", buckets=_LATENCY_BUCKETS)
        text = "Requests that shared a run"
        self.batch = made(Histogram, "batch_requests", text, buckets=_BATCH_BUCKETS)
        self.queue = made(Gauge, "queue", "Requests waiting")
        self.in_flight = made(Gauge, "in_flight", "Requests being answered")
        text = "Price of 1,000 answers at the pace of one busy worker"
        self.cost = made(Gauge, "cost_per_1000", text)

    def answered(self, model: str, times: RequestTimes) -> None:
        """Count an answer's times."""
        for part, seconds in times.parts():
            self.spans.labels(model, part).observe(seconds)

    def changed(self, kind: str, model: str) -> None:
        """Count a load or an eviction."""
        (self.loads if kind == "loads" else self.evictions).labels(model).inc()

    def text(self, repository: Repository) -> bytes:
        """The exposition, with the gauges as they are now: made once in a turn of the loop."""
        if not self._text:
            self._text = self._made(repository)
            asyncio.get_running_loop().call_soon(self._forget)
        return self._text

    def _forget(self) -> None:
        self._text = b""

    def _made(self, repository: Repository) -> bytes:
        from prometheus_client import generate_latest

        for hosted in repository.loaded():
            self.queue.labels(hosted.name).set(hosted.admission.waiting)
            self.in_flight.labels(hosted.name).set(hosted.admission.active)
            if self._price:
                seconds = hosted.admission.spans.mean / hosted.admission.workers
                self.cost.labels(hosted.name).set(self._price / 3600 * seconds * 1000)
        return bytes(generate_latest(self.registry))


#: The span of the request that is being answered.
_CURRENT: ContextVar[Any] = ContextVar("edgeserve_span", default=None)


class Traces:
    """Spans of requests; all of it does nothing where nobody collects."""

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            self._trace: Any = None
            return
        self._trace, self._propagate = trace, propagate
        self._tracer = trace.get_tracer("edgeserve.serve", __version__)

    def begin(self, name: str, headers: Mapping[bytes, bytes], **attributes: str) -> Any:
        """Begin the span of a request, within the caller's if a ``traceparent`` names that.

        Args:
            name: Of the span: the route.
            headers: By lower-case name; of gRPC the metadata.
            attributes: To be told of it.
        """
        if not self._collected():
            return None
        carrier = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items()}
        span = self._tracer.start_span(
            name,
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        )
        _CURRENT.set(span)
        return span

    def parts(self, times: RequestTimes, **attributes: str) -> None:
        """Tell of the current request's parts, which have just ended one after the other."""
        span = _CURRENT.get()
        if span is None or not span.is_recording():
            return
        span.set_attributes(attributes)
        inside = self._trace.set_span_in_context(span)
        at = time.time_ns() - int(1e9 * times.total)
        for name, seconds in times.parts():
            part = self._tracer.start_span(name, context=inside, start_time=at)
            at += int(1e9 * seconds)
            part.end(end_time=at)

    def end(self, span: Any, failed: bool, **attributes: str | int) -> None:
        """End a request's span.

        Args:
            span: As `begin` gave it.
            failed: Whether the endpoint is to blame, and not the caller.
            attributes: To be told of it.
        """
        if span is None:
            return
        _CURRENT.set(None)
        span.set_attributes(attributes)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()

    def _collected(self) -> bool:
        """Whether a provider of spans was set; asked each time, since that may come later."""
        trace = self._trace
        return trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
        )
