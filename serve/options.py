"""What an endpoint is told at its start, checked."""

from __future__ import annotations

from edgeserve.environment import is_loopback
from edgeserve.errors import ServeError
from edgeserve.types.base import Value

__all__ = ["MB", "ServeOptions", "option_error"]

MB = 1 << 20


class ServeOptions(Value, frozen=True, kw_only=True):
    """Settings of an endpoint.

    Attributes:
        bundles: Bundles or workspaces to serve; the names of their models must differ.
        host: Address to listen on; the default is this machine alone.
        port: Of REST; 0: any free one.
        grpc_port: Of gRPC; None: no gRPC; 0: any free one.
        threads: Threads of one run; None: measured.
        workers: Runs side by side, a model; None: measured.
        deadline_ms: What an answer may take where the request does not say.
        queue: Requests that may wait, a model, whatever their deadlines allow.
        batch: Samples that may go through the model together; 1: no dynamic batching.
        batch_delay_ms: How long the first of a batch waits for others.
        body_mb: Longest body of a request, also after it is unpacked.
        inflight_mb: All bodies that are being read or answered at one time.
        body_s: What sending a body may take.
        memory_mb: What all loaded models may take; None: no limit.
        lazy: Load a model at its first request, not at the start.
        pinned: Names of models that are never put out for others.
        keys: File of API keys, one `name key [requests per second]` a line; None: open to all.
        control: Whether load and unload are allowed; None: only where keys are asked for or the
            host is this machine.
        tls_cert: Certificate chain in PEM; with tls_key: HTTPS, and TLS for gRPC.
        tls_key: Its private key.
        drain_s: How long new requests are still answered after SIGTERM, so that whoever routes to
            this endpoint has time to see that it is no longer ready.
        price: What an hour of this machine costs, in any currency; 0: cost is not shown.
    """

    bundles: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    threads: int | None = None
    workers: int | None = None
    deadline_ms: float = 5000.0
    queue: int = 256
    batch: int = 1
    batch_delay_ms: float = 2.0
    body_mb: int = 64
    inflight_mb: int = 512
    body_s: float = 30.0
    memory_mb: int | None = None
    lazy: bool = False
    pinned: tuple[str, ...] = ()
    keys: str | None = None
    control: bool | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    drain_s: float = 1.0
    price: float = 0.0

    def __post_init__(self) -> None:
        _at_least(
            1,
            bundles=len(self.bundles),
            queue=self.queue,
            batch=self.batch,
            body_mb=self.body_mb,
            threads=self.threads,
            workers=self.workers,
            memory_mb=self.memory_mb,
            inflight_mb=self.inflight_mb,
            deadline_ms=self.deadline_ms,
        )
        _at_least(
            0,
            port=self.port,
            grpc_port=self.grpc_port,
            batch_delay_ms=self.batch_delay_ms,
            drain_s=self.drain_s,
            price=self.price,
        )
        _at_most(65535, port=self.port, grpc_port=self.grpc_port)
        if self.port and self.port == self.grpc_port:
            raise option_error("grpc_port", "another port than that of REST", repr(self.grpc_port))
        if not 0 < self.body_s < float("inf"):
            raise option_error("body_s", "a number above 0", repr(self.body_s))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise option_error("tls_cert and tls_key", "both or neither", "one of them")

    @property
    def controllable(self) -> bool:
        """Whether load and unload are allowed."""
        if self.control is not None:
            return self.control
        return self.keys is not None or is_loopback(self.host)


def _at_least(low: int, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not low <= value < float("inf"):
            raise option_error(name, f"a number from {low} up", repr(value))


def _at_most(high: int, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value > high:
            raise option_error(name, f"a number up to {high}", repr(value))


def option_error(name: str, wanted: str, got: str) -> ServeError:
    """The coded error for an option that cannot be used: EDGE-SERVE-002."""
    return ServeError(
        "EDGE-SERVE-002",
        f"option {name}",
        wanted=wanted,
        got=got,
        hint="`edgeserve serve --help` lists the options and what they take",
    )
