"""The command that serves bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgeserve.cli.app import Json, command, print_json

__all__ = ["COMMANDS"]


@command
def serve(
    bundles: Annotated[list[str], typer.Argument(metavar="BUNDLE...", help="Bundles to serve.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of REST; 0: any.")] = 8080,
    grpc_port: Annotated[int | None, typer.Option(help="Port of gRPC; without it, none.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of an inference (default: measured).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Parallel inferences (default: measured).")
    ] = None,
    deadline_ms: Annotated[float, typer.Option(help="Default deadline of requests, ms.")] = 5000.0,
    queue: Annotated[int, typer.Option(help="Queue length of each model.")] = 256,
    batch: Annotated[int, typer.Option(help="Largest batch of shared requests.")] = 1,
    batch_delay_ms: Annotated[float, typer.Option(help="Max wait to fill a batch, ms.")] = 2.0,
    body_mb: Annotated[int, typer.Option(help="Max request body, MB.")] = 64,
    body_s: Annotated[float, typer.Option(help="Max time to receive a body, s.")] = 30.0,
    memory_mb: Annotated[int | None, typer.Option(help="Budget of all loaded models.")] = None,
    lazy: Annotated[bool, typer.Option("--lazy", help="Load at the first request.")] = False,
    pin: Annotated[
        list[str] | None, typer.Option(help="Never evict this model (repeatable).")
    ] = None,
    keys: Annotated[str | None, typer.Option(help="File of API keys.")] = None,
    control: Annotated[bool | None, typer.Option(help="Allow load and unload.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Private key file (PEM).")] = None,
    drain_s: Annotated[float, typer.Option(help="Grace period after SIGTERM, s.")] = 1.0,
    price: Annotated[float, typer.Option(help="Cost of one machine hour, for the metric.")] = 0.0,
    engine: Annotated[str, typer.Option(help="own, or ray: on a cluster.")] = "own",
    replicas: Annotated[int | None, typer.Option(help="Ray, --emit: of each model.")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Ray, --emit: at most.")] = None,
    models_per_replica: Annotated[int | None, typer.Option(help="Ray: any model anywhere.")] = None,
    cpus: Annotated[float | None, typer.Option(help="Ray, --emit: of a replica; else 1.")] = None,
    gpus: Annotated[float | None, typer.Option(help="Ray, --emit: of a replica; else 0.")] = None,
    address: Annotated[str | None, typer.Option(help="Ray: a running cluster's.")] = None,
    emit: Annotated[
        str | None, typer.Option(help="Write files: docker, kubernetes or kserve.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="--emit: folder for them; else this one.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="--emit: the image's name.")] = None,
    storage: Annotated[str | None, typer.Option(help="--emit kserve: where the bundle is.")] = None,
    force: Annotated[bool, typer.Option("--force", help="--emit: overwrite files.")] = False,
    json_: Json = False,
) -> int:
    """Serve bundles over the Open Inference Protocol."""
    options: dict[str, Any] = {
        "bundles": tuple(bundles),
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "threads": threads,
        "workers": workers,
        "deadline_ms": deadline_ms,
        "queue": queue,
        "batch": batch,
        "batch_delay_ms": batch_delay_ms,
        "body_mb": body_mb,
        "body_s": body_s,
        "memory_mb": memory_mb,
        "lazy": lazy,
        "pinned": tuple(pin or ()),
        "keys": keys,
        "control": control,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "drain_s": drain_s,
        "price": price,
    }
    if engine not in ("own", "ray"):
        raise _wrong("engine", "own or ray", repr(engine))
    wider = _given(replicas=replicas, max_replicas=max_replicas, cpus=cpus, gpus=gpus)
    ray = _given(models_per_replica=models_per_replica, address=address)
    files = _given(out=out, image=image, storage=storage, force=force or None)
    if emit is None:
        _belong(files, "--emit", "writes files")
    elif engine == "ray":
        raise _wrong("engine", "own with --emit: the files are of Kubernetes or KServe", "ray")
    if engine == "own":
        _belong(ray, "--engine ray", "runs replicas")
    if emit is not None:
        return _emit(emit, options | wider, files, json_)
    if engine == "ray":
        return _on_ray(options | wider | ray)
    _belong(wider, "--engine ray or --emit", "has replicas")
    from edgeserve import serve as room

    room.serve(room.ServeOptions(**options))
    return 0


def _given(**values: Any) -> dict[str, Any]:
    """The options that were named on the command line."""
    return {name: value for name, value in values.items() if value is not None}


def _belong(given: dict[str, Any], to: str, which: str) -> None:
    """Refuse options that would be read by nobody."""
    for name, value in given.items():
        raise _wrong(name, f"{to}, which {which}, or no such option", repr(value))


def _on_ray(fields: dict[str, Any]) -> int:
    from edgeserve.serve.ray import ray_options, run

    run(ray_options(fields))
    return 0


def _emit(kind: str, fields: dict[str, Any], files: dict[str, Any], as_json: bool) -> int:
    from edgeserve.serve.emit import Deployment, emit

    out, force = files.pop("out", "."), files.pop("force", False)
    if not out:
        raise _wrong("out", "a folder", "an empty text")
    if fields.get("gpus", 0.5).is_integer():
        fields["gpus"] = int(fields["gpus"])
    written = emit(kind, Deployment(**fields, **files), out, force)
    paths = [str(Path(out, name)) for name in written]
    if as_json:
        print_json({"schema": 1, "out": out, "files": paths})
    else:
        print("\n".join(paths))
    return 0


def _wrong(option: str, wanted: str, got: str) -> Exception:
    from edgeserve.serve.options import option_error

    return option_error(option, wanted, got)


COMMANDS = {"serve": serve}
