"""Core ML sessions: the interpreter on any system, Apple's own runtime on a Mac."""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve import __version__
from edgeserve.backends.checks import check_unlisted_files, unknown_taps, unreadable
from edgeserve.backends.coreml.coremltools_import import coremltools, quiet
from edgeserve.backends.coreml.spec import read_spec
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError, MilError
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime
from edgeserve.types.tensors import Shape
from edgeserve.verified_files import VerifiedFiles

#: Codes of the interpreter, mapped to those of a backend.
_UNKNOWN_TAP = "EDGE-BACKEND-014"
_UNREADABLE = {"EDGE-MIL-002", "EDGE-MIL-003", "EDGE-MIL-004", "EDGE-MIL-005", "EDGE-MIL-009"}
_NO_TAP, _NO_OP = "EDGE-MIL-008", "EDGE-MIL-001"


def open_session(artifact: Artifact, root: Path, how: LoadOptions) -> Session:
    """Open a package whose files have been checked.

    Raises:
        BackendError: EDGE-BACKEND-005 this engine cannot run it, -012 damaged, -014 unknown tap,
            -016 a file that is not listed.
    """
    read_spec(artifact, root)
    check_unlisted_files(artifact, root, root / artifact.entry)
    if how.delegate == "coreml":
        return CoremlSession(artifact, root, how)
    return InterpreterSession(artifact, root, how)


class InterpreterSession(Session):
    """Runs a package with our own interpreter, function by function.

    Each function is loaded when it is first needed, its files compared with their hashes anew. An
    image input takes uint8 [1, height, width, 3]. Taps come back in the program's own
    dtype, float16 too; they are names of the largest function, whose graph `inspect` shows;
    another function returns those that it has.
    """

    simulated = True

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        runtime = Runtime(name="edgeserve-mil", version=__version__, delegate="interpreter")
        super().__init__(artifact.io, runtime, how.threads or usable_cores(), artifact.buckets)
        self._artifact, self._root, self._taps = artifact, root, how.taps
        self._lock = threading.Lock()
        self._loaded: dict[str | None, Any] = {}
        engine = self._engine(artifact.io.signature)
        halves = any("fp16" in op.dtypes for op in engine.ops)
        self.note = f"{'fp16 rounding' if halves else 'float32'}; not on Apple hardware"

    def _engine(self, signature: str | None) -> Any:
        with self._lock:
            if signature not in self._loaded:
                # The caller does so for the first one.
                with VerifiedFiles(self._artifact.files, self._root, bool(self._loaded)) as files:
                    loaded = self._interpreter(signature)
                    files.check_names()
                self._loaded[signature] = loaded
            return self._loaded[signature]

    def _interpreter(self, signature: str | None) -> Any:
        given = self._artifact, self._root, signature
        try:
            return _interpreter(*given, self._taps)
        except BackendError as error:
            if error.code != _UNKNOWN_TAP or signature == self._artifact.io.signature:
                raise
        made = {name for op in _interpreter(*given, ()).ops for name in op.outputs}
        return _interpreter(*given, tuple(tap for tap in self._taps if tap in made))

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        from edgeserve.backends.torch.program.run import torch_threads

        engine = self._engine(self.buckets[self._bucket(feed)].signature)
        given = {n: array[0] if n in engine.images else array for n, array in feed.items()}
        with torch_threads(self.threads):
            outputs: dict[str, np.ndarray] = engine.run(given)
        return outputs | _fp16_taps(engine, self._taps, outputs)

    def _close(self) -> None:
        self._loaded = {}


def _fp16_taps(
    engine: Any, taps: tuple[str, ...], outputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The taps that are float16 in the program, as float16; they are rounded already."""
    half = {
        name
        for op in engine.ops
        for name, dtype in zip(op.outputs, op.dtypes, strict=True)
        if dtype == "fp16"
    }
    return {tap: outputs[tap].astype(np.float16) for tap in taps if tap in half and tap in outputs}


def _interpreter(
    artifact: Artifact, root: Path, function: str | None, taps: tuple[str, ...]
) -> Any:
    coremltools()  # before the interpreter imports it, more slowly
    from edgeserve.backends.coreml.interpreter import Interpreter

    try:
        with quiet():
            return Interpreter(root / artifact.entry, function=function, taps=taps)
    except MilError as error:
        raise _backend_error(artifact, error) from error


def _backend_error(artifact: Artifact, error: MilError) -> BackendError:
    """The interpreter's error as an error of a backend."""
    if error.code == _NO_TAP:
        return unknown_taps(error.message)
    if error.code == _NO_OP:
        thing = f"interpreter for {artifact.name}"
        wanted = "a program whose operations it supports"
        hint = "validate this artifact on a Mac, or convert by the route core-aten"
        return BackendError("EDGE-BACKEND-005", thing, wanted=wanted, got=error.message, hint=hint)
    if error.code in _UNREADABLE:
        wanted = "a program that can be run"
        return unreadable(f"package {artifact.entry!r}", wanted, error.message)
    return error


class CoremlSession(Session):
    """Runs a package with Core ML itself; follows Apple's documentation, untested on a Mac."""

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        if how.taps:
            wanted = "none, as Core ML exposes no activations"
            got = f"{list(how.taps)}"
            hint = "ask for the delegate interpreter"
            raise BackendError("EDGE-BACKEND-014", "taps", wanted=wanted, got=got, hint=hint)
        runtime = Runtime(name="coreml", version=platform.mac_ver()[0], delegate="coreml")
        super().__init__(artifact.io, runtime, how.threads or usable_cores(), artifact.buckets)
        self._path = str(root / artifact.entry)
        self._models = {io.signature: self._open(io.signature) for io in self.buckets}

    def _open(self, function: str | None) -> Any:
        try:
            return coremltools().models.MLModel(self._path, function_name=function)
        except Exception as error:  # the system raises many kinds
            got, hint = str(error).strip().partition("\n")[0], "make the artifact again"
            raise unreadable("model on coreml", "one that this system runs", got, hint) from error

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        model = self._models[self.buckets[self._bucket(feed)].signature]
        given = {name: _model_input(array) for name, array in feed.items()}
        outputs = model.predict(given)
        return {
            spec.name: _shaped(np.asarray(outputs[spec.name], dtype=spec.dtype), spec.shape)
            for spec in self.io.outputs
        }

    def _close(self) -> None:
        self._models = {}


def _shaped(array: np.ndarray, shape: Shape) -> np.ndarray:
    """In the declared shape; unchanged if that has dynamic sizes."""
    sizes = [size for size in shape if isinstance(size, int)]
    return array.reshape(sizes) if len(sizes) == len(shape) else array


def _model_input(array: np.ndarray) -> Any:
    """An image as Core ML takes it; other arrays unchanged."""
    if array.dtype != np.uint8:
        return array
    from PIL import Image

    return Image.fromarray(array[0])
