"""A small real model, made with onnx.helper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeserve.files import describe
from edgeserve.measure import MeasureRequest
from edgeserve.types.artifact import Artifact
from edgeserve.types.options import MeasureSettings
from edgeserve.types.tensors import IO, Signature, TensorSpec

IMAGE = TensorSpec("image", "float32", ("batch", 3, 8, 8))
LOGITS = TensorSpec("logits", "float32", ("batch", 5))


def write_model(path: Path) -> None:
    """Flatten, multiply by a seeded 192 x 5 matrix."""
    weights = np.random.default_rng(0).standard_normal((192, 5)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"], axis=1),
            helper.make_node("MatMul", ["flat", "w"], ["logits"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 5])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    onnx.save(model, path)


@pytest.fixture
def request_(tmp_path: Path) -> MeasureRequest:
    """A quick measurement of the small model."""
    write_model(tmp_path / "model.onnx")
    artifact = Artifact(
        format="onnx",
        precision="fp32",
        entry="model.onnx",
        files=(describe(tmp_path, "model.onnx"),),
        io=IO(inputs=(IMAGE,), outputs=(LOGITS,)),
    )
    return MeasureRequest(
        artifact=artifact,
        root=str(tmp_path),
        signature=Signature(inputs=(IMAGE,), outputs=(LOGITS,), dims={"batch": (1, 8)}),
        settings=MeasureSettings(seconds=0.3),
        min_runs=12,
        max_runs=60,
    )
