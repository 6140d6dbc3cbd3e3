"""w8a8: 8-bit weights and activations, as QuantizeLinear and DequantizeLinear pairs.

ONNX Runtime's own quantizer writes the pairs; which nodes get them (`flow`) and which ranges the
activations have (`ranges`) is decided here. Weights are symmetric int8 for each output channel,
activations asymmetric for each tensor, so that a ReLU's signed half is not wasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeserve.backends.onnx.flow import HEADS, plan
from edgeserve.backends.onnx.ranges import Range, collect_ranges
from edgeserve.errors import QuantizeError

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgeserve.types.artifact import Artifact, Recipe

__all__ = ["quantize_static"]

#: Where DequantizeLinear learned to have a scale for each channel.
_OLDEST = 13

_FOLDABLE = ("Conv", "ConvTranspose", "Gemm")


def quantize_static(
    model: ir.Model,
    artifact: Artifact,
    root: Path,
    recipe: Recipe,
    kept: set[str],
    samples: Iterable[Mapping[str, np.ndarray]],
) -> ir.Model:
    """Quantize the nodes that `flow.plan` names.

    Args:
        model: The float model, weights in memory; every node has a name of its own.
        artifact: The same model as it lies on disk, to be run with the samples.
        root: Folder of its files.
        recipe: Its options "activation" and "reduce_range" are set.
        kept: Names of nodes that stay float.
        samples: Feeds to calibrate with.

    Returns:
        A new model.

    Raises:
        QuantizeError: EDGE-QUANTIZE-011 there is no layer to quantize, -012 the operator set is too
            old, -010 and -001 see `collect_ranges`.
    """
    opset = model.opset_imports.get("", 0)
    if opset < _OLDEST:
        raise QuantizeError(
            "EDGE-QUANTIZE-012",
            "model",
            wanted=f"ONNX operator set {_OLDEST} or newer",
            got=f"{opset}, which has no scale for each channel",
            hint="export the model again with a newer operator set, or ask for --precision w8",
        )
    nodes = plan(model, kept)
    if not nodes:
        raise QuantizeError(
            "EDGE-QUANTIZE-011",
            "model",
            got="none that is to be quantized",
            wanted="a convolution or linear layer with constant weights",
            hint="ask for --precision fp16, or keep less in float",
        )
    ranges = collect_ranges(artifact, root, _activations(nodes), samples)
    made = _quantized(model, nodes, ranges, recipe)
    _spare(made, {node.name or "" for node in nodes})
    _protect(made)
    return made


def _activations(nodes: Iterable[ir.Node]) -> list[str]:
    """Names of the float tensors that the nodes read and write, in order."""
    import onnx_ir as ir

    values = [
        value
        for node in nodes
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.dtype == ir.DataType.FLOAT and not value.is_initializer()
    ]
    return list(dict.fromkeys(value.name or "" for value in values))


def _quantized(
    model: ir.Model, nodes: Iterable[ir.Node], ranges: Mapping[str, Range], recipe: Recipe
) -> ir.Model:
    import onnx_ir as ir
    from onnxruntime.quantization import QDQQuantizer, QuantType

    proto = ir.to_proto(model)
    # Without this note the quantizer writes the model to a folder and reads it back, to learn the
    # dtypes of its tensors; they stand in it already.
    proto.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")
    signed = recipe.options["activation"] == "s8"
    quantizer = QDQQuantizer(
        proto,
        per_channel=True,
        reduce_range=recipe.options["reduce_range"] == "true",
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8 if signed else QuantType.QUInt8,
        tensors_range=_ranges(ranges),
        nodes_to_quantize=[node.name for node in nodes],
        nodes_to_exclude=[],
        op_types_to_quantize=sorted({node.op_type for node in nodes}),
        extra_options={
            "ActivationSymmetric": False,
            "WeightSymmetric": True,
            "OpTypesToExcludeOutputQuantization": list(HEADS),
        },
    )
    made: ir.Model = ir.from_proto(quantizer.quantize_model())
    made.producer_name, made.producer_version = model.producer_name, model.producer_version
    made.metadata_props.clear()
    made.graph.sort()
    return made


def _ranges(ranges: Mapping[str, Range]) -> Any:
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import TensorsData

    pairs = {name: (np.float32(low), np.float32(high)) for name, (low, high) in ranges.items()}
    return TensorsData(CalibrationMethod.MinMax, pairs)


def _spare(model: ir.Model, quantized: set[str]) -> None:
    """Let nodes that stay float read the float tensor, where a node that stays float made it.

    The quantizer lets every reader of a tensor have the rounded values. A transformer's residual
    stream must not be rounded because a product reads it too.
    """
    for node in list(model.graph):
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if node.op_type != "DequantizeLinear" or source is None:
            continue
        whole = source.inputs[0]
        maker = whole.producer() if whole is not None else None
        if maker is None or maker.name in quantized:
            continue
        for use in list(node.outputs[0].uses()):
            if use.node.name not in quantized and use.node.op_type != "QuantizeLinear":
                use.node.replace_input_with(use.idx, whole)


def _protect(model: ir.Model) -> None:
    """Keep ONNX Runtime from quantizing what was kept float.

    When it loads a file it rounds the float weights of every convolution or Gemm that reads a
    dequantized tensor to 8 bits for the whole TENSOR (its rewriting `WeightBiasQuantization`, on at
    every level): far worse than what was to be avoided. A Clip to the values that the 8-bit tensor
    can have changes nothing, and stands between the two.
    """
    for node in list(model.graph):
        if node.op_type not in _FOLDABLE or _made_by(node, 0) != "DequantizeLinear":
            continue
        if _made_by(node, 1) != "DequantizeLinear":
            _clip_input(model.graph, node)


def _made_by(node: ir.Node, index: int) -> str:
    value = node.inputs[index]
    producer = value.producer() if value is not None else None
    return producer.op_type if producer is not None else ""


def _clip_input(graph: ir.Graph, node: ir.Node) -> None:
    import onnx_ir as ir

    value = node.inputs[0]
    assert value is not None
    low, high = _representable(value.producer())
    bounds = []
    for word, bound in (("low", low), ("high", high)):
        name = f"{node.name}_{word}"
        added = ir.Value(name=name, const_value=ir.tensor(np.float32(bound), name=name))
        added.shape, added.type = ir.Shape([]), ir.TensorType(ir.DataType.FLOAT)
        graph.initializers[name] = added
        bounds.append(added)
    clip = ir.node("Clip", [value, *bounds], name=f"{node.name}_clip")
    clip.metadata_props.update(node.metadata_props)
    made = clip.outputs[0]
    made.name, made.type, made.shape = f"{node.name}_clipped", value.type, value.shape
    graph.insert_before(node, clip)
    node.replace_input_with(0, made)


def _representable(dequantize: ir.Node | None) -> tuple[float, float]:
    """Smallest and largest value that comes out of a DequantizeLinear with one scale."""
    assert dequantize is not None
    numbers = [
        value.const_value.numpy()
        for value in dequantize.inputs[1:]
        if value is not None and value.const_value is not None
    ]
    scale, zero = numbers[0].astype(np.float64), numbers[1]
    info = np.iinfo(zero.dtype)
    low, high = ((end - zero.astype(np.float64)) * scale for end in (info.min, info.max))
    # Rounded outwards: the product in float32 may lie a digit beyond.
    return float(np.float32(low) * 1.000001), float(np.float32(high) * 1.000001)
