"""LiteRT sessions: the interpreter with its XNNPACK kernels on the CPU, or a GPU.

``optimize=False`` and taps disable XNNPACK: the interpreter's own kernels run the file op by op.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgeserve.backends.checks import unknown_taps, unreadable
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.backends.tflite.schema import check_head
from edgeserve.environment import usable_cores
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime
from edgeserve.types.tensors import IO


def open_session(artifact: Artifact, root: Path, how: LoadOptions) -> Session:
    """Open a file whose hash has been checked.

    Raises:
        BackendError: EDGE-BACKEND-005 the GPU cannot run it, -012 the engine refuses it, -014
            unknown tap.
    """
    check_head(how.path(artifact, root))
    if how.delegate == "gpu":
        from edgeserve.backends.tflite.gpu import GpuSession

        return GpuSession(artifact, root, how)
    return TfliteSession(artifact, root, how)


def runtime_of(delegate: str) -> Runtime:
    """LiteRT's name and version with a delegate."""
    return Runtime(
        name="litert", version=importlib.metadata.version("ai-edge-litert"), delegate=delegate
    )


class TfliteSession(Session):
    """Runs a file on the CPU; one run at a time, as the engine keeps its tensors between calls."""

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        count, taps = how.threads or usable_cores(), how.taps
        super().__init__(artifact.io, runtime_of("cpu"), count, artifact.buckets)
        self._lock = threading.Lock()
        path = how.path(artifact, root)
        plain = bool(taps) or not how.optimize
        self._engine: Any = _open(path, count, plain=plain, keep=bool(taps))
        keys = check_signatures(self._engine.get_signature_list(), self.buckets, artifact.entry)
        self._runners = [self._engine.get_signature_runner(key) for key in keys]
        self._taps = [_tap_locations(path, io, taps) for io in self.buckets]

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        bucket = self._bucket(feed)
        with self._lock:
            if not self._runners:
                raise RuntimeError("the session was closed during a run")
            found = self._runners[bucket](**feed)
            inner = {name: self._tapped(place) for name, place in self._taps[bucket].items()}
        return {spec.name: found[spec.name] for spec in self.io.outputs} | inner

    def _tapped(self, place: _TapLocation) -> np.ndarray:
        """The values of an activation; a quantized one is dequantized to float32."""
        found: np.ndarray = self._engine.get_tensor(place.tensor, place.graph)
        if place.scale is None or found.dtype.kind not in "iu":
            return found
        return np.asarray((found.astype(np.float32) - place.zero) * place.scale, np.float32)

    def _close(self) -> None:
        with self._lock:
            self._runners = []
            self._engine = None


def _open(path: Path, threads: int, plain: bool, keep: bool) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = OpResolverType
    try:
        engine = Interpreter(
            model_path=str(path),
            num_threads=threads,
            experimental_op_resolver_type=(
                kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else kinds.AUTO
            ),
            experimental_preserve_all_tensors=keep,
        )
        engine.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        wanted = f"one that {runtime_of('cpu').name} {runtime_of('cpu').version} runs"
        got = str(error).strip().partition("\n")[0]
        raise unreadable("model on cpu", wanted, got) from error
    return engine


def check_signatures(
    found: Mapping[str, Mapping[str, list[str]]], buckets: tuple[IO, ...], entry: str
) -> list[str]:
    """The keys of the signatures to run, after a comparison with those that the artifact declares.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    keys = [io.signature or next(iter(found), "") for io in buckets]
    declared = {
        key: ({s.name for s in io.inputs}, {s.name for s in io.outputs})
        for key, io in zip(keys, buckets, strict=True)
    }
    seen = {key: (set(each["inputs"]), set(each["outputs"])) for key, each in found.items()}
    if declared != seen:
        raise unreadable(f"file {entry!r}", f"signatures {declared}", f"{seen}")
    return keys


class _TapLocation(NamedTuple):
    """The index of a tensor, and its quantization parameters."""

    tensor: int
    graph: int
    scale: np.float32 | None
    zero: np.float32


def _tap_location(model: Any, tensor: int, graph: int) -> _TapLocation:
    quantized = model.subgraphs[graph].tensors[tensor].quantization
    scales = None if quantized is None else quantized.scale
    if scales is None or len(scales) != 1:
        return _TapLocation(tensor, graph, None, np.float32(0))
    return _TapLocation(tensor, graph, np.float32(scales[0]), np.float32(quantized.zeroPoint[0]))


def _tap_locations(path: Path, io: IO, taps: tuple[str, ...]) -> dict[str, _TapLocation]:
    """The locations of the tapped tensors in a signature's graph, by name.

    A name is that of the largest signature's graph; in the others it is followed by ``@`` and the
    signature.

    Raises:
        BackendError: EDGE-BACKEND-014.
    """
    if not taps:
        return {}
    from edgeserve.backends.tflite.inspect import definition_of, shown_names
    from edgeserve.backends.tflite.schema import read_model

    model = read_model(path)
    graph = definition_of(model, io.signature).subgraphIndex
    names = [name.removesuffix(f"@{io.signature}") for name in shown_names(model, io)]
    edges = {spec.name for spec in (*io.inputs, *io.outputs)}
    found = {name: index for index, name in enumerate(names) if name not in edges}
    if unknown := [tap for tap in taps if tap not in found]:
        raise unknown_taps(unknown)
    return {tap: _tap_location(model, found[tap], graph) for tap in taps}
