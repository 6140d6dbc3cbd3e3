"""ONNX files onward to TFLite and Core ML: equal to ONNX Runtime, or refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.onnx_import import table
from edgeserve.convert import TargetRequest
from edgeserve.convert.onnx_to_torch import convert_to_torch
from edgeserve.convert.target import convert_target
from edgeserve.errors import ConvertError, UnsupportedOp
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

RNG = np.random.default_rng(4)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Write = Callable[..., Path]
Export = Callable[..., tuple[Exported, Path]]
Dense = Callable[..., onnx.ModelProto]


def value(name: str, shape: list[Any] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) * 0.5, name)


def network(opset: int) -> onnx.ModelProto:
    """Convolution, normalisation, pooling, a shape computed from a shape, a layer, softmax."""
    nodes = [
        helper.make_node("Conv", ["x", "w:0"], ["c/1"], pads=[1, 1, 1, 1], name="net/conv.1"),
        helper.make_node("BatchNormalization", ["c/1", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "h"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities.0"], axis=1),
    ]
    weights = [
        weight("w:0", 4, 3, 3, 3),
        weight("s", 4),
        weight("b", 4),
        weight("m", 4),
        numpy_helper.from_array(np.full(4, 1.5, np.float32), "v"),
        weight("g", 5, 64),
        weight("h", 5),
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([-1]), "rest"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", ["N.batch", 3, 8, 8])],
        [value("probabilities.0", ["N.batch", 5])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def onward(root: Path, format: str, precision: str = "fp32") -> tuple[Artifact, Path]:
    out = root.parent / f"{format}-{precision}"
    request = TargetRequest(str(root), format, precision, str(out))  # type: ignore[arg-type]
    return convert_target(request), out


def answers(
    exported: Exported, artifact: Artifact, root: Path, feed: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    with backends.get(artifact.format).load(artifact, root, threads=1) as session:
        return Adapter(session, exported.signature).run(feed)


def by_runtime(path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path))
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


@pytest.mark.parametrize("format", ["tflite", "coreml"])
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_a_file_answers_onward_as_onnx_runtime(
    write: Write, export: Export, format: str, opset: int
) -> None:
    path = write(network(opset))
    exported, root = export(path)
    artifact, out = onward(root, format)
    assert artifact.provenance.rewrites[0] == "import_onnx"
    for rows in (1, 3):
        feed = {"x": RNG.standard_normal((rows, 3, 8, 8)).astype(np.float32)}
        right, got = by_runtime(path, feed), answers(exported, artifact, out, feed)
        assert list(got) == list(right)
        for name, wanted in right.items():
            np.testing.assert_allclose(got[name], wanted, rtol=0, atol=2e-5)


def test_weights_beside_the_file_go_onward_too(write: Write, export: Export) -> None:
    path = write(network(17), "weights.bin")
    exported, root = export(path)
    artifact, out = onward(root, "tflite")
    feed = {"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (wanted,) = by_runtime(path, feed).values()
    np.testing.assert_allclose(
        answers(exported, artifact, out, feed)["probabilities.0"], wanted, rtol=0, atol=2e-5
    )


def test_other_precisions_are_made_onward(write: Write, export: Export) -> None:
    exported, root = export(write(network(17)))
    artifact, out = onward(root, "tflite", "w8")
    feed = {"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (wanted,) = by_runtime(root / exported.program.path, feed).values()
    got = answers(exported, artifact, out, feed)["probabilities.0"]
    assert 0 < np.abs(got - wanted).max() < 0.05


def test_nodes_are_named_in_the_program(write: Write, export: Export, tmp_path: Path) -> None:
    exported, root = export(write(network(17)))
    made = convert_to_torch(exported, root, tmp_path / "torch")
    assert (made.format, made.signature, made.weights) == (
        "torch",
        exported.signature,
        exported.weights,
    )
    import torch

    program = torch.export.load(tmp_path / "torch" / made.program.path)
    stacks = [str(node.meta.get("nn_module_stack")) for node in program.graph.nodes]
    assert any("net_conv_1" in stack for stack in stacks)


def branching() -> onnx.ModelProto:
    """Twice or half, as the input's sum says."""
    branches = [
        helper.make_graph(
            [helper.make_node("Mul", ["x", name], ["b"])], name, [], [value("b", ["n", 3])]
        )
        for name in ("two", "half")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["up"]),
        helper.make_node(
            "If", ["up"], ["y"], "choose", then_branch=branches[0], else_branch=branches[1]
        ),
    ]
    constants = {"two": 2.0, "half": 0.5, "zero": 0.0}
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", ["n", 3])],
        [value("y", ["n", 3])],
        [numpy_helper.from_array(np.array(n, np.float32), k) for k, n in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def test_a_branch_on_values_is_refused_by_name_and_onnx_stays(write: Write, export: Export) -> None:
    _, root = export(write(branching()))
    with pytest.raises(UnsupportedOp) as error:
        onward(root, "coreml")
    assert (error.value.code, "operator If (node 'choose')" in error.value.message) == (
        "EDGE-OP-030",
        True,
    )
    artifact, _ = onward(root, "onnx")
    assert artifact.format == "onnx"


def test_a_form_that_answers_otherwise_is_refused(
    write: Write, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table entry that is off by two thousandths: no file is made of it."""
    entry = table.entry_of("Relu")
    assert entry is not None
    wrong = dataclasses.replace(entry, run=lambda node, x: entry.run(node, x) * 1.02)
    monkeypatch.setitem(table._TABLE, "Relu", wrong)
    _, root = export(write(network(17)))
    with pytest.raises(ConvertError) as error:
        onward(root, "tflite")
    assert error.value.code == "EDGE-CONVERT-077"
    assert "probabilities.0" in error.value.message


# files as people have them


def test_odd_names_of_dimensions_are_taken(write: Write, dense: Dense, export: Export) -> None:
    model = dense(inputs=[value("in.0/x", ["a.b+1", 6])], outputs=[value("y", ["?", 4])])
    model.graph.node[0].input[0] = "in.0/x"
    exported, _ = export(write(model))
    shapes = [spec.shape for spec in (*exported.signature.inputs, *exported.signature.outputs)]
    assert [shape[1] for shape in shapes] == [6, 4]
    assert shapes[0][0] == shapes[1][0]  # the batch


def test_a_negative_size_is_an_open_one(write: Write, dense: Dense, export: Export) -> None:
    """Some exporters write -1."""
    exported, root = export(
        write(dense(inputs=[value("x", [-1, 6])], outputs=[value("y", [-1, 4])]))
    )
    assert exported.signature.batch_dim is not None
    artifact, out = onward(root, "onnx")
    assert answers(exported, artifact, out, {"x": np.ones((3, 6), np.float32)})["y"].shape == (3, 4)


def test_missing_and_wrong_shapes_of_outputs_are_found(
    write: Write, dense: Dense, export: Export
) -> None:
    for shape in (None, ["n", 5], ["n", 4, 1]):
        exported, root = export(write(dense(outputs=[value("y", shape)])))
        (spec,) = exported.signature.outputs
        assert (spec.shape[0], len(spec.shape)) == (exported.signature.batch_dim, 2)
        assert any("as the file says" in note for note in exported.notes)
        artifact, out = onward(root, "onnx")
        assert artifact.io.outputs == exported.signature.outputs
        feed = {"x": np.ones((2, 6), np.float32)}
        right = by_runtime(root / exported.program.path, feed)["y"]
        np.testing.assert_array_equal(answers(exported, artifact, out, feed)["y"], right)


def test_a_scalar_input_stays_one(write: Write, export: Export) -> None:
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    graph = helper.make_graph(
        [node], "g", [value("x", ["n", 3]), value("factor", [])], [value("y", ["n", 3])]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    exported, root = export(write(made))
    with np.load(root / exported.examples.path) as held:
        assert held["factor"].shape == ()


def test_a_state_with_its_batch_on_another_axis_is_answered(write: Write, export: Export) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["x3"]),
        helper.make_node("RNN", ["x3", "w", "r", "", "", "h"], ["", "last"], hidden_size=4),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", ["batch", 3]), value("h", [1, "batch", 4])],
        [value("last", [1, "batch", 4])],
        [
            weight("w", 1, 4, 3),
            weight("r", 1, 4, 4),
            numpy_helper.from_array(np.array([0]), "axis"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    exported, _ = export(write(made))
    with np.load(_ / exported.examples.path) as held:
        assert (held["x"].shape, held["h"].shape) == ((1, 3), (1, 1, 4))
