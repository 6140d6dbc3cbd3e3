"""`build` makes the Ray Serve application, `run` serves it until it is told to end."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from edgeserve.bundle import open_model
from edgeserve.errors import ServeError
from edgeserve.installation import install_command
from edgeserve.serve.ray.ingress import Ingress
from edgeserve.serve.ray.options import Cascade, RayOptions, ray_options
from edgeserve.serve.ray.replica import ModelReplica
from edgeserve.serve.telemetry import Log
from edgeserve.tasks import REGISTRY, schema
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.types.manifest import Manifest

#: How often Ray asks a replica whether it is well, and how long it waits for the answer, seconds.
_HEALTH = {"health_check_period_s": 2, "health_check_timeout_s": 10}


def build(args: Mapping[str, Any] | RayOptions) -> Any:
    """The application: a front, and behind it a deployment for each model, or one for all.

    Args:
        args: Fields of `RayOptions`: what ``serve run`` or a configuration's ``args`` hands over.

    Raises:
        ServeError: EDGE-SERVE-040 no Ray, -041 a field, -003 two bundles of one name.
        BundleError: a bundle cannot be read here. Each node needs it at the same path.
    """
    serve = _serve()
    scale = ray_options(args)
    return _bound(serve, scale, _checked_bundles(scale))


def _bound(serve: Any, scale: RayOptions, paths: Mapping[str, str]) -> Any:
    """Ray's value of the application, of bundles that were checked."""
    many = {
        "max_ongoing_requests": scale.ongoing,
        "max_queued_requests": scale.queue,
        **_HEALTH,
        "ray_actor_options": {"num_cpus": scale.cpus, "num_gpus": scale.gpus},
        **_replicas(scale),
    }
    if scale.models_per_replica:
        one = serve.deployment(ModelReplica, name="models", **many).bind(scale, paths)
        handles = dict.fromkeys(paths, one)
    else:
        handles = {
            name: serve.deployment(ModelReplica, name=name, **many).bind(scale, {name: path})
            for name, path in paths.items()
        }
    fronts = scale.fronts or _nodes()
    front = serve.deployment(
        serve.ingress(None)(Ingress),
        name="front",
        num_replicas=fronts,
        max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0},
        **_HEALTH,
        **({"max_replicas_per_node": 1} if fronts > 1 else {}),
    )
    return front.bind(scale, handles)


def _nodes() -> int:
    """Nodes of the cluster that this process is connected to; 1 where it is to none."""
    ray: Any = importlib.import_module("ray")  # which is typed in parts
    return sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else 1


def run(scale: RayOptions, log: Log | None = None, end: threading.Event | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C (or ``end``), then let what runs finish.

    Raises:
        ServeError: as `build`; EDGE-SERVE-040, a cluster cannot be had.
    """
    scale.check_access()
    serve, log, end = _serve(), log or Log(), end or threading.Event()
    paths = _checked_bundles(scale)
    with _own_signals():
        _connect(scale)
    port = scale.port or _free_port(scale.host)
    try:
        http: dict[str, Any] = {"host": scale.host, "port": port}
        http |= {"ssl_certfile": scale.tls_cert, "ssl_keyfile": scale.tls_key}
        place = "EveryNode" if scale.address else "HeadOnly"
        serve.start(proxy_location=place, http_options=http)
        serve.run(_bound(serve, scale, paths), name="edgeserve", route_prefix="/")
        log.event("serving", host=scale.host, port=port, engine="ray")
        end.wait()
    except KeyboardInterrupt:
        pass
    finally:
        log.event("draining")
        _leave(scale, serve)
    log.event("ended")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Undo what Ray does about SIGTERM when it starts: it would end this process in the middle."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    with contextlib.suppress(ValueError):  # in another thread than the main one nothing was done
        signal.signal(signal.SIGTERM, before)


def _leave(scale: RayOptions, serve: Any) -> None:
    """Take the application away; a cluster that was there before stays."""
    import ray

    if scale.address:
        serve.delete("edgeserve")
    else:
        serve.shutdown()
    ray.shutdown()


def _serve() -> Any:
    # Nothing is told to anybody (docs/decisions/0008); to be said before Ray is loaded.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        from ray import serve
    except ImportError as error:
        raise ServeError(
            "EDGE-SERVE-040",
            "engine ray",
            wanted="the packages of the extra `ray`",
            got=str(error),
            hint=install_command("ray"),
        ) from error
    return serve


def _connect(scale: RayOptions) -> None:
    import ray

    try:
        if not ray.is_initialized():
            local: dict[str, Any] = {} if scale.address else {"include_dashboard": False}
            ray.init(address=scale.address or "local", log_to_driver=True, **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ServeError(
            "EDGE-SERVE-040",
            f"Ray cluster {scale.address or 'of this machine'}",
            wanted="one to connect to",
            got=str(error),
            hint="start it with `ray start --head`, or leave the address out",
        ) from error


def _replicas(scale: RayOptions) -> dict[str, Any]:
    if scale.max_replicas is None:
        return {"num_replicas": scale.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": scale.replicas,
            "max_replicas": scale.max_replicas,
            "target_ongoing_requests": scale.target,
            "upscale_delay_s": 5,
            "downscale_delay_s": 120,
        }
    }


def _checked_bundles(scale: RayOptions) -> dict[str, str]:
    """Paths of the bundles by the name of their model, once all fits together."""
    models: dict[str, Manifest] = {}
    paths: dict[str, str] = {}
    for path in scale.bundles:
        with open_model(path) as model:
            manifest = model.manifest
        if manifest.name in ("front", "models", *models):
            raise ServeError(
                "EDGE-SERVE-003",
                f"model {manifest.name}",
                wanted="one bundle of each name",
                got="two, or a name that Ray's own deployments have here",
                hint="package one of them again with another --name",
            )
        models[manifest.name], paths[manifest.name] = manifest, path
    for chain in scale.chains:
        _check_cascade(chain, models)
    return paths


def _check_cascade(chain: Cascade, models: Mapping[str, Manifest]) -> None:
    if missing := chain.models - models.keys():
        raise _cascade_error(chain, f"models of {', '.join(sorted(models))}", ", ".join(missing))
    if chain.name in models:
        raise _cascade_error(chain, "a name of its own", "that of a model")
    record = Detection if chain.crop else Classification
    wanted = [task for task in REGISTRY if schema(task).record is record]
    if models[chain.first].task not in wanted:
        raise _cascade_error(chain, f"a first model for {wanted[0]}", models[chain.first].task)


def _cascade_error(chain: Cascade, wanted: str, got: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-041",
        f"Ray application, chain {chain.name}",
        wanted=wanted,
        got=got,
        hint="docs/guide/scale-out.md shows both kinds of composition",
    )


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])
