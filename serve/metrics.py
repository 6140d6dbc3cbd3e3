"""Prometheus metrics of an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.serve.figures import Times

if TYPE_CHECKING:
    from edgeserve.serve.repository import Repository

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters and histograms, in a registry of their own.

    Labels are models of this endpoint, codes and routes: nothing a caller can make up.

    Args:
        price: Of an hour of this machine.
    """

    def __init__(self, price: float = 0.0) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self._price = price
        held = self.registry
        self.requests = Counter(
            "edgeserve_requests",
            "Requests by model, route and status",
            ("model", "route", "status"),
            registry=held,
        )
        self.sheds = Counter(
            "edgeserve_sheds", "Requests turned away, by code", ("model", "code"), registry=held
        )
        self.loads = Counter("edgeserve_loads", "Models loaded", ("model",), registry=held)
        self.evictions = Counter(
            "edgeserve_evictions", "Models put out for others", ("model",), registry=held
        )
        self.spans = Histogram(
            "edgeserve_seconds",
            "Where the time of answers went",
            ("model", "part"),
            buckets=_SECONDS,
            registry=held,
        )
        self.batch = Histogram(
            "edgeserve_batch_requests",
            "Requests that shared a run",
            ("model",),
            buckets=_SIZES,
            registry=held,
        )
        self.queue = Gauge("edgeserve_queue", "Requests waiting", ("model",), registry=held)
        self.in_flight = Gauge(
            "edgeserve_in_flight", "Requests being answered", ("model",), registry=held
        )
        self.cost = Gauge(
            "edgeserve_cost_per_1000",
            "Price of 1,000 answers at the pace of one busy worker",
            ("model",),
            registry=held,
        )

    def answered(self, model: str, times: Times) -> None:
        """Count an answer's times."""
        for part, seconds in (
            ("queue", times.queued),
            ("pre", times.before),
            ("run", times.ran),
            ("post", times.after),
        ):
            self.spans.labels(model, part).observe(seconds)

    def changed(self, kind: str, model: str) -> None:
        """Count a load or an eviction."""
        (self.loads if kind == "loads" else self.evictions).labels(model).inc()

    def text(self, repository: Repository) -> bytes:
        """The exposition, with the gauges as they are now."""
        from prometheus_client import generate_latest

        for hosted in repository.loaded():
            self.queue.labels(hosted.name).set(hosted.lane.waiting)
            self.in_flight.labels(hosted.name).set(hosted.lane.active)
            if self._price:
                seconds = hosted.lane.spans.mean / hosted.lane.workers
                self.cost.labels(hosted.name).set(self._price / 3600 * seconds * 1000)
        return bytes(generate_latest(self.registry))
