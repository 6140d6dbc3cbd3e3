"""The command that serves bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgeserve.cli.run import command

__all__ = ["COMMANDS"]


@command
def serve(
    bundles: Annotated[list[str], typer.Argument(metavar="BUNDLE...", help="What to serve.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of REST; 0: any.")] = 8080,
    grpc_port: Annotated[int | None, typer.Option(help="Port of gRPC; without it, none.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of a run; else measured.")] = None,
    workers: Annotated[int | None, typer.Option(help="Runs side by side; else measured.")] = None,
    deadline_ms: Annotated[float, typer.Option(help="Where a request names none.")] = 5000.0,
    queue: Annotated[int, typer.Option(help="Requests that may wait, a model.")] = 256,
    batch: Annotated[int, typer.Option(help="Samples that may share a run.")] = 1,
    batch_delay_ms: Annotated[float, typer.Option(help="What the first waits for others.")] = 2.0,
    body_mb: Annotated[int, typer.Option(help="Longest body, also unpacked.")] = 64,
    body_s: Annotated[float, typer.Option(help="What sending a body may take.")] = 30.0,
    memory_mb: Annotated[int | None, typer.Option(help="Budget of all loaded models.")] = None,
    lazy: Annotated[bool, typer.Option("--lazy", help="Load at the first request.")] = False,
    pin: Annotated[list[str] | None, typer.Option(help="A model that stays loaded.")] = None,
    keys: Annotated[str | None, typer.Option(help="File of API keys.")] = None,
    control: Annotated[bool | None, typer.Option(help="Allow load and unload.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its key, PEM.")] = None,
    drain_s: Annotated[float, typer.Option(help="Still answer so long after SIGTERM.")] = 1.0,
    price: Annotated[float, typer.Option(help="Of an hour of this machine.")] = 0.0,
    engine: Annotated[str, typer.Option(help="own, or ray: on a cluster.")] = "own",
    replicas: Annotated[int | None, typer.Option(help="Ray, --emit: of each model.")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Ray, --emit: at most.")] = None,
    models_per_replica: Annotated[int, typer.Option(help="Ray: any model anywhere.")] = 0,
    cpus: Annotated[float, typer.Option(help="Ray, --emit: of a replica.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="Ray, --emit: of a replica.")] = 0.0,
    address: Annotated[str, typer.Option(help="Ray: a running cluster's.")] = "",
    emit: Annotated[str, typer.Option(help="Write files: docker, kubernetes or kserve.")] = "",
    out: Annotated[str, typer.Option("--out", "-o", help="--emit: folder for them.")] = "",
    image: Annotated[str, typer.Option(help="--emit: the image's name.")] = "",
    storage: Annotated[str, typer.Option(help="--emit kserve: where the bundle is.")] = "",
    force: Annotated[bool, typer.Option("--force", help="--emit: overwrite files.")] = False,
) -> int:
    """Serve bundles over the Open Inference Protocol."""
    options: dict[str, Any] = {
        "bundles": tuple(bundles), "host": host, "port": port, "grpc_port": grpc_port,
        "threads": threads, "workers": workers, "deadline_ms": deadline_ms, "queue": queue,
        "batch": batch, "batch_delay_ms": batch_delay_ms, "body_mb": body_mb, "body_s": body_s,
        "memory_mb": memory_mb, "lazy": lazy, "pinned": tuple(pin or ()), "keys": keys,
        "control": control, "tls_cert": tls_cert, "tls_key": tls_key, "drain_s": drain_s,
        "price": price,
    }  # fmt: skip
    wider: dict[str, Any] = {
        "replicas": replicas,
        "max_replicas": max_replicas,
        "cpus": cpus,
        "gpus": gpus,
    }
    wider = {name: value for name, value in wider.items() if value is not None}
    if emit:
        return _emit(emit, options | wider | {"image": image, "storage": storage}, out, force)
    if engine == "ray":
        return _on_ray(options | wider | {"models_per_replica": models_per_replica}, address)
    if engine != "own":
        raise _no_engine(engine)
    from edgeserve.serve import Options
    from edgeserve.serve import serve as run

    run(Options(**options))
    return 0


def _on_ray(fields: dict[str, Any], address: str) -> int:
    from edgeserve.serve.ray import run, scale_of

    run(scale_of(fields | {"address": address}))
    return 0


def _emit(kind: str, fields: dict[str, Any], out: str, force: bool) -> int:
    from edgeserve.serve.emit import Deployment, emit

    fields["gpus"] = int(fields["gpus"])
    written = emit(kind, Deployment(**fields), out or ".", force)
    print("\n".join(str(Path(out or ".", name)) for name in written))
    return 0


def _no_engine(engine: str) -> Exception:
    from edgeserve.errors import ServeError

    return ServeError(
        "EDGE-SERVE-002", "option engine", wanted="own or ray", got=repr(engine),
        hint="`edgeserve serve --help` lists the options and what they take",
    )  # fmt: skip


COMMANDS = {"serve": serve}
