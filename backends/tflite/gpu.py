"""A TFLite file on a GPU, through LiteRT's `CompiledModel`; a wheel carries the library for WebGPU.

The engine would run unsupported ops on the CPU; here the GPU must run all ops.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.backends.session import LoadOptions, Session, numpy_dtype
from edgeserve.backends.tflite.run import check_signatures, runtime_of
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO


def has_gpu_library() -> bool:
    """Whether LiteRT's GPU library and the system's loader of GPU drivers are there.

    No device is started: support for a model is checked when it is loaded.
    """
    found = importlib.util.find_spec("ai_edge_litert")
    folders = found.submodule_search_locations if found else None
    held = any(list(Path(folder).glob("libLiteRt*GpuAccelerator.*")) for folder in folders or ())
    return held and _has_loader()


def _has_loader() -> bool:
    """Whether the library that finds the GPU's drivers is there; other systems bring theirs."""
    if sys.platform != "linux":
        return True
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return False
    return True


class GpuSession(Session):
    """Runs a file on the GPU in float32; one run at a time."""

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        if how.taps or not how.optimize:
            raise _gpu_error(
                "the GPU delegate exposes no activations and always optimizes its graph"
            )
        threads = how.threads or usable_cores()
        super().__init__(artifact.io, runtime_of("gpu"), threads, artifact.buckets)
        self._lock = threading.Lock()
        self._model: Any = _compile(how.path(artifact, root))
        self._keys = check_signatures(
            self._model.get_signature_list(), self.buckets, artifact.entry
        )
        self._buffers = [
            self._make(key, io) for key, io in zip(self._keys, self.buckets, strict=True)
        ]

    def _make(self, key: str, io: IO) -> tuple[dict[str, Any], dict[str, Any]]:
        """Buffers of a signature's inputs and outputs, by name."""
        model = self._model
        return (
            {s.name: model.create_input_buffer_by_name(key, s.name) for s in io.inputs},
            {s.name: model.create_output_buffer_by_name(key, s.name) for s in io.outputs},
        )

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        bucket = self._bucket(feed)
        with self._lock:
            inputs, outputs = self._buffers[bucket]
            for name, array in feed.items():
                inputs[name].write(np.ascontiguousarray(array))
            self._model.run_by_name(self._keys[bucket], inputs, outputs)
            return {s.name: _read(outputs[s.name], s) for s in self.buckets[bucket].outputs}

    def _close(self) -> None:
        with self._lock:
            for buffer in (b for pair in self._buffers for side in pair for b in side.values()):
                buffer.destroy()
            self._buffers = []
            self._model.close()


def _read(buffer: Any, spec: Any) -> np.ndarray:
    dtype = numpy_dtype(spec.dtype, spec.name)
    count = int(np.prod(spec.shape, dtype=np.int64))
    return np.array(buffer.read(count, dtype)).reshape(spec.shape)


def _compile(path: Path) -> Any:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import GpuOptions, Options

    options = Options(HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=True))
    try:
        model = CompiledModel.from_file(str(path), options=options)
    except RuntimeError as error:
        raise _gpu_error(str(error).strip().partition("\n")[0]) from error
    if not model.is_fully_accelerated():
        raise _gpu_error("the GPU supports only some of the ops")
    return model


def _gpu_error(got: str) -> BackendError:
    wanted = "a GPU that runs the whole model"
    hint = "install a Vulkan driver for the GPU, or ask for cpu"
    return BackendError("EDGE-BACKEND-005", "delegate 'gpu'", wanted=wanted, got=got, hint=hint)
