"""Programs whose rows depend on each other, outputs without axes or numbers, and infinities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper
from testkit.judging import codes
from torch import nn

from edgeserve.files import describe
from edgeserve.types.tensors import IO, Shape, TensorSpec

FREE = {"dynamic_shapes": {"x": {0: ("batch", 1, 8)}}}


class Rows(nn.Module):
    """A linear layer, and what a test makes of its rows."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.inner, self.kind = nn.Linear(4, 4), kind
        self.register_buffer("ends", torch.tensor([torch.inf, -torch.inf, 0.0, 1.0]))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.inner(x)
        if self.kind == "mean":
            return y - y.mean(0, keepdim=True)
        if self.kind == "number":
            return y + torch.arange(x.shape[0])[:, None] * 1.0
        if self.kind == "largest":
            return y, y.max()
        if self.kind == "nothing":
            return y, y[:, :0]
        return torch.minimum(y, self.ends) if self.kind == "ends" else y


@pytest.mark.parametrize("kind", ["mean", "number"])
def test_rows_that_depend_on_each_other(build: Any, sabotaged: Any, kind: str) -> None:
    made = build(Rows(kind), torch.randn(3, 4), **FREE)
    assert made.answers().mixes
    report = made.judged()
    assert (report.judgement.verdict, codes(report)) == ("pass", [])
    one = made.judged_as(_of_one_row(made), made.root / "candidate")
    assert one.judgement.verdict == "fail"
    assert codes(one) == ["EDGE-CHECK-007"]
    assert "depends on the other rows" in one.judgement.reasons[0].message


def _of_one_row(made: Any) -> Any:
    """The same artifact as a file that takes one row at a time."""
    path = made.onnx
    proto = onnx.load(path)
    for each in (*proto.graph.input, *proto.graph.output):
        each.type.tensor_type.shape.dim[0].ClearField("dim_param")
        each.type.tensor_type.shape.dim[0].dim_value = 1
    del proto.graph.value_info[:]
    onnx.save(proto, path.with_name("one.onnx"))
    io = made.artifact.io

    def fixed(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        shapes: list[Shape] = [(1, *spec.shape[1:]) for spec in specs]
        return tuple(
            msgspec.structs.replace(spec, shape=shape)
            for spec, shape in zip(specs, shapes, strict=True)
        )

    return msgspec.structs.replace(
        made.artifact,
        entry="one.onnx",
        files=(describe(path.parent, "one.onnx"),),
        io=IO(inputs=fixed(io.inputs), outputs=fixed(io.outputs)),
    )


def test_a_file_that_mixes_where_the_source_does_not(build: Any, sabotaged: Any) -> None:
    """Also where the example is a batch itself."""
    made = build(Rows("plain"), torch.randn(3, 4), **FREE)
    assert not made.answers().mixes

    def change(graph: Any) -> None:
        graph.put({"axis": np.array([0])})
        graph.before(
            helper.make_node("ReduceMean", ["x", "axis"], ["mean"]),
            helper.make_node("Sub", ["x", "mean"], ["rest"]),
            helper.make_node("Sub", ["x", "rest"], ["changed"]),
        )

    report = made.judged(sabotaged(made, change))
    assert "EDGE-CHECK-007" in codes(report)


def test_a_file_whose_rows_mix_otherwise_than_the_source(build: Any, sabotaged: Any) -> None:
    made = build(Rows("number"), torch.randn(3, 4), **FREE)
    made.answers()

    def change(graph: Any) -> None:
        name = graph.proto.graph.output[0].name
        graph.put({"axis": np.array([0]), "little": np.float32([0.5])})
        graph.after(name, helper.make_node("Mul", ["inner", "little"], [name]))

    assert made.judged(sabotaged(made, change)).judgement.verdict == "fail"


@pytest.mark.parametrize("kind", ["largest", "nothing"])
def test_outputs_without_axes_and_without_numbers(build: Any, kind: str) -> None:
    made = build(Rows(kind), torch.randn(3, 4))
    made.answers()
    report = made.judged()
    assert report.judgement.verdict == "pass", report.judgement.reasons


def test_a_scalar_that_is_wrong(build: Any, sabotaged: Any) -> None:
    made = build(Rows("largest"), torch.randn(3, 4), output_names=("y", "most"))
    made.answers()

    def change(graph: Any) -> None:
        graph.put({"off": np.float32(0.3)})
        graph.after("most", helper.make_node("Add", ["inner", "off"], ["most"]))

    report = made.judged(sabotaged(made, change))
    assert (report.judgement.verdict, codes(report)) == ("fail", ["EDGE-CHECK-030"])
    assert "most" in report.judgement.reasons[0].message


@pytest.mark.parametrize(("end", "verdict"), [(-np.inf, "pass"), (np.inf, "fail"), (-7.0, "fail")])
def test_infinities_of_the_reference(
    build: Any, sabotaged: Any, end: float, verdict: str, tmp_path: Path
) -> None:
    """Channel 1 is -inf on every input."""
    made = build(Rows("ends"), torch.randn(2, 4), output_names=("y",), **FREE)
    made.answers()

    def change(graph: Any) -> None:
        graph.put({"places": np.float32([0, 1, 0, 0]), "end": np.float32(end)})
        graph.put({"one": np.float32(0.5)})
        graph.proto.graph.node.append(helper.make_node("Greater", ["places", "one"], ["there"]))
        graph.after("y", helper.make_node("Where", ["there", "end", "inner"], ["y"]))

    path = sabotaged(made, change)
    (got,) = onnxruntime.InferenceSession(path).run(["y"], {"x": np.zeros((1, 4), np.float32)})
    assert got[0, 1] == np.float32(end)
    report = made.judged(path)
    assert report.judgement.verdict == verdict
    if verdict == "fail":
        assert "EDGE-CHECK-005" in codes(report)
