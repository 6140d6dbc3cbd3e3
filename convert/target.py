"""The verb that makes one artifact: the backend's routes are tried in order until one works."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.convert.request import TargetRequest
from edgeserve.convert.source import read_export
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.files import LOCAL, Fs
from edgeserve.jobs import progress
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

__all__ = ["convert_target", "try_routes"]


def convert_target(request: TargetRequest) -> Artifact:
    """Make the candidate that ``request`` asks for, its files in ``request.out``.

    Raises:
        ConvertError: EDGE-CONVERT-021 a precision that this version does not make, or what the
        first
            route said.
        UnsupportedOp: an op that the format cannot express.
        BackendError: the format is unknown or its packages are missing.
    """
    backend = backends.get(request.format)
    if request.precision != "fp32":
        raise ConvertError(
            "EDGE-CONVERT-021", f"{request.format} {request.precision}", wanted="fp32",
            got=f"{request.precision}, which is not in this version of edgeserve",
            hint="ask for --precision fp32",
        )  # fmt: skip
    root = Path(request.source_folder)
    return try_routes(backend, read_export(root), root, Path(request.out), request.routes)


def try_routes(
    backend: Backend, exported: Exported, root: Path, out: Path, routes: Sequence[str] = (),
    fs: Fs = LOCAL,
) -> Artifact:  # fmt: skip
    """Export by the first route that works; the log tells how each of them went.

    Raises:
        EdgeError: what the first route said, if none works: it is the one meant for most models.
    """
    first: EdgeError | None = None
    out.mkdir(parents=True, exist_ok=True)
    for route in routes or backend.routes():
        progress(f"convert to {backend.format} by {route}")
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
            try:
                artifact = backend.export(exported, root, Path(stage), route)
            except (ConvertError, UnsupportedOp) as error:
                print(f"route {route!r} failed: {error}", flush=True)
                first = first or error
                continue
            for entry in artifact.files:
                target = out / entry.path
                fs.mkdir(target.parent)
                shutil.move(Path(stage) / entry.path, target)
        print(f"route {route!r} worked", flush=True)
        return artifact
    assert first is not None  # a backend has at least one route
    raise first
