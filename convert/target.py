"""The verb that makes one artifact: exported by a route, or derived from the fp32 one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.convert.calibration import calibration
from edgeserve.convert.onnx_to_torch import IMPORTED, convert_to_torch
from edgeserve.convert.request import TargetRequest
from edgeserve.convert.source import read_export
from edgeserve.data import Feed
from edgeserve.errors import ConvertError, EdgeError, QuantizeError, UnsupportedOp
from edgeserve.files import LOCAL
from edgeserve.jobs import progress
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.source import Exported


def convert_target(request: TargetRequest) -> Artifact:
    """Make the candidate that ``request`` asks for, its files in ``request.out``.

    Raises:
        ConvertError: EDGE-CONVERT-021 a precision that the format is not made in, or what the first
            route said.
        UnsupportedOp: an op that the format cannot express.
        BackendError: the format is unknown or its packages are missing.
        QuantizeError: there is nothing to calibrate with, or the precision could not be derived.
        DataError: the data cannot be used.
    """
    backend = backends.get(request.format)
    if request.precision not in backend.precisions:
        where = f"{request.format} {request.precision}"
        wanted = f"{request.format} in {', '.join(backend.precisions)}"
        got = f"{request.precision}, which this version does not make"
        hint = f"ask for --precision {backend.precisions[-1]}"
        raise ConvertError("EDGE-CONVERT-021", where, wanted=wanted, got=got, hint=hint)
    root = Path(request.source_folder)
    exported = read_export(root)
    if request.precision in backend.native:
        out = Path(request.out)
        return try_routes(
            backend, exported, root, out, request.routes, request.precision, request.options
        )
    return _quantize(request, backend, exported, root)


def _quantize(request: TargetRequest, backend: Backend, exported: Exported, root: Path) -> Artifact:
    """Quantize the fp32 artifact, the one given or one made in passing."""
    samples: Iterable[Feed] = ()
    count = 0
    if request.precision in backend.calibrated:
        feeds = calibration(exported, root, request.data, request.seed, request.calibration)
        samples, count = feeds, len(feeds)
    recipe = recipe_of(request, count)
    with _parent(request, backend, exported, root) as (parent, folder):
        progress(f"quantize {backend.format} to {request.precision}")
        return backend.quantize(parent, folder, recipe, samples, Path(request.out))


def recipe_of(request: TargetRequest, samples: int) -> Recipe:
    """The recipe that a request asks a backend for; what it leaves open the backend decides.

    Args:
        request: What to make.
        samples: How many samples there are to calibrate with; 0 where it is not calibrated.
    """
    options: dict[str, str] = {}
    if samples:
        options = {"samples": str(samples), "seed": str(request.seed)}
    if request.activation is not None:
        options["activation"] = request.activation
    if request.reduce_range is not None:
        options["reduce_range"] = "true" if request.reduce_range else "false"
    return Recipe(precision=request.precision, keep_float=request.keep_float, options=options)


@contextmanager
def _parent(
    request: TargetRequest, backend: Backend, exported: Exported, root: Path
) -> Iterator[tuple[Artifact, Path]]:
    """The fp32 artifact to derive from, and the folder of its files."""
    given = request.parent_artifact
    if given is not None and request.parent is not None:
        if (given.format, given.precision) != (backend.format, "fp32"):
            raise QuantizeError(
                "EDGE-QUANTIZE-007",
                "parent artifact",
                wanted=f"{backend.format}-fp32",
                got=given.name,
                hint="give the fp32 artifact of the same format, or none",
            )
        yield given, Path(request.parent)
        return
    out = Path(request.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-fp32-", dir=out) as folder:
        made = try_routes(
            backend, exported, root, Path(folder), request.routes, options=request.options
        )
        yield made, Path(folder)


def try_routes(
    backend: Backend,
    exported: Exported,
    root: Path,
    out: Path,
    routes: Sequence[str] = (),
    precision: str = "fp32",
    options: Mapping[str, str] | None = None,
) -> Artifact:
    """Export by the first route that works; the log tells how each of them went.

    An ONNX source goes through its PyTorch form where the format is made from PyTorch only.

    Raises:
        EdgeError: what the first route said, if none works: it is the one meant for most models.
    """
    out.mkdir(parents=True, exist_ok=True)
    first: EdgeError | None = None
    with _source_for_backend(backend, exported, root, out) as (taken, folder):
        for route in routes or backend.routes():
            progress(f"convert to {backend.format} by {route}")
            with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
                try:
                    made = backend.export(taken, folder, Path(stage), route, precision, options)
                except (ConvertError, UnsupportedOp) as error:
                    print(f"route {route!r} failed: {error}", flush=True)
                    first = first or error
                    continue
                for entry in made.files:
                    LOCAL.mkdir((out / entry.path).parent)
                    shutil.move(Path(stage) / entry.path, out / entry.path)
            break
        else:
            assert first is not None  # a backend has at least one route
            raise first
    rewritten = ", ".join(made.provenance.rewrites) or "nothing"
    print(f"route {route!r} worked; rewritten on the way: {rewritten}", flush=True)
    if taken is exported:
        return made
    rewrites = (IMPORTED, *made.provenance.rewrites)
    provenance = msgspec.structs.replace(made.provenance, rewrites=rewrites)
    return msgspec.structs.replace(made, provenance=provenance)


@contextmanager
def _source_for_backend(
    backend: Backend, exported: Exported, root: Path, folder: Path
) -> Iterator[tuple[Exported, Path]]:
    """The source as a backend takes it, and the folder of its files: itself, or its PyTorch form.

    Raises:
        UnsupportedOp: see `convert_to_torch`.
        ConvertError: see `convert_to_torch`.
    """
    if exported.format in backend.takes or "torch" not in backend.takes:
        yield exported, root
        return
    with tempfile.TemporaryDirectory(prefix=".tmp-torch-", dir=folder) as made:
        progress("import the ONNX file into PyTorch")
        yield convert_to_torch(exported, root, Path(made)), Path(made)
