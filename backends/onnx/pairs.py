"""Layers whose 8-bit products may saturate on x86 processors without VNNI instructions.

There two products of an unsigned activation and a signed weight are added in 16 bits, which end at
32767: weights of 127 and 100 under activations of 255 give 57885. Kernels add neighbours along the
input channels or along the kernel, so the largest sum of two such neighbours is the bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.backends.onnx.clean import MODULE, SOURCE
from edgeserve.backends.onnx.inspect import read

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["largest_pair", "saturating"]

_MOST_16 = 32767
_UNSIGNED = 255
_LAYERS = ("Conv", "Gemm", "MatMul")


def saturating(path: Path) -> tuple[str, ...]:
    """The layers of a file that may saturate, by source op and module."""
    model = read(path)
    return tuple(
        _called(node)
        for node in model.graph
        if node.op_type in _LAYERS and _unsigned(node) and (weight := _weight(node)) is not None
        if largest_pair(weight, node.op_type == "Conv") * _UNSIGNED > _MOST_16
    )


def largest_pair(weight: np.ndarray, convolution: bool) -> int:
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
    sums = [np.abs(np.diff(wide, axis=axis) + 2 * _before(wide, axis)) for axis in axes]
    return max((int(each.max(initial=0)) for each in sums), default=0)


def _before(array: np.ndarray, axis: int) -> np.ndarray:
    return array[:, :-1] if axis == 1 else array[:, :, :-1]


def _maker(node: ir.Node, index: int) -> ir.Node | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return value.producer() if value is not None else None


def _unsigned(node: ir.Node) -> bool:
    """It reads 8-bit activations without a sign."""
    import onnx_ir as ir

    maker = _maker(node, 0)
    if maker is None or maker.op_type != "DequantizeLinear" or maker.inputs[0] is None:
        return False
    return maker.inputs[0].dtype == ir.DataType.UINT8 or _zero_point(maker) == ir.DataType.UINT8


def _zero_point(maker: ir.Node) -> ir.DataType | None:
    zero = maker.inputs[2] if len(maker.inputs) > 2 else None
    return None if zero is None or zero.const_value is None else zero.const_value.dtype


def _weight(node: ir.Node) -> np.ndarray | None:
    """Its weights where they are int8."""
    maker = _maker(node, 1)
    held = maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else None
    if held is None or held.const_value is None:
        return None
    array: np.ndarray = held.const_value.numpy()
    return array if array.dtype == np.int8 and array.ndim >= 2 else None


def _called(node: ir.Node) -> str:
    source = node.metadata_props.get(SOURCE) or node.name or node.op_type
    module = node.metadata_props.get(MODULE)
    return f"{source} (module {module})" if module else source
