"""What the precisions ask of a graph's values: their dtype, what makes them, constants to add."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


def scatters_by_reduction(node: ir.Node) -> bool:
    """Whether a node adds to, or otherwise combines with, the elements that it writes to."""
    scatters = node.op_type.startswith("Scatter")
    return scatters and node.attributes.get_string("reduction", "none") != "none"


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is there and float32."""
    return value is not None and value.dtype == ir.DataType.FLOAT


def float_data(node: ir.Node) -> list[ir.Value]:
    """The float32 values that a node reads and that are no constants, in order."""
    return [v for v in node.inputs if v is not None and is_float(v) and not v.is_initializer()]


def producer(node: ir.Node, index: int) -> ir.Node | None:
    """What makes an input of a node; None where nothing does, or it is left out."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return value.producer() if value is not None else None


def add_constant(graph: ir.Graph, name: str, array: np.ndarray | np.generic) -> ir.Value:
    """Store an array in a graph, under a name that starts with this one."""
    while name in graph.initializers:
        name += "_"
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.shape = ir.Shape(array.shape)
    value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    graph.initializers[name] = value
    return value
