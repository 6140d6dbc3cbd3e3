"""The options of an endpoint, each defined once: command line, Python, Ray and emitted files.

Light: only the standard library is loaded, so that ``edgeserve serve --help`` is quick.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from edgeserve.environment import is_loopback
from edgeserve.errors import ServeError
from edgeserve.options import Option

MB = 1 << 20

#: Least values, and the options that they hold for.
_LEAST = {
    1: (
        "queue batch body_mb grpc_body_mb inflight_mb threads workers memory_mb deadline_ms"
        " max_deadline_ms"
    ),
    0: "port grpc_port batch_delay_ms drain_s price",
}

_Replicas = Option("Ray, --emit: replicas of each model, or the minimum with --max-replicas.")
_MaxReplicas = Option("Ray, --emit: maximum number of replicas.")
_Cpus = Option("Ray, --emit: processors per replica; default: 1.")
_Gpus = Option("Ray, --emit: GPUs per replica; default: 0.")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Settings of an endpoint.

    Raises:
        ServeError: EDGE-SERVE-002, a value that cannot be used.
    """

    bundles: Annotated[
        tuple[str, ...],
        Option("Bundles or workspaces; model names must differ.", argument="BUNDLE..."),
    ]
    host: Annotated[str, Option("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("REST port; 0: any free one.")] = 8080
    grpc_port: Annotated[int | None, Option("gRPC port; default: no gRPC; 0: any free one.")] = None
    threads: Annotated[int | None, Option("Threads of an inference (default: measured).")] = None
    workers: Annotated[
        int | None, Option("Parallel inferences of each model (default: measured).")
    ] = None
    deadline_ms: Annotated[float, Option("Default deadline of requests, ms.")] = 5000.0
    max_deadline_ms: Annotated[float, Option("Longest deadline that a client may set, ms.")] = (
        60_000.0
    )
    queue: Annotated[int, Option("Queue length of each model.")] = 256
    batch: Annotated[int, Option("Largest batch of shared requests; 1: no dynamic batching.")] = 1
    batch_delay_ms: Annotated[float, Option("Max wait to fill a batch, ms.")] = 2.0
    body_mb: Annotated[int, Option("Max request body, MB, also when decompressed.")] = 64
    grpc_body_mb: Annotated[
        int,
        Option("Max gRPC message, MB, also when decompressed; each is received as the largest."),
    ] = 16
    inflight_mb: Annotated[
        int, Option("Max memory of all requests in flight, MB: bodies, parsed data, answers.")
    ] = 512
    body_s: Annotated[float, Option("Max time to receive a body or send an answer, s.")] = 30.0
    memory_mb: Annotated[
        int | None, Option("Memory budget of all loaded models, MB (default: no limit).")
    ] = None
    lazy: Annotated[bool, Option("Load each model at its first request.")] = False
    pinned: Annotated[
        tuple[str, ...],
        Option("Never evict the model of this name (repeatable).", flags=("--pin",), repeat=True),
    ] = ()
    keys: Annotated[
        str | None,
        Option("File of API keys, one `name key [requests per second]` a line; default: open."),
    ] = None
    no_keys: Annotated[
        bool, Option("Serve without --keys on an address that other machines can reach.")
    ] = False
    cors_origins: Annotated[
        tuple[str, ...],
        Option(
            "Web pages of this origin may use the endpoint (repeatable); default: none.",
            flags=("--cors-origin",),
            metavar="ORIGIN",
            repeat=True,
        ),
    ] = ()
    control: Annotated[
        bool | None,
        Option("Allow load and unload; default: with --keys, or on a loopback address."),
    ] = None
    tls_cert: Annotated[str | None, Option("Certificate chain (PEM): HTTPS, and TLS for gRPC.")] = (
        None
    )
    tls_key: Annotated[str | None, Option("Private key file (PEM).")] = None
    drain_s: Annotated[float, Option("Max time to finish after SIGTERM, s.")] = 25.0
    price: Annotated[
        float, Option("Cost of one machine hour, for the cost metric; 0: not shown.")
    ] = 0.0

    def __post_init__(self) -> None:
        if not self.bundles:
            raise option_error("bundles", "a number from 1 up", "0")
        for low, names in _LEAST.items():
            for name in names.split():
                value = getattr(self, name)
                if value is not None and not low <= value < float("inf"):
                    raise option_error(name, f"a number from {low} up", repr(value))
        for name in ("port", "grpc_port"):
            if (getattr(self, name) or 0) > 65535:
                raise option_error(name, "a number up to 65535", repr(getattr(self, name)))
        if self.port and self.port == self.grpc_port:
            raise option_error("grpc_port", "another port than that of REST", repr(self.grpc_port))
        if not 0 < self.body_s < float("inf"):
            raise option_error("body_s", "a number above 0", repr(self.body_s))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise option_error("tls_cert and tls_key", "both or neither", "one of them")
        for origin in self.cors_origins:
            if not re.fullmatch(r"https?://[a-z0-9.\-\[\]:]+", origin):
                raise option_error("cors_origins", "origins such as https://app.example", origin)

    @property
    def longest_deadline_ms(self) -> float:
        """The longest deadline that a client may set, which the default never exceeds."""
        return max(self.deadline_ms, self.max_deadline_ms)

    def check_access(self) -> None:
        """Refuse what would serve anybody by mistake.

        Raises:
            ServeError: EDGE-SERVE-006, others can reach the address, and no key is asked for.
        """
        if self.keys is None and not self.no_keys and not is_loopback(self.host):
            raise ServeError(
                "EDGE-SERVE-006",
                f"address {self.host}, which other machines can reach",
                wanted="--keys FILE",
                got="no keys",
                hint="give --keys FILE, or --no-keys if anybody who reaches it may use it",
            )

    @property
    def controllable(self) -> bool:
        """Whether load and unload are allowed."""
        if self.control is not None:
            return self.control
        return self.keys is not None or is_loopback(self.host)


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """The options of Ray that the command line takes."""

    replicas: Annotated[int, _Replicas] = 1
    max_replicas: Annotated[int | None, _MaxReplicas] = None
    models_per_replica: Annotated[
        int,
        Option("Ray: any replica serves any model and holds at most so many; 0: one model each."),
    ] = 0
    cpus: Annotated[float, _Cpus] = 1.0
    gpus: Annotated[float, _Gpus] = 0.0
    address: Annotated[
        str, Option('Ray: address of a running cluster ("auto": of this node); default: start one.')
    ] = ""


@dataclass(frozen=True, kw_only=True)
class EmitSettings:
    """How an endpoint is to run elsewhere."""

    replicas: Annotated[int, _Replicas] = 2
    max_replicas: Annotated[int, _MaxReplicas] = 6
    cpus: Annotated[float, _Cpus] = 1.0
    gpus: Annotated[float, _Gpus] = 0.0
    image: Annotated[
        str, Option("--emit: name of the image; default: the first model's name and version.")
    ] = ""
    storage: Annotated[
        str, Option("--emit kserve: address of the bundle (s3://, pvc://); default: in the image.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ServeCommand:
    """What ``edgeserve serve`` takes besides an endpoint's options."""

    engine: Annotated[str, Option("own, or ray: on a cluster.", choices=lambda: ("own", "ray"))] = (
        "own"
    )
    emit: Annotated[
        str | None, Option("Write files for docker, kubernetes or kserve, and stop.")
    ] = None
    out: Annotated[
        str | None, Option("--emit: folder of the files; default: this one.", flags=("-o", "--out"))
    ] = None
    force: Annotated[bool, Option("--emit: overwrite files.")] = False


def option_error(name: str, wanted: str, got: str) -> ServeError:
    """The coded error for an option that cannot be used: EDGE-SERVE-002."""
    return ServeError(
        "EDGE-SERVE-002",
        f"option {name}",
        wanted=wanted,
        got=got,
        hint="`edgeserve serve --help` lists the options and what they take",
    )
