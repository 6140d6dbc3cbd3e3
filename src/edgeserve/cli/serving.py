"""The command that serves bundles."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeserve.cli.app import command, show
from edgeserve.cli.options import given_options, parameters, with_parameters
from edgeserve.options import definitions
from edgeserve.serve.options import (
    EmitSettings,
    RaySettings,
    ServeCommand,
    ServeOptions,
    option_error,
)

_RAY, _EMIT = set(definitions(RaySettings)), set(definitions(EmitSettings))


def _listed() -> list[inspect.Parameter]:
    """All options once; those of Ray and of files have no default, so that a given one is seen."""
    wider = {p.name: p for kind in (EmitSettings, RaySettings) for p in parameters(kind)}
    unset = [parameter.replace(default=None) for parameter in wider.values()]
    return [*parameters(ServeOptions), *parameters(ServeCommand), *unset]


def serve(**values: Any) -> int:
    """Serve bundles over the Open Inference Protocol."""
    asked = ServeCommand(**given_options(ServeCommand, values))
    if asked.engine not in ("own", "ray"):
        raise option_error("engine", "own or ray", repr(asked.engine))
    fields = given_options(ServeOptions, values)
    wider = {name: v for name in _RAY | _EMIT if (v := values[name]) is not None}
    if asked.emit is None:
        files = {name: wider[name] for name in (_EMIT - _RAY) & wider.keys()}
        files |= {"out": asked.out} if asked.out is not None else {}
        files |= {"force": True} if asked.force else {}
        _reject(files, "--emit, which writes files")
    elif asked.engine == "ray":
        wanted = "own with --emit: the files are of Kubernetes or KServe"
        raise option_error("engine", wanted, "ray")
    if asked.engine == "own":
        of_ray = {name: wider[name] for name in (_RAY - _EMIT) & wider.keys()}
        _reject(of_ray, "--engine ray, which runs replicas")
    if asked.emit is not None:
        return _emit(asked, asked.emit, fields | wider, bool(values["json_"]))
    if asked.engine == "ray":
        from edgeserve.serve.ray import ray_options, run

        run(ray_options(fields | wider))
        return 0
    _reject(wider, "--engine ray or --emit, which has replicas")
    from edgeserve.serve import serve as run_server

    run_server(ServeOptions(**fields))
    return 0


def _reject(given: Mapping[str, Any], of: str) -> None:
    """Reject options that nothing would read."""
    for name in sorted(given):
        raise option_error(name, f"{of}, or no such option", repr(given[name]))


def _emit(asked: ServeCommand, kind: str, fields: dict[str, Any], as_json: bool) -> int:
    from edgeserve.serve.emit import Deployment, emit

    out = "." if asked.out is None else asked.out
    if not out:
        raise option_error("out", "a folder", "an empty text")
    written = emit(kind, Deployment(**fields), out, asked.force)
    paths = [str(Path(out, name)) for name in written]
    document = {"schema": 1, "out": out, "files": paths}
    return show(as_json, lambda: document, lambda: print("\n".join(paths)))


COMMANDS = {"serve": lambda: command(with_parameters(serve, _listed()))}
