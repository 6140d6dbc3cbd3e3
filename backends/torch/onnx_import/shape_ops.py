"""The same numbers in another arrangement: shapes, axes, joints, copies, filling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.elementwise import torch_dtype
from edgeserve.backends.torch.onnx_import.table import (
    OnnxNode,
    op,
    register_functions,
    register_nodes,
)


@op("Reshape", host=(1,))
def _reshape(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    shape = node.integers("shape", 1) or []
    if not node.get("allowzero", 0):
        shape = [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return x.reshape(shape)


@op("Flatten")
def _flatten(node: OnnxNode, x: Tensor) -> Tensor:
    axis = int(node.get("axis", 1))
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1)


@op("Squeeze", host=(1,))
def _squeeze(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    axes = node.integers("axes", 1)
    if axes is None:
        axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    gone = {axis % x.ndim for axis in axes}
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in gone])


@op("Unsqueeze", host=(1,))
def _unsqueeze(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    axes = node.integers("axes", 1) or []
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


register_functions({"Size": lambda x: torch.tensor(x.numel(), dtype=torch.int64)})
register_nodes(
    {
        "Transpose": lambda node, x: x.permute(
            [int(n) for n in node.get("perm") or reversed(range(x.ndim))]
        ),
        "Concat": lambda node, *parts: torch.cat(parts, int(node.get("axis"))),
    }
)
register_nodes(
    {
        "Expand": lambda node, x, _: x.expand(
            np.broadcast_shapes(tuple(x.shape), tuple(int(n) for n in node.known(1)))
        ),
        "Tile": lambda node, x, *_: x.repeat([int(n) for n in node.known(1)]),
    },
    host=(1,),
)


@op("Shape")
def _shape(node: OnnxNode, x: Tensor) -> Tensor:
    start, end = int(node.get("start", 0)), node.get("end")
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@op("ConstantOfShape", host=(0,))
def _constant_of_shape(node: OnnxNode, _: Tensor | None) -> Tensor:
    value = np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(-1)
    return torch.from_numpy(np.full([int(n) for n in node.known(0)], value[0], value.dtype))


@op("Range", host=(0, 1, 2))
def _range(node: OnnxNode, *_: Tensor) -> Tensor:
    start, limit, step = (node.known(i).reshape(-1)[0] for i in range(3))
    return torch.from_numpy(np.arange(start, limit, step, dtype=start.dtype))


@op("EyeLike")
def _eye_like(node: OnnxNode, x: Tensor) -> Tensor:
    kind = node.get("dtype")
    dtype = x.dtype if kind is None else torch_dtype(node, int(kind))
    return torch.from_numpy(np.eye(x.shape[0], x.shape[1], int(node.get("k", 0)))).to(dtype)


@op("Pad", host=(1, 2, 3))
def _pad(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    pads = node.integers("pads", 1) or []
    axes = node.integers("", 3) if node.has(3) else list(range(x.ndim))
    ends = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes or ()):
        ends[axis % x.ndim] = pads[i], pads[i + len(axes or ())]
    mode = node.get("mode", "constant")
    value = _pad_value(node)
    if mode == "constant":
        flat = [n for pair in reversed(ends) for n in pair]
        return functional.pad(x, flat, value=value)
    for axis, (before, after) in enumerate(ends):
        if before or after:
            x = x.index_select(axis, _source_positions(node, x.shape[axis], before, after, mode))
    return x


def _pad_value(node: OnnxNode) -> Any:
    if node.has(2):
        return node.known(2).reshape(-1)[0].item()
    return node.get("value", 0.0)


def _source_positions(node: OnnxNode, size: int, before: int, after: int, mode: str) -> Tensor:
    """For each place of a padded axis the place that its values come from."""
    places = np.arange(-before, size + after)
    if mode == "edge":
        places = places.clip(0, size - 1)
    elif mode == "wrap":
        places = places % size
    elif mode == "reflect" and size > 1:
        places = np.abs((places + size - 1) % (2 * (size - 1)) - (size - 1))
    elif mode != "reflect":
        raise node.refuse(f"mode {mode!r}")
    return torch.from_numpy(places)


@op("DepthToSpace")
def _depth_to_space(node: OnnxNode, x: Tensor) -> Tensor:
    size, (rows, depth, height, width) = int(node.get("blocksize")), x.shape
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(x, size)
    parts = x.reshape(rows, size, size, depth // size**2, height, width)
    parts = parts.permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(rows, depth // size**2, height * size, width * size)


@op("SpaceToDepth")
def _space_to_depth(node: OnnxNode, x: Tensor) -> Tensor:
    size, (rows, depth, height, width) = int(node.get("blocksize")), x.shape
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_unshuffle(x, size)
    parts = x.reshape(rows, depth, height // size, size, width // size, size)
    parts = parts.permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(rows, depth * size**2, height // size, width // size)
