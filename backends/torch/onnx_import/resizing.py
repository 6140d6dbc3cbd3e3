"""Resize and Upsample, by what PyTorch has where it means the same, else by a matrix an axis.

Resizing is linear and separable: what each place of an axis is made of follows from sizes and
scales alone. The formulas are those of the operator's specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op

_HALF = np.float32(0.5)

#: Where a place of the answer lies in the input: place, scale, sizes of answer and input.
_Where = Callable[[np.ndarray, np.float32, np.float32, int], np.ndarray]


def _half(x: np.ndarray, scale: np.float32, wide: np.float32, size: int) -> np.ndarray:
    return (x + _HALF) / scale - _HALF


def _corners(x: np.ndarray, scale: np.float32, wide: np.float32, size: int) -> np.ndarray:
    return x * (size - 1) / (wide - 1) if wide > 1 else np.zeros_like(x)


def _symmetric(x: np.ndarray, scale: np.float32, wide: np.float32, size: int) -> np.ndarray:
    adjustment = int(wide) / wide
    center = size / 2
    return center * (1 - adjustment) + (x + _HALF) / scale - _HALF


_PLACES: dict[str, _Where] = {
    "half_pixel": _half,
    "pytorch_half_pixel": lambda x, s, w, n: _half(x, s, w, n) if w > 1 else np.zeros_like(x),
    "half_pixel_symmetric": _symmetric,
    "asymmetric": lambda x, s, w, n: x / s,
    "align_corners": _corners,
}

_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@op("Upsample", host=(1,))
def _upsample(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    scales = node.known(1).reshape(-1) if node.has(1) else node.get("scales")
    scales = [float(n) for n in scales]
    sizes = [math.floor(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    return _resized(node, x, sizes, scales, "asymmetric", "floor")


@op("Resize", host=(1, 2, 3))
def _resize(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    sizes, scales = _targets(node, x)
    if node.get("antialias", 0):
        raise node.refuse("antialias")
    place = node.get("coordinate_transformation_mode", "half_pixel")
    if node.opset < 11:  # it had one way then
        place = "asymmetric"
    if place not in _PLACES:
        raise node.refuse(f"coordinate_transformation_mode {place!r}")
    near = "floor" if node.opset < 11 else node.get("nearest_mode", "round_prefer_floor")
    return _resized(node, x, sizes, scales, place, near)


def _targets(node: OnnxNode, x: Tensor) -> tuple[list[int], list[float]]:
    """Size and scale of each axis."""
    first = 1 if node.opset < 11 else 2
    axes = [int(n) % x.ndim for n in node.get("axes") or range(x.ndim)]
    sizes, scales = list(x.shape), [1.0] * x.ndim
    if node.has(3) and node.known(3).size:
        wanted = [int(n) for n in node.known(3)]
        ratios = [want / x.shape[axis] for want, axis in zip(wanted, axes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(axes)
            wanted = [math.floor(ratio * x.shape[axis] + 0.5) for axis in axes]
        for axis, size, ratio in zip(axes, wanted, ratios, strict=True):
            sizes[axis], scales[axis] = size, ratio
        return sizes, scales
    for axis, scale in zip(axes, node.known(first).reshape(-1), strict=True):
        sizes[axis], scales[axis] = math.floor(x.shape[axis] * float(scale)), float(scale)
    return sizes, scales


def _resized(
    node: OnnxNode, x: Tensor, sizes: list[int], scales: list[float], place: str, near: str
) -> Tensor:
    mode = node.get("mode", "nearest")
    if (simple := _by_torch(x, sizes, scales, mode, place, near)) is not None:
        return simple
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        if size == x.shape[axis] and scale == 1.0:
            continue
        wide = x.shape[axis] * scale
        # In float32, as engines do: where a place falls on a border, rounding decides.
        places = np.arange(size, dtype=np.float32)
        where = _PLACES[place](places, np.float32(scale), np.float32(wide), x.shape[axis])
        if mode == "nearest":
            index = _ROUND[near](where).clip(0, x.shape[axis] - 1).astype(np.int64)
            x = x.index_select(axis, torch.from_numpy(index))
        else:
            matrix = _matrix(node, where, x.shape[axis], mode)
            weights = torch.from_numpy(matrix.astype(np.float32)).to(x.dtype)
            x = torch.matmul(x.movedim(axis, -1), weights.t()).movedim(-1, axis)
    return x


def _by_torch(
    x: Tensor, sizes: list[int], scales: list[float], mode: str, place: str, near: str
) -> Tensor | None:
    """PyTorch's own resize where it computes just that."""
    whole = all(
        math.isclose(size, old * scale, rel_tol=1e-9)
        for size, old, scale in zip(sizes, x.shape, scales, strict=True)
    )
    if x.ndim != 4 or not whole or sizes[:2] != list(x.shape[:2]):
        return None
    grows = all(scale >= 1 and float(scale).is_integer() for scale in scales[2:])
    if mode == "nearest" and grows:
        halves = place in ("half_pixel", "pytorch_half_pixel") and near.startswith("round")
        same = halves or (place, near) == ("asymmetric", "floor")
        return functional.interpolate(x, sizes[2:], mode="nearest") if same else None
    if mode == "linear" and place in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        if place != "half_pixel" and min(sizes[2:]) == 1:
            return None
        corners = place == "align_corners"
        return functional.interpolate(x, sizes[2:], mode="bilinear", align_corners=corners)
    return None


def _matrix(node: OnnxNode, where: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Row by row what each place is made of."""
    base = np.floor(where).astype(np.int64)
    rest = where.astype(np.float64) - base
    if mode == "linear":
        taps = {0: 1 - rest, 1: rest}
    elif mode == "cubic":
        taps = _cubic(rest, float(node.get("cubic_coeff_a", -0.75)))
    else:
        raise node.refuse(f"mode {mode!r}")
    matrix = np.zeros((len(where), size))
    for offset, weight in taps.items():
        index = base + offset
        if node.get("exclude_outside", 0):
            weight = np.where((index >= 0) & (index < size), weight, 0.0)
        np.add.at(matrix, (np.arange(len(where)), index.clip(0, size - 1)), weight)
    return matrix / matrix.sum(1, keepdims=True) if node.get("exclude_outside", 0) else matrix


def _cubic(rest: np.ndarray, a: float) -> dict[int, np.ndarray]:
    """Keys' kernel at the four places around."""

    def near(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a + 2) * t - (a + 3)) * t * t + 1)

    def far(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a * t - 5 * a) * t + 8 * a) * t - 4 * a)

    return {-1: far(1 + rest), 0: near(rest), 1: near(1 - rest), 2: far(2 - rest)}
