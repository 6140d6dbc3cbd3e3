"""fp16: weights and most arithmetic in float16; inputs and outputs of the file stay float32.

A node either works in float16 or stays in float32 (`half_rules`); casts stand where the two meet.
ONNX Runtime on x86 has few float16 kernels and casts around the rest itself; on ARM it has more.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeserve.backends.onnx.clean import all_nodes
from edgeserve.backends.onnx.fp16_rules import (
    BOUNDS,
    FP16_MAX,
    INFINITY_THRESHOLD,
    fp16_inputs,
    fp32_nodes,
)
from edgeserve.backends.onnx.graph_values import add_constant, is_float


def to_fp16(model: ir.Model, kept: set[str]) -> None:
    """Turn a float32 model into a float16 one, in place.

    Args:
        model: Weights in memory; every node has a name of its own.
        kept: Names of nodes that stay in float32.
    """
    staying = fp32_nodes(model, kept)
    _clamp_bounds(model, staying)
    inputs = {node: fp16_inputs(node, model) for node in model.graph if node not in staying}
    casts = _CastCache(model.graph)
    for node in list(model.graph):
        for index, value in enumerate(node.inputs):
            if value is not None:
                wanted = casts.half(value) if index in inputs.get(node, ()) else casts.whole(value)
                if wanted is not value:
                    node.replace_input_with(index, wanted)
        if inputs.get(node):
            casts.mark(node)
    _restore_subgraphs(model, casts)
    casts.finish()


def _clamp_bounds(model: ir.Model, staying: set[ir.Node]) -> None:
    """Bring bounds that stand for infinity into float16's range, keeping their sign.

    Of nodes that stay in float32 nothing is changed: where such a constant is a mask, they do.
    """
    for value in list(model.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            continue
        array = tensor.numpy()
        huge = np.isfinite(array) & (np.abs(array) >= INFINITY_THRESHOLD)
        users = {use.node for use in value.uses()}
        if not huge.any() or users & staying or not all(u.op_type in BOUNDS for u in users):
            continue
        tamed = np.where(huge, np.sign(array) * np.float32(FP16_MAX), array).astype(np.float32)
        value.const_value = ir.tensor(tamed, name=value.name)


def _restore_subgraphs(model: ir.Model, casts: _CastCache) -> None:
    """Nodes of inner graphs stay in float32: what they read from outside is cast back."""
    for node in all_nodes(model):
        if node.graph is not model.graph:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    node.replace_input_with(index, casts.whole(value))


class _CastCache:
    """float16 and float32 forms of the same values, each made once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._half: dict[ir.Value, ir.Value] = {}
        self._whole: dict[ir.Value, ir.Value] = {}

    def mark(self, node: ir.Node) -> None:
        """Note that a node's float outputs are float16 now."""
        for value in node.outputs:
            if is_float(value):
                value.dtype = ir.DataType.FLOAT16

    def half(self, value: ir.Value) -> ir.Value:
        """The float16 form of a float value."""
        if not is_float(value):
            return value
        if value not in self._half:
            if value.is_initializer():
                assert value.const_value is not None
                small = value.const_value.numpy().astype(np.float16)
                self._half[value] = add_constant(self._graph, f"{value.name}_half", small)
            else:
                self._half[value] = self._cast(value, ir.DataType.FLOAT16)
        return self._half[value]

    def whole(self, value: ir.Value) -> ir.Value:
        """The float32 form of a value that became float16; any other value itself."""
        if value.dtype != ir.DataType.FLOAT16:
            return value
        if value not in self._whole:
            self._whole[value] = self._cast(value, ir.DataType.FLOAT)
        return self._whole[value]

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A Cast right behind the node that makes ``value`` (first of all, for an input)."""
        word = "half" if dtype == ir.DataType.FLOAT16 else "float"
        node = ir.node("Cast", [value], {"to": dtype}, name=f"{value.name}_to_{word}")
        made, maker = node.outputs[0], value.producer()
        made.name, made.type, made.shape = f"{value.name}_{word}", ir.TensorType(dtype), value.shape
        if maker is None:
            first = next(iter(self._graph))
            self._graph.insert_before(first, node)
        else:
            node.metadata_props.update(maker.metadata_props)
            self._graph.insert_after(maker, node)
        return made

    def finish(self) -> None:
        """Give the graph's outputs their dtype and name back, and drop constants nobody reads."""
        for index, value in enumerate(self._graph.outputs):
            if value.dtype == ir.DataType.FLOAT16:
                name = value.name
                whole = self.whole(value)
                value.name = f"{name}_half"
                whole.name = name
                self._graph.outputs[index] = whole
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self._graph.initializers[name]
