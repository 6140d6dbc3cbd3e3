"""8-bit arithmetic by processor: types of activations, 7-bit weights, layers that saturate.

ONNX Runtime's integer kernels on x86 take unsigned activations in half the time of signed ones;
elsewhere signed ones are native. Without VNNI (x86) or dot product (ARM) instructions, two
products of an unsigned activation and a signed weight are added in 16 bits, which end at 32767:
weights of 127 and 100 under activations of 255 give 57885. Answers then differ from those of
other processors unless the weights keep to 7 bits. Kernels add neighbours along the input
channels or along the kernel, so the largest sum of two such neighbours is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx_ir as ir

from edgeserve.backends.onnx.clean import MODULE, SOURCE
from edgeserve.backends.onnx.graph_values import producer
from edgeserve.backends.onnx.inspect import read
from edgeserve.environment import environment
from edgeserve.errors import QuantizeError
from edgeserve.types.artifact import Recipe

_X86 = ("x86_64", "amd64", "i386", "i686", "x86")

#: Instruction sets whose 8-bit products are added in 32 bits at once.
_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "vnni", "dotprod", "i8mm"})

_OPTION_VALUES = {"activation": ("u8", "s8"), "reduce_range": ("false", "true")}


def activation_for(machine: str) -> str:
    """The activations that a kind of processor multiplies faster: "u8" or "s8".

    Args:
        machine: As `platform.machine` says it ("x86_64", "aarch64").
    """
    return "u8" if machine.lower() in _X86 else "s8"


def reduce_range_for(features: Sequence[str]) -> str:
    """Whether weights must keep to 7 bits, "true" or "false".

    Args:
        features: Instruction sets in the words of `edgeserve.environment.FEATURES`.
    """
    return "false" if _DOT_PRODUCT & set(features) else "true"


def resolve_options(recipe: Recipe) -> Recipe:
    """The recipe with what it leaves open chosen for this machine.

    Raises:
        QuantizeError: EDGE-QUANTIZE-008, an option has a value that it cannot have.
    """
    options = dict(recipe.options)
    for name, words in _OPTION_VALUES.items():
        if name in options and options[name] not in words:
            raise QuantizeError(
                "EDGE-QUANTIZE-008",
                f"option {name!r}",
                wanted=" or ".join(words),
                got=repr(options[name]),
                hint="omit it to choose it for this machine",
            )
    if recipe.precision == "w8a8":
        here = environment()
        options.setdefault("activation", activation_for(here.machine))
        options.setdefault("reduce_range", reduce_range_for(here.features))
    return msgspec.structs.replace(recipe, options=dict(sorted(options.items())))


_INT16_MAX = 32767
_UINT8_MAX = 255
_LAYERS = ("Conv", "Gemm", "MatMul")


def saturating_layers(path: Path) -> tuple[str, ...]:
    """The layers of a file that may saturate, by source op and module."""
    model = read(path)
    return tuple(
        _layer_name(node)
        for node in model.graph
        if node.op_type in _LAYERS and _reads_uint8(node) and (weight := _weight(node)) is not None
        if largest_pair_sum(weight, node.op_type == "Conv") * _UINT8_MAX > _INT16_MAX
    )


def largest_pair_sum(weight: np.ndarray, convolution: bool) -> int:
    """Largest |a + b| of two neighbouring weights of one output.

    Args:
        weight: int8; of a convolution [out, in, ...], else [in, out].
        convolution: Which of both.
    """
    lined = (
        weight.reshape(weight.shape[0], weight.shape[1], -1) if convolution else weight.T[..., None]
    )
    wide = lined.astype(np.int32)
    axes = [axis for axis in (1, 2) if wide.shape[axis] > 1]
    lasts = {1: wide[:, :-1], 2: wide[:, :, :-1]}
    sums = [np.abs(np.diff(wide, axis=axis) + 2 * lasts[axis]) for axis in axes]
    return max((int(each.max(initial=0)) for each in sums), default=0)


def _reads_uint8(node: ir.Node) -> bool:
    """It reads 8-bit activations without a sign."""
    maker = producer(node, 0)
    if maker is None or maker.op_type != "DequantizeLinear" or maker.inputs[0] is None:
        return False
    return maker.inputs[0].dtype == ir.DataType.UINT8 or _zero_point(maker) == ir.DataType.UINT8


def _zero_point(maker: ir.Node) -> ir.DataType | None:
    zero = maker.inputs[2] if len(maker.inputs) > 2 else None
    return None if zero is None or zero.const_value is None else zero.const_value.dtype


def _weight(node: ir.Node) -> np.ndarray | None:
    """Its weights where they are int8."""
    maker = producer(node, 1)
    held = maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else None
    if held is None or held.const_value is None:
        return None
    array: np.ndarray = held.const_value.numpy()
    return array if array.dtype == np.int8 and array.ndim >= 2 else None


def _layer_name(node: ir.Node) -> str:
    source = node.metadata_props.get(SOURCE) or node.name or node.op_type
    module = node.metadata_props.get(MODULE)
    return f"{source} (module {module})" if module else source
