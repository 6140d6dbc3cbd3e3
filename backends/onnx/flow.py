"""Which nodes compute in 8 bits: layers with weights, and what lies between convolutions.

A convolution's integer kernel takes and gives 8-bit activations; so do additions, pooling and
reshaping between convolutions, and there staying in 8 bits saves conversions. A matrix product's
kernel gives float. What a transformer computes between its products (normalisation, softmax,
attention itself, the residual stream) loses most and gains least by 8 bits: it stays float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["GLUE", "HEADS", "LAYERS", "plan"]

#: Layers whose output is quantized as well.
LAYERS = ("Conv", "ConvTranspose")

#: Layers whose output stays float.
HEADS = ("Gemm", "MatMul")

_ACTIVATIONS = ("Clip", "Relu")

#: What has 8-bit kernels, or only moves values, and may stand between convolutions.
GLUE = (
    "Add",
    "AveragePool",
    "Clip",
    "Concat",
    "Flatten",
    "GlobalAveragePool",
    "LeakyRelu",
    "MaxPool",
    "Mul",
    "Pad",
    "Relu",
    "Reshape",
    "Resize",
    "Sigmoid",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)


def plan(model: ir.Model, kept: set[str]) -> tuple[ir.Node, ...]:
    """The nodes of the main graph to quantize, in order.

    Args:
        model: Its nodes have names.
        kept: Names of nodes to leave alone.
    """
    nodes = [node for node in model.graph if node.name not in kept]
    layers = {node for node in nodes if _is_layer(node)}
    flowing: set[ir.Node] = set()  # what gives 8-bit activations if it is quantized
    for node in nodes:
        if (node in layers and node.op_type in LAYERS) or _passes_on(node, flowing):
            flowing.add(node)
    useful: set[ir.Node] = set()
    for node in reversed(nodes):
        if node in layers or (node in flowing and _worth_it(node, layers, useful)):
            useful.add(node)
    return tuple(node for node in nodes if node in useful)


def _is_layer(node: ir.Node) -> bool:
    """A layer with a constant float32 weight of a form that integer kernels take."""
    if node.op_type not in (*LAYERS, *HEADS) or node.domain not in ("", "ai.onnx"):
        return False
    data, weight = node.inputs[0], node.inputs[1]
    if weight is None or data is None or not _constant(weight) or _constant(data):
        return False
    rank = len(weight.shape or ())
    if node.op_type == "Gemm":
        plain = node.attributes.get_float("alpha", 1.0) == 1.0
        return plain and not node.attributes.get_int("transA", 0)
    return rank == 2 if node.op_type == "MatMul" else rank >= 3


def _constant(value: ir.Value) -> bool:
    import onnx_ir as ir

    return value.is_initializer() and value.dtype == ir.DataType.FLOAT


def _passes_on(node: ir.Node, flowing: set[ir.Node]) -> bool:
    """Glue all of whose float data comes from 8-bit activations."""
    import onnx_ir as ir

    if node.op_type not in GLUE:
        return False
    data = [
        value
        for value in node.inputs
        if value is not None and value.dtype == ir.DataType.FLOAT and not value.is_initializer()
    ]
    return bool(data) and all(value.producer() in flowing for value in data)


def _worth_it(node: ir.Node, layers: set[ir.Node], useful: set[ir.Node]) -> bool:
    """Its values reach a quantized layer in 8 bits, or it is a layer's own activation."""
    made_by = node.inputs[0].producer() if node.inputs[0] is not None else None
    if node.op_type in _ACTIVATIONS and made_by in layers:
        return True
    return any(reader in layers or reader in useful for reader in _readers(node))


def _readers(node: ir.Node) -> list[ir.Node]:
    return [use.node for output in node.outputs for use in output.uses()]
