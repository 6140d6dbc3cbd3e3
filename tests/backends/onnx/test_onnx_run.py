"""ONNX Runtime sessions: delegates are real, nothing is printed, threads do not spin."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import onnxruntime
import pytest

from edgeserve import backends
from edgeserve.backends.base import check_files
from edgeserve.backends.onnx.run import _check_placement
from edgeserve.environment import usable_cores
from edgeserve.errors import BackendError


def test_the_cpu_build_has_the_cpu_and_says_so(zoo: Any) -> None:
    """What ONNX Runtime itself would do: take the CPU and print a warning."""
    artifact, root = zoo.onnx("conv")
    built = onnxruntime.get_available_providers()
    assert "cpu" in backends.get("onnx").delegates()
    if "CUDAExecutionProvider" not in built:
        assert "cuda" not in backends.get("onnx").delegates()
        with pytest.raises(BackendError) as error:
            backends.get("onnx").load(artifact, root, delegate="cuda")
        assert error.value.code == "EDGE-BACKEND-005"
        assert "'cuda'" in error.value.message
    with backends.get("onnx").load(artifact, root) as session:
        assert session.delegate == "cpu"
        assert session.runtime.version == onnxruntime.__version__


def test_nodes_are_counted_where_they_run(zoo: Any) -> None:
    artifact, root = zoo.onnx("conv")
    with backends.get("onnx").load(artifact, root, optimize=False) as session:
        nodes = len(backends.get("onnx").inspect(artifact, root).ops)
        assert session.placement == {"CPUExecutionProvider": nodes}  # type: ignore[attr-defined]


def test_a_delegate_that_took_no_node_does_not_run_the_model() -> None:
    _check_placement({"CUDAExecutionProvider": 3, "CPUExecutionProvider": 9}, "cuda")
    _check_placement({}, "cuda")  # an older runtime, which does not tell
    with pytest.raises(BackendError) as error:
        _check_placement({"CPUExecutionProvider": 12}, "cuda")
    assert error.value.code == "EDGE-BACKEND-005"
    assert "12" in error.value.message


def test_threads_are_those_of_the_process_and_do_not_spin(zoo: Any) -> None:
    artifact, root = zoo.onnx("conv")
    for threads in (None, 1):
        with backends.get("onnx").load(artifact, root, threads=threads) as session:
            options = session._engine.get_session_options()  # type: ignore[attr-defined]
            assert options.intra_op_num_threads == session.threads == (threads or usable_cores())
            assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_optimiser_is_on_unless_told_otherwise(zoo: Any) -> None:
    artifact, root = zoo.onnx("conv")
    level = onnxruntime.GraphOptimizationLevel
    for optimize, wanted in ((True, level.ORT_ENABLE_ALL), (False, level.ORT_DISABLE_ALL)):
        with backends.get("onnx").load(artifact, root, optimize=optimize) as session:
            options = session._engine.get_session_options()  # type: ignore[attr-defined]
            assert options.graph_optimization_level == wanted


def test_an_engine_that_fails_is_wrapped(zoo: Any) -> None:
    """An id beyond the embedding's table fits the feed's check and fails inside the engine."""
    net = zoo.net("tied")
    artifact, root = zoo.onnx("tied")
    feed = {"ids": net.feed["ids"] * 0 + 999}
    for backend, made, folder in (("onnx", artifact, root), ("torch", *_reference(net))):
        with backends.get(backend).load(made, folder) as session:
            with pytest.raises(BackendError) as error:
                session.run(feed)
            assert error.value.code == "EDGE-BACKEND-013"
            assert error.value.__cause__ is not None
            assert "\n" not in error.value.message
            assert "table" in error.value.hint
            session.run(net.feed)


def _reference(net: Any) -> tuple[Any, Any]:
    from edgeserve.backends.torch import reference_artifact

    return reference_artifact(net.exported), net.root


def test_nothing_is_printed_and_no_converter_is_loaded(zoo: Any) -> None:
    """A device holds the runtime only; what fails says so once, as an error."""
    artifact, root = zoo.onnx("tied")
    from edgeserve.types.base import encode

    code = f"""
import sys, numpy as np
from pathlib import Path
from edgeserve import backends
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode
artifact = decode({encode(artifact)!r}, Artifact)
root = Path({str(root)!r})
with backends.get("onnx").load(artifact, root, verified=True) as session:
    session.run({{"ids": np.zeros((1, 3), np.int64)}})
    try:
        session.run({{"ids": np.full((1, 3), 999)}})
    except BackendError as error:
        assert error.code == "EDGE-BACKEND-013"
loaded = sorted({{"torch", "onnx", "onnx_ir", "onnxscript", "sympy"}} & set(sys.modules))
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_verified_files_are_not_read_twice(zoo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, root = zoo.onnx("conv")
    calls: list[object] = []
    monkeypatch.setattr("edgeserve.verified_files.sha256_open", lambda p: calls.append(p) or "")
    backends.get("onnx").load(artifact, root, verified=True).close()
    assert not calls
    with pytest.raises(BackendError):
        check_files(artifact, root)
    assert calls
