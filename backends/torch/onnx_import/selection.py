"""ONNX operators that select elements: ranges, indices, scatters, top-k, one-hot rows, grids."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op


@op("Slice", host=(1, 2, 3, 4))
def _slice(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    starts, ends = node.integers("starts", 1) or [], node.integers("ends", 2) or []
    axes = node.integers("axes", 3) or list(range(len(starts)))
    steps = node.integers("steps", 4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        length = int(x.shape[axis])
        span = slice(start, end if step > 0 else max(end, -length - 1), step)
        first, last = span.indices(length)[:2]
        if step < 0:
            places = np.arange(first, last, step)
            x = x.index_select(axis, torch.from_numpy(places.copy()))
        else:
            index: list[slice] = [slice(None)] * x.ndim
            index[axis] = slice(first, max(first, last), step)
            x = x[tuple(index)]
    return x


@op("Split", host=(1,))
def _split(node: OnnxNode, x: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    axis = int(node.get("axis", 0))
    sizes = node.integers("split", 1)
    if sizes is None:
        count = int(node.get("num_outputs", len(node.outputs)))
        each = math.ceil(x.shape[axis] / count)
        sizes = [min(each, x.shape[axis] - each * i) for i in range(count)]
    return tuple(torch.split(x, sizes, axis))


@op("Gather")
def _gather(node: OnnxNode, x: Tensor, indices: Tensor) -> Tensor:
    """By constant indices a slice where they are one number, else a selection of rows."""
    axis = int(node.get("axis", 0)) % x.ndim
    known = node.constants.get(1)
    if known is not None and known.ndim == 0:
        return x.select(axis, int(known))
    flat = _positive(indices, x.shape[axis], known).reshape(-1)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def _positive(indices: Tensor, size: int, known: np.ndarray | None) -> Tensor:
    """Indices counted from the front; known ones without an operator for it."""
    if known is not None:
        if known.size and known.min() >= 0:
            return indices.to(torch.int64)
        return torch.from_numpy(np.where(known < 0, known + size, known).astype(np.int64))
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@op("GatherElements")
def _gather_elements(node: OnnxNode, x: Tensor, indices: Tensor) -> Tensor:
    axis = int(node.get("axis", 0)) % x.ndim
    return torch.gather(x, axis, _positive(indices, x.shape[axis], node.constants.get(1)))


@op("GatherND")
def _gather_nd(node: OnnxNode, x: Tensor, indices: Tensor) -> Tensor:
    batch, depth = int(node.get("batch_dims", 0)), indices.shape[-1]
    outer = math.prod(x.shape[:batch])
    data = x.reshape(outer, *x.shape[batch:])
    places = indices.reshape(outer, -1, depth).to(torch.int64)
    columns = [
        torch.where(column < 0, column + size, column)
        for column, size in zip(places.unbind(-1), data.shape[1 : depth + 1], strict=True)
    ]
    rows = torch.arange(outer)[:, None].expand(outer, places.shape[1])
    found = data[(rows, *columns)]
    return found.reshape(*indices.shape[:-1], *x.shape[batch + depth :])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def _scatter(node: OnnxNode, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = int(node.get("axis", 0)) % x.ndim
    places = _positive(indices, x.shape[axis], node.constants.get(1))
    return _scattered(node, x, axis, places, updates)


@op("ScatterND")
def _scatter_nd(node: OnnxNode, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """By one number for each place, which every format has a scatter for."""
    depth = indices.shape[-1]
    places = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for i, size in enumerate(x.shape[:depth]):
        column = indices[..., i].to(torch.int64)
        places = places * size + torch.where(column < 0, column + size, column)
    inner = math.prod(x.shape[depth:])
    data = x.reshape(math.prod(x.shape[:depth]), inner)
    values, rows = updates.reshape(-1, inner), places.reshape(-1, 1)
    rows = rows.expand(rows.shape[0], inner)
    return _scattered(node, data, 0, rows, values).reshape(x.shape)


def _scattered(node: OnnxNode, x: Tensor, axis: int, places: Tensor, updates: Tensor) -> Tensor:
    """Updates written to their places, or combined with what stands there."""
    word = node.get("reduction", "none")
    if word == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCTIONS[word], include_self=True)


@op("TopK", host=(1,))
def _top_k(node: OnnxNode, x: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    count = (node.integers("", 1) or [0])[0] if node.has(1) else int(node.get("k"))
    axis, largest = int(node.get("axis", -1)), bool(node.get("largest", 1))
    values, places = torch.topk(x, count, axis, largest, bool(node.get("sorted", 1)))
    return values, places


@op("Trilu", host=(1,))
def _trilu(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    offset = (node.integers("", 1) or [0])[0] if node.has(1) else 0
    return torch.triu(x, offset) if node.get("upper", 1) else torch.tril(x, offset)


@op("OneHot", host=(1,))
def _one_hot(node: OnnxNode, indices: Tensor, _: Tensor | None, values: Tensor) -> Tensor:
    depth, axis = int(node.known(1).reshape(-1)[0]), int(node.get("axis", -1))
    places = indices.to(torch.int64)
    places = torch.where(places < 0, places + depth, places).unsqueeze(axis)
    shape = [1] * places.ndim
    shape[axis] = depth
    found = torch.arange(depth).reshape(shape) == places
    return torch.where(found, values[1], values[0])


@op("GridSample")
def _grid_sample(node: OnnxNode, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode, around = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    corners = bool(node.get("align_corners", 0))
    return functional.grid_sample(x, grid, modes.get(mode, mode), around, corners)
