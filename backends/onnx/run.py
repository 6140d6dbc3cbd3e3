"""ONNX Runtime sessions: quiet, without spinning threads, with a check of the provider in use."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.backends.checks import check_unlisted_files, unreadable
from edgeserve.backends.onnx import PROVIDERS
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime

#: Log severity "fatal": errors are raised, not logged as well.
_QUIET = 4

#: The folder for external weights of a single-file model: there must be none.
_NO_FOLDER = "/nonexistent"


def usable_delegates() -> tuple[str, ...]:
    """The delegates that this build of ONNX Runtime has, best first."""
    import onnxruntime

    built = set(onnxruntime.get_available_providers())
    return tuple(name for name, provider in PROVIDERS.items() if provider in built)


def _skip_exit_handlers() -> None:
    """In a forked child: the runtime's exit handlers wait for threads that the parent kept.

    Python has ended by then, and the process ends with the status that it has.
    """
    libc = ctypes.CDLL(None)
    if "onnxruntime" in sys.modules and hasattr(libc, "on_exit"):  # of glibc; the last one is first
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_skip_exit_handlers)


class OnnxSession(Session):
    """Runs an ONNX artifact.

    Attributes:
        placement: How many nodes each provider took, by ONNX Runtime's name for it; empty where
            this version does not tell.
    """

    def __init__(self, artifact: Artifact, root: Path, how: LoadOptions) -> None:
        import onnxruntime

        count, version = how.threads or usable_cores(), onnxruntime.__version__
        runtime = Runtime(name="onnxruntime", version=version, delegate=how.delegate)
        super().__init__(artifact.io, runtime, count)
        self._path = root / artifact.entry
        self._names = [*(spec.name for spec in artifact.io.outputs), *how.taps]
        options = _options(count, how.optimize)
        model = _model(artifact, root, how, options)
        self._engine: Any = _open(model, options, how.delegate)
        self.placement = _placement(self._engine)
        _check_placement(self.placement, how.delegate)
        _check_io(self._engine, artifact)

    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self._engine.run(self._names, feed)
        return dict(zip(self._names, outputs, strict=True))

    def index_bounds(self) -> dict[str, int]:
        """See `Session.index_bounds`."""
        from edgeserve.backends.onnx.inspect import index_bounds, read

        return index_bounds(read(self._path))

    def _close(self) -> None:
        self._engine = None


def _options(threads: int, optimize: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    # Idle threads that spin steal time from other sessions in the process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def _model(artifact: Artifact, root: Path, how: LoadOptions, options: Any) -> bytes | str:
    """What to open: the bytes of a lone file, else the path, so that the engine maps the weights.

    A lone file may not point to weights outside itself; of several, each must be listed and hashed.
    """
    path, folder = root / artifact.entry, Path(_NO_FOLDER)
    if len(artifact.files) > 1:
        folder = path.parent
        check_unlisted_files(artifact, root, folder)
    else:
        path = how.path(artifact, root)
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    if how.taps:
        from edgeserve.backends.onnx.inspect import with_taps

        return with_taps(path, how.taps)
    return str(path) if len(artifact.files) > 1 else path.read_bytes()


def _open(model: bytes | str, options: Any, delegate: str) -> Any:
    """Create the engine's session on this delegate; the CPU only runs unsupported nodes."""
    import onnxruntime

    wanted = PROVIDERS[delegate]
    providers = [wanted] if delegate == "cpu" else [wanted, PROVIDERS["cpu"]]
    try:
        engine = onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:  # the engine raises many kinds
        text = str(error).strip().splitlines()
        wanted = f"one that ONNX Runtime {onnxruntime.__version__} runs"
        got = text[0] if text else type(error).__name__
        raise unreadable(f"model on {delegate}", wanted, got) from error
    if wanted not in engine.get_providers():
        raise _not_used(delegate, f"ONNX Runtime fell back to {engine.get_providers()[0]}")
    engine.disable_fallback()
    return engine


def _placement(engine: Any) -> dict[str, int]:
    """Nodes of the optimised graph by the provider that runs them."""
    tell = getattr(engine, "get_provider_graph_assignment_info", None)
    counts: dict[str, int] = {}
    for part in tell() if tell else ():
        counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    return counts


def _check_placement(placement: Mapping[str, int], delegate: str) -> None:
    """Reject a provider that is loaded but runs no node."""
    if placement and not placement.get(PROVIDERS[delegate]):
        raise _not_used(delegate, f"it runs none of the graph's nodes: {dict(placement)}")


def _not_used(delegate: str, got: str) -> BackendError:
    thing = f"delegate {delegate!r}"
    wanted = "the requested delegate"
    hint = "install this delegate's driver and libraries, or ask for cpu"
    return BackendError("EDGE-BACKEND-005", thing, wanted=wanted, got=got, hint=hint)


def _check_io(engine: Any, artifact: Artifact) -> None:
    """Compare the engine's input and output names with the artifact's."""
    inputs = [value.name for value in engine.get_inputs()]
    outputs = [value.name for value in engine.get_outputs()]
    wanted_in = [spec.name for spec in artifact.io.inputs]
    wanted_out = [spec.name for spec in artifact.io.outputs]
    if inputs != wanted_in or outputs[: len(wanted_out)] != wanted_out:
        wanted = f"{wanted_in} -> {wanted_out}"
        raise unreadable(f"file {artifact.entry!r}", wanted, f"{inputs} -> {outputs}")
