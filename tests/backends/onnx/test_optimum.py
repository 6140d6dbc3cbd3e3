"""What optimum-onnx makes, brought to the source's signature; ONNX Runtime is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from edgeserve.backends.onnx.optimum import _match_signature
from edgeserve.errors import ConvertError
from edgeserve.types.tensors import Signature, TensorSpec

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def model(inputs: list[str], outputs: list[str]) -> ir.Model:
    """Each output is the sum of the inputs, as float, times its place."""
    nodes: list[Any] = [helper.make_node("Sum", [f"{n}_f" for n in inputs], ["sum"])]
    nodes = [helper.make_node("Cast", [n], [f"{n}_f"], to=FLOAT) for n in inputs] + nodes
    for count, name in enumerate(outputs, 1):
        nodes.append(helper.make_node("Constant", [], [f"c{count}"], value_float=float(count)))
        nodes.append(helper.make_node("Mul", ["sum", f"c{count}"], [name]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, INT64, ["b", "s"]) for n in inputs],
        [helper.make_tensor_value_info(n, FLOAT, ["b", "s"]) for n in outputs],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return ir.from_proto(made)


def signature(inputs: list[str], outputs: list[str]) -> Signature:
    shape = ("batch", "sequence")
    return Signature(
        inputs=tuple(TensorSpec(n, "int64", shape) for n in inputs),
        outputs=tuple(TensorSpec(n, "float32", shape) for n in outputs),
        dims={"batch": (1, 8), "sequence": (1, 64)},
    )


def test_inputs_and_outputs_come_in_the_signatures_order(tmp_path: Path) -> None:
    made = model(["mask", "input_ids", "token_type_ids"], ["more", "logits"])
    _match_signature(made, signature(["input_ids", "mask"], ["logits"]))
    ir.save(made, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [each.name for each in session.get_inputs()] == ["input_ids", "mask"]
    assert [each.name for each in session.get_outputs()] == ["logits"]
    ids, mask = np.arange(6).reshape(2, 3), np.ones((2, 3), np.int64)
    (got,) = session.run(None, {"input_ids": ids, "mask": mask})
    np.testing.assert_array_equal(got, 2.0 * (ids + mask))  # no segments are segments of zero


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["input_ids"], ["logits"]),
        (["input_ids", "mask", "positions"], ["logits"]),
        (["input_ids", "mask"], ["states", "more"]),
    ],
)
def test_other_inputs_or_outputs_are_refused(inputs: list[str], outputs: list[str]) -> None:
    with pytest.raises(ConvertError) as error:
        _match_signature(model(inputs, outputs), signature(["input_ids", "mask"], ["logits"]))
    assert error.value.code == "EDGE-CONVERT-082"
