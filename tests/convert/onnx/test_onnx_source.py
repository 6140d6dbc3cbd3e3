"""A finished .onnx file as a source: copied, run as its own reference, made ours.

Right answers come from ONNX's own reference evaluator, numpy and scipy.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgeserve import backends
from edgeserve.backends.reference import reference
from edgeserve.convert import ExportRequest, TargetRequest, parse_source
from edgeserve.convert.source import export_source, read_export
from edgeserve.convert.target import convert_target
from edgeserve.errors import ConvertError
from edgeserve.types.artifact import Artifact
from edgeserve.types.options import ExportSettings
from edgeserve.types.source import Exported

RNG = np.random.default_rng(8)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Dense = Callable[..., onnx.ModelProto]
Write = Callable[..., Path]
Export = Callable[..., tuple[Exported, Path]]


def value(name: str, shape: list[Any], kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def made(exported: Exported, root: Path, format: Any = "onnx") -> tuple[Artifact, Path]:
    out = root.parent / "made"
    request = TargetRequest(source_folder=str(root), format=format, precision="fp32", out=str(out))
    return convert_target(request), out


def answers(exported: Exported, root: Path, feed: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Of the reference, and of the artifact made of it."""
    backend, artifact = reference(exported)
    with backend.load(artifact, root, threads=1) as session:
        first = session.run(feed)
    artifact, folder = made(exported, root)
    with backends.get("onnx").load(artifact, folder, threads=1) as session:
        return [first, session.run(feed)]


@pytest.mark.parametrize("data", [None, "weights.bin", "sub/w.data"])
def test_a_file_answers_as_it_always_did(
    write: Write, data: str | None, dense: Dense, export: Export, weight: np.ndarray
) -> None:
    model = dense()
    if data and "/" in data:
        (write(model).parent / "sub").mkdir()
    path = write(model, data)
    exported, root = export(path)
    assert exported.format == "onnx"
    assert exported.program.path == "onnx/model.onnx"
    assert (root / "onnx/model.onnx").read_bytes() == path.read_bytes()
    assert [f.path for f in exported.program_data] == ([f"onnx/{data}"] if data else [])
    assert [(s.name, s.dtype, s.shape) for s in exported.signature.inputs] == [
        ("x", "float32", ("n", 6))
    ]
    assert exported.signature.dims == {"n": (1, 2**31 - 1)}
    assert exported.signature.batch_dim == "n"
    (held,) = exported.weights
    assert (held.name, held.shape) == ("w", (6, 4))
    assert held.sha256 == hashlib.sha256(weight.tobytes()).hexdigest()
    assert read_export(root) == exported
    x = RNG.normal(size=(3, 6)).astype(np.float32)
    (right,) = ReferenceEvaluator(dense()).run(None, {"x": x})
    for got in answers(exported, root, {"x": x}):
        np.testing.assert_allclose(got["y"], right, rtol=0, atol=1e-6)


def test_what_others_wrote_about_it_is_gone(write: Write, dense: Dense, export: Export) -> None:
    exported, root = export(write(dense()))
    artifact, folder = made(exported, root)
    data = (folder / "model.onnx").read_bytes()
    assert b"alice" not in data
    assert b"private name" not in data
    assert artifact.provenance.route == "copy"
    ops = backends.get("onnx").inspect(artifact, folder).ops
    assert [(op.type, op.name, op.source) for op in ops] == [
        ("MatMul", "MatMul_0", "MatMul_0"),
        ("Relu", "the relu", "the relu"),
    ]


def test_identity_rests_on_the_bytes(write: Write, dense: Dense, export: Export) -> None:
    first, _ = export(write(dense()))
    again, _ = export(write(dense()))
    other, _ = export(write(dense(opset=18)))
    assert first.graph_sha256 == again.graph_sha256 != other.graph_sha256


def test_examples_are_the_same_every_time_and_fit_the_kind(
    write: Write, dense: Dense, export: Export
) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["m"], to=FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["m3"]),
        helper.make_node("Mul", ["rows", "m3"], ["y"]),
    ]
    table = np.eye(3, dtype=np.float32)[:2]  # ids beyond 1 would be an error
    model = dense(
        nodes,
        [value("ids", ["b", "t"], INT64), value("attention_mask", ["b", "t"], INT64)],
        [value("y", ["b", "t", 3])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([2]), "last")],
    )
    model.graph.node[1].input[0] = "attention_mask"
    exported, root = export(write(model))
    examples = np.load(root / exported.examples.path)
    assert set(examples["ids"].ravel()) == {0, 1}
    assert set(examples["attention_mask"].ravel()) == {1}
    assert exported.signature.dims == {"b": (1, 2**31 - 1), "t": (1, 2**31 - 1)}
    assert export(write(model))[0].examples == exported.examples


def test_sizes_are_tried_until_one_fits(write: Write, dense: Dense, export: Export) -> None:
    """Two windows of 32: nothing shorter than 64 is answered, and no other size."""
    shape = numpy_helper.from_array(np.array([-1, 64]), "shape")
    wide = numpy_helper.from_array(np.ones((64, 2), np.float32), "w")
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    model = dense(nodes, [value("x", ["n", "t"])], [value("y", ["n", 2])], [shape, wide])
    exported, root = export(write(model))
    assert np.load(root / exported.examples.path)["x"].shape == (1, 64)


@pytest.mark.parametrize(
    ("takes", "gives", "batch"),
    [
        (["n", 6], ["m", 4], "n"),
        ([None, 6], [None, 4], "batch"),
        (["n", 6], [1, 4], None),
        ([2, 6], [2, 4], None),
    ],
)
def test_the_first_axis_is_the_batch_where_it_grows(
    write: Write,
    takes: list[Any],
    gives: list[Any],
    batch: str | None,
    dense: Dense,
    export: Export,
) -> None:
    if gives[0] == 1:  # an answer about all samples together
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("ReduceMean", ["h"], ["y"], axes=[0]),
        ]
        model = dense(nodes, [value("x", takes)], [value("y", gives)])
    else:
        model = dense(inputs=[value("x", takes)], outputs=[value("y", gives)])
    exported, root = export(write(model))
    assert exported.signature.batch_dim == batch
    artifact, _ = made(exported, root)
    assert artifact.io.inputs == exported.signature.inputs
    assert artifact.io.outputs == exported.signature.outputs


def test_weights_declared_as_inputs_are_none(
    write: Write, dense: Dense, export: Export, weight: np.ndarray
) -> None:
    """As exporters did before IR version 4."""
    model = dense(inputs=[value("x", ["n", 6]), value("w", [6, 4])], ir=3, opset=9)
    exported, root = export(write(model))
    assert [spec.name for spec in exported.signature.inputs] == ["x"]
    x = RNG.normal(size=(2, 6)).astype(np.float32)
    for got in answers(exported, root, {"x": x}):
        np.testing.assert_allclose(got["y"], np.maximum(x @ weight, 0), rtol=0, atol=1e-6)


def test_operators_of_the_engine_itself_are_kept(
    write: Write, dense: Dense, export: Export, weight: np.ndarray
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Gelu", ["h"], ["y"], domain="com.microsoft"),
    ]
    exported, root = export(write(dense(nodes, domains=["com.microsoft"])))
    x = RNG.normal(size=(2, 6)).astype(np.float32)
    from scipy.special import erf

    h = x @ weight
    for got in answers(exported, root, {"x": x}):
        np.testing.assert_allclose(got["y"], h * (1 + erf(h / np.sqrt(2))) / 2, atol=1e-5)


def test_the_command_line_says_task_and_processing(
    write: Write, dense: Dense, export: Export
) -> None:
    exported, _ = export(write(dense()), settings=ExportSettings(task="feature-extraction"))
    assert exported.task == "feature-extraction"


@pytest.mark.parametrize("precision", ["fp16", "w8"])
def test_other_precisions_are_made_of_it(
    write: Write, precision: Any, tmp_path: Path, dense: Dense, export: Export
) -> None:
    big = RNG.normal(size=(64, 64)).astype(np.float32)
    model = dense(
        inputs=[value("x", ["n", 64])],
        outputs=[value("y", ["n", 64])],
        weights=[numpy_helper.from_array(big, "w")],
    )
    _, root = export(write(model))
    artifact = convert_target(
        TargetRequest(
            source_folder=str(root), format="onnx", precision=precision, out=str(tmp_path / "made")
        )
    )
    x = RNG.normal(size=(2, 64)).astype(np.float32)
    with backends.get("onnx").load(artifact, tmp_path / "made", threads=1) as session:
        got = session.run({"x": x})["y"]
    np.testing.assert_allclose(got, np.maximum(x @ big, 0), rtol=0, atol=0.3)


@pytest.mark.parametrize("format", ["tflite", "coreml"])
def test_other_formats_are_refused_by_name(
    write: Write, format: Any, dense: Dense, export: Export
) -> None:
    exported, root = export(write(dense()))
    backend = backends.get(format)
    with pytest.raises(ConvertError) as error:
        backend.export(exported, root, root.parent / "made")
    assert error.value.code == "EDGE-CONVERT-076"
    assert format in error.value.message


def test_a_workspace_keeps_the_file_and_its_data(
    write: Write, tmp_path: Path, dense: Dense, export: Export
) -> None:
    exported, root = export(write(dense(), "w.data"))
    shutil.copytree(root, tmp_path / "ws" / "source")
    source = parse_source("ws", tmp_path)
    again = export_source(ExportRequest(source=source, out=str(tmp_path / "again")))
    assert again == exported
    assert (tmp_path / "again" / "onnx" / "w.data").exists()
    (tmp_path / "ws" / "source" / "onnx" / "w.data").write_bytes(b"x")
    with pytest.raises(ConvertError) as error:
        export_source(ExportRequest(source=source, out=str(tmp_path / "more")))
    assert error.value.code == "EDGE-CONVERT-024"
