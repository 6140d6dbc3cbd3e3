"""Small ONNX models, written as their user has them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.types.source import Exported

WEIGHT = np.random.default_rng(7).normal(size=(6, 4)).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto] | None = None,
    inputs: Any = None,
    outputs: Any = None,
    weights: Any = None,
    opset: int = 17,
    domains: Any = (),
    ir: int = 9,
) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes
        or [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"], name="the relu", doc_string="by alice"),
        ],
        "private name",
        inputs or [value("x", TensorProto.FLOAT, ["n", 6])],
        outputs or [value("y", TensorProto.FLOAT, ["n", 4])],
        weights if weights is not None else [numpy_helper.from_array(WEIGHT, "w")],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=ir)
    made.producer_name, made.doc_string = "alice's exporter", "/srv/alice/model.py"
    made.metadata_props.add(key="path", value="/srv/alice")
    return made


@pytest.fixture(scope="session")
def weight() -> np.ndarray:
    """The weight of `dense`: [6, 4]."""
    return WEIGHT


@pytest.fixture(scope="session")
def dense() -> Callable[..., onnx.ModelProto]:
    """relu(x @ w), any part of which can be another."""
    return model


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a model; ``data`` is where its weights go."""

    def write(model: onnx.ModelProto, data: str | None = None) -> Path:
        path = tmp_path / "user" / "model.onnx"
        path.parent.mkdir(exist_ok=True)
        options: dict[str, Any] = {"location": data, "size_threshold": 0} if data else {}
        onnx.save(model, path, save_as_external_data=bool(data), **options)
        return path

    return write


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., tuple[Exported, Path]]:
    """Export a file; what is known of it, and the folder that it was exported to."""

    def export(path: Path, **changes: Any) -> tuple[Exported, Path]:
        out = tmp_path / "out"
        source = parse_source(path.name, path.parent)
        assert source.kind == "onnx"
        return export_source(ExportRequest(source=source, out=str(out), **changes)), out

    return export
