"""Choosing among elements: the greatest, triangles, one-hot rows, samples of a grid."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx.table import Node, op

__all__: list[str] = []


@op("TopK", host=(1,))
def _top_k(node: Node, x: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    count = (node.integers("", 1) or [0])[0] if node.has(1) else int(node.get("k"))
    axis, largest = int(node.get("axis", -1)), bool(node.get("largest", 1))
    values, places = torch.topk(x, count, axis, largest, bool(node.get("sorted", 1)))
    return values, places


@op("Trilu", host=(1,))
def _trilu(node: Node, x: Tensor, *_: Tensor) -> Tensor:
    offset = (node.integers("", 1) or [0])[0] if node.has(1) else 0
    return torch.triu(x, offset) if node.get("upper", 1) else torch.tril(x, offset)


@op("OneHot", host=(1,))
def _one_hot(node: Node, indices: Tensor, _: Tensor | None, values: Tensor) -> Tensor:
    depth, axis = int(node.known(1).reshape(-1)[0]), int(node.get("axis", -1))
    places = indices.to(torch.int64)
    places = torch.where(places < 0, places + depth, places).unsqueeze(axis)
    shape = [1] * places.ndim
    shape[axis] = depth
    found = torch.arange(depth).reshape(shape) == places
    return torch.where(found, values[1], values[0])


@op("GridSample")
def _grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.get("mode", "linear")
    return functional.grid_sample(
        x,
        grid,
        modes.get(mode, mode),
        node.get("padding_mode", "zeros"),
        bool(node.get("align_corners", 0)),
    )
