"""What may be computed in float16, and what must not: sums, positions, tiny constants, masks.

float16 ends at 65504, has 11 bits of precision, and is zero below 6e-8.

A mask of large negative numbers (the least float32, -1e9, -1e4) is added to scores before a
softmax. In float32 the largest of them swallow the scores: where a whole row is masked, its softmax
is even. As minus infinity they make that row NaN; as a number that float16 has, they swallow less,
or some digits more. So what such a constant reaches stays in float32, up to the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from edgeserve.backends.float16_range import (
    EXACT_INTEGER_MAX,
    MASK_MAGNITUDE,
    largest_finite,
    result_magnitude,
)
from edgeserve.backends.onnx.graph_values import float_data, is_float, scatters_by_reduction

#: Ops whose results lose or overflow: sums and powers, and what is looked up by a position.
_FP32_OPS = frozenset(
    "Acos Acosh Asin Asinh Atanh Cos Cosh CumSum DFT Det Exp GridSample "
    "InstanceNormalization Log LpNormalization LpPool MeanVarianceNormalization Pow "
    "Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd "
    "ReduceSum ReduceSumSquare RoiAlign STFT Sin Sinh Sqrt Tan".split()
)

#: A finite constant beyond this stands for "minus infinity" in a mask, not for a number.
INFINITY_THRESHOLD = 1e30

#: The largest number that float16 holds.
FP16_MAX = 65504.0

#: Where a huge constant is a bound on values: any bound that float16 has will do.
BOUNDS = frozenset({"Clip", "Max", "Min", "Pad"})

#: Ops whose results are of their own size, whatever they read.
_BOUNDED_OUTPUT = frozenset(
    "Atan BatchNormalization Div Erf GroupNormalization HardSigmoid Hardmax "
    "InstanceNormalization LayerNormalization LogSoftmax LpNormalization OneHot "
    "RMSNormalization Reciprocal Sigmoid Sign Softmax Softsign Tanh".split()
)

#: What a mask that is an input passes through before it is added to scores.
_VIEWS = frozenset("Cast Expand Identity Reshape Slice Squeeze Transpose Unsqueeze".split())

#: Elements up to which each number of a constant matters by itself (an epsilon, a factor).
_FEW = 16

#: Elements up to which a constant may take part in arithmetic on positions (frequencies).
_SMALL = 4096


def fp32_nodes(model: ir.Model, kept: set[str]) -> set[ir.Node]:
    """The nodes of the main graph that stay in float32.

    Those that `fp16_inputs` finds no way for, that are delicate, kept, or exact arithmetic on
    integers (positions, masks); products and quotients with what such nodes make, since a factor
    may be beyond float16 where the result is not; what a large constant reaches, up to a softmax;
    then everything that stands between such nodes alone.
    """
    found: set[ir.Node] = set()
    exact: set[ir.Value] = set()
    beyond = {v: MASK_MAGNITUDE for v in model.graph.inputs if is_float(v) and _is_added_mask(v)}
    for node in model.graph:
        if (size := _out_of_range(node, beyond)) is not None:
            found.add(node)
            if size > EXACT_INTEGER_MAX:
                beyond |= dict.fromkeys(filter(is_float, node.outputs), size)
        if _is_integer_arithmetic(node, exact):
            exact.update(node.outputs)
            found.add(node)
        elif node.name in kept or _loses_precision(node, found) or not _supports_fp16(node, model):
            found.add(node)
    while surrounded := {
        node for node in model.graph if node not in found and _surrounded(node, found)
    }:
        found |= surrounded
    return found


def _is_added_mask(value: ir.Value, added: bool = False) -> bool:
    """Whether all that reads a value adds it to what a softmax reads: it may hold such numbers."""
    return bool(value.uses()) and all(
        (added and node.op_type == "Softmax")
        or (
            node.op_type in _VIEWS | {"Add"}
            and _is_added_mask(node.outputs[0], added or node.op_type == "Add")
        )
        for node, _ in value.uses()
    )


def _out_of_range(node: ir.Node, beyond: Mapping[ir.Value, float]) -> float | None:
    """See `result_magnitude`."""
    kind = node.op_type
    return result_magnitude(
        max(map(_magnitude, _constants(node)), default=0.0),
        max((beyond.get(v, 0.0) for v in node.inputs if v is not None), default=0.0),
        bound=kind in BOUNDS,
        product=kind == "Mul",
        quotient=kind == "Div",
        bounded=kind in _BOUNDED_OUTPUT,
    )


def _magnitude(value: ir.Value) -> float:
    """The largest finite |number| of a constant."""
    assert value.const_value is not None
    return largest_finite(value.const_value.numpy())


def _loses_precision(node: ir.Node, found: set[ir.Node]) -> bool:
    if node.op_type in ("Div", "Mul"):
        return any(maker in found for maker in _producers(node))
    return node.op_type in _FP32_OPS or scatters_by_reduction(node)  # sums, without kernels


def _supports_fp16(node: ir.Node, model: ir.Model) -> bool:
    known = all(value is None or value.dtype is not None for value in (*node.inputs, *node.outputs))
    fits = all(_constant_fits(value) for value in _constants(node))
    return known and fits and bool(fp16_inputs(node, model))


def fp16_inputs(node: ir.Node, model: ir.Model) -> tuple[int, ...]:
    """Which inputs of a node become float16, by its op's schema; none: it has no float16 form.

    Every float32 output must have the type of one of them.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, model.opset_imports[node.domain], node.domain)
    except (onnx.defs.SchemaError, KeyError):
        return ()
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        for attribute in node.attributes.values()
    ):
        return ()
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    words: dict[int, str] = {}
    for index, value in enumerate(node.inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)].type_str
        if is_float(value) and "tensor(float16)" in allowed.get(formal, ()):
            words[index] = formal
    for index, value in enumerate(node.outputs):
        formal = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
        if is_float(value) and formal not in words.values():
            return ()
    return tuple(words)


def _constants(node: ir.Node) -> list[ir.Value]:
    return [v for v in node.inputs if v is not None and v.is_initializer() and is_float(v)]


def _constant_fits(value: ir.Value) -> bool:
    """Whether a constant keeps its meaning in float16.

    Infinity does; finite numbers must stay finite, and of a few numbers none may vanish or lose its
    digits below the smallest normal one. Among many, tiny ones may.
    """
    assert value.const_value is not None
    array = value.const_value.numpy()
    finite = array[np.isfinite(array) & (np.abs(array) < INFINITY_THRESHOLD)].astype(np.float32)
    with np.errstate(over="ignore"):
        half = finite.astype(np.float16).astype(np.float32)
    if not np.isfinite(half).all():
        return False
    if array.size > _FEW:
        return True
    return bool((np.abs(half - finite) <= 1e-3 * np.abs(finite)).all())


def _is_integer_arithmetic(node: ir.Node, exact: set[ir.Value]) -> bool:
    """Arithmetic on numbers that were integers: positions lose their digits in float16."""
    data = [value for value in node.inputs if is_float(value)]
    if node.op_type == "Cast":
        value = node.inputs[0]
        return value is not None and value.dtype is not None and value.dtype.is_integer()
    return any(value in exact for value in data) and all(
        value in exact or (value is not None and value.is_initializer() and _size(value) <= _SMALL)
        for value in data
    )


def _size(value: ir.Value) -> int:
    return int(value.const_value.size) if value.const_value is not None else _SMALL + 1


def _producers(node: ir.Node) -> list[ir.Node | None]:
    """What makes the float data that a node reads; None for an input of the graph."""
    return [value.producer() for value in float_data(node)]


def _surrounded(node: ir.Node, found: set[ir.Node]) -> bool:
    """Its float data comes from nodes that stay in float32, and only such nodes read it."""
    made = _producers(node)
    readers = [use.node for output in node.outputs for use in output.uses()]
    return (
        bool(made)
        and bool(readers)
        and all(maker is not None and maker in found for maker in made)
        and all(reader in found for reader in readers)
        and not any(output.is_graph_output() for output in node.outputs)
    )
