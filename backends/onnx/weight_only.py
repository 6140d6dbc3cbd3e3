"""8-bit weights with float arithmetic: ``float(int8 weight) * scale`` in the file.

Written as Cast and Mul of two constants, which ONNX Runtime folds when it loads the file: it then
runs at the speed of fp32. A DequantizeLinear in their place is not folded but carried out in every
run, and keeps convolutions from being prepared: EfficientNet-Lite0 then takes 4.0 times as long.
Rows of embedding tables are looked up in 8 bits and scaled afterwards.

Symmetric, rounded to nearest, one scale for each output channel (each row of a table): the largest
magnitude becomes 127.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgeserve.backends.onnx.graph_values import add_constant


class _WeightUse(NamedTuple):
    """One reading of a weight: the node, which of its inputs, and the axes that share a scale.

    ``shared`` is None where the node must have the float weight.
    """

    node: ir.Node
    place: int
    shared: tuple[int, ...] | None


def quantize_weights(model: ir.Model, kept: set[str]) -> int:
    """Store the weights of convolutions, linear and recurrent layers and embeddings in 8 bits.

    A weight that anything else reads too, or that a kept node reads, stays as it is; so do weights
    of inner graphs.

    Args:
        model: Changed in place.
        kept: Names of nodes to leave alone.

    Returns:
        How many tensors were changed.
    """
    uses: dict[str, list[_WeightUse]] = defaultdict(list)
    for node in model.graph:
        for use in _uses(node):
            name = node.inputs[use.place].name or ""  # type: ignore[union-attr]
            uses[name].append(use._replace(shared=None) if node.name in kept else use)
    changed = 0
    for name, readings in uses.items():
        value = model.graph.initializers.get(name)
        if value is not None and _is_quantizable(value, readings):
            _replace(model.graph, value, readings)
            changed += 1
    return changed


def _uses(node: ir.Node) -> Iterator[_WeightUse]:
    for index, value in enumerate(node.inputs):
        if value is not None and value.is_initializer():
            yield _WeightUse(node, index, _shared_axes(node, index, value))


def _shared_axes(node: ir.Node, index: int, value: ir.Value) -> tuple[int, ...] | None:
    """The axes of a weight that share a scale; None: this input is no weight."""
    rank = len(value.shape or ())
    after_first = tuple(range(1, rank))
    match node.op_type, index:
        case ("Conv", 1):
            return after_first
        case ("ConvTranspose", 1):  # [inputs, outputs of a group, ...]
            return (0, *range(2, rank)) if node.attributes.get_int("group", 1) == 1 else ()
        case ("Gemm", 1) if rank == 2:
            return (1,) if node.attributes.get_int("transB", 0) else (0,)
        case ("MatMul", 1) if rank >= 2:
            return (rank - 2,)
        case ("MatMul", 0) if rank >= 2:
            return (rank - 1,)
        case ("LSTM" | "GRU" | "RNN", 1 | 2):  # [directions, gates, inputs]
            return (2,)
        case ("Gather", 0) if rank == 2 and node.attributes.get_int("axis", 0) == 0:
            return (1,)
        case ("Transpose", 0):
            return _shared_axes_before_transpose(node, rank)
    return None


def _shared_axes_before_transpose(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """What the readers of a transposed weight share, as axes of the weight before it."""
    if node.outputs[0].is_graph_output():
        return None
    order = node.attributes.get_ints("perm", tuple(range(rank))[::-1])
    found = {_shared_axes(*use, node.outputs[0]) for use in node.outputs[0].uses()}
    only = found.pop() if len(found) == 1 else None
    return None if only is None else tuple(sorted(order[axis] for axis in only))


def _is_quantizable(value: ir.Value, readings: list[_WeightUse]) -> bool:
    tensor = value.const_value
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and not value.is_graph_output()
        and len(readings) == len(value.uses())
        and all(use.shared is not None for use in readings)
        and bool(np.isfinite(tensor.numpy()).all())
    )


def _weight_scale(array: np.ndarray, shared: tuple[int, ...], group: int = 1) -> np.ndarray:
    """The scale of each channel, float32: largest magnitude / 127, or 1 where all are zero.

    Args:
        array: The weight.
        shared: Axes that share a scale; the result is 1 along them.
        group: For a grouped transposed convolution, whose channel is a pair of group (a slice of
            axis 0) and axis 1: how many groups; ``shared`` is then empty.
    """
    largest = np.abs(array).max(axis=shared, keepdims=True)
    if group > 1:
        parts = array.reshape(group, -1, *array.shape[1:])
        axes = (1, *range(3, parts.ndim))
        largest = np.repeat(np.abs(parts).max(axis=axes, keepdims=True), parts.shape[1], axis=1)
        largest = largest.reshape(*array.shape[:2], *[1] * (array.ndim - 2))
    scale = (largest / np.float32(127)).astype(np.float32)
    # Below the smallest normal number a scale loses its digits, and such weights are zero anyway.
    return np.asarray(np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale))


def _quantize_channels(array: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Round ``array / scale`` to int8, halves to even, -127 to 127."""
    return np.asarray(np.clip(np.rint(array / scale), -127, 127), dtype=np.int8)


def _replace(graph: ir.Graph, value: ir.Value, readings: list[_WeightUse]) -> None:
    """Put the 8-bit weight in place of the float one, for every reader."""
    assert value.const_value is not None
    assert readings[0].shared is not None
    array = value.const_value.numpy()
    first = readings[0]
    group = first.node.attributes.get_int("group", 1) if first.node.op_type != "Conv" else 1
    scale = _weight_scale(array, readings[0].shared, group)
    small = add_constant(graph, f"{value.name}_int8", _quantize_channels(array, scale))
    factor = add_constant(graph, f"{value.name}_scale", scale)
    whole: ir.Value | None = None
    for use in readings:
        if use.node.op_type == "Gather":
            _quantize_gather(graph, use.node, small, factor)
            continue
        whole = whole or _dequantize(graph, use.node, small, factor, f"{value.name}_float")
        use.node.replace_input_with(use.place, whole)
    del graph.initializers[value.name or ""]


def _dequantize(
    graph: ir.Graph, reader: ir.Node, small: ir.Value, factor: ir.Value, name: str
) -> ir.Value:
    """``float(small) * factor``, computed right before its first reader."""
    cast = ir.node("Cast", [small], {"to": ir.DataType.FLOAT}, name=f"{name}_cast")
    product = ir.node("Mul", [cast.outputs[0], factor], name=f"{name}_mul")
    for node, made in ((cast, f"{name}_cast"), (product, name)):
        _describe(node.outputs[0], made, small.shape)
        node.metadata_props.update(reader.metadata_props)
    graph.insert_before(reader, [cast, product])
    return product.outputs[0]


def _quantize_gather(graph: ir.Graph, gather: ir.Node, table: ir.Value, factor: ir.Value) -> None:
    """Rows of an 8-bit table, each scaled by its own factor (or all by one row of factors)."""
    result, indices, name = gather.outputs[0], gather.inputs[1], gather.name or "gather"
    rows = ir.node("Gather", [table, indices], {"axis": 0}, name=f"{name}_int8")
    wide = ir.node("Cast", [rows.outputs[0]], {"to": ir.DataType.FLOAT}, name=f"{name}_cast")
    added = [rows, wide]
    if factor.shape is not None and factor.shape[0] != 1:
        added.append(ir.node("Gather", [factor, indices], {"axis": 0}, name=f"{name}_scale"))
        factor = added[-1].outputs[0]
    product = ir.node("Mul", [wide.outputs[0], factor], name=name)
    for node in (*added, product):
        node.metadata_props.update(gather.metadata_props)
        _describe(node.outputs[0], f"{node.name}_out", result.shape)
    rows.outputs[0].dtype = ir.DataType.INT8
    if len(added) == 3:
        factor.shape = None  # its last axis is 1
    graph.insert_before(gather, [*added, product])
    ir.convenience.replace_all_uses_with(result, product.outputs[0], replace_graph_outputs=True)
    graph.remove(gather, safe=True)
    product.outputs[0].name, product.outputs[0].shape = result.name, result.shape


def _describe(value: ir.Value, name: str, shape: ir.Shape | None) -> None:
    value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), shape
