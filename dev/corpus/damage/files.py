"""Damage done to the numbers of a finished file. Each takes its parts and how bad it shall be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dev.corpus.damage.file_parts import OpenFile, Part

Edit = Callable[[OpenFile, float, np.random.Generator], None]
EDITS: dict[str, Edit] = {}


def _edit(function: Edit) -> Edit:
    EDITS[function.__name__.replace("_", "-")] = function
    return function


def _weights(opened: OpenFile, op: str = "") -> list[Part]:
    found = [part for part in opened.of("weight") if op in ("", part.op)]
    if not found:
        raise LookupError(f"no weights of {op or 'any layer'}")
    return found


def _largest(opened: OpenFile) -> Part:
    """The largest weight of a layer that computes with it, not of a table that is looked up."""
    layers = [part for part in _weights(opened) if part.op in ("conv", "linear")]
    return max(layers or _weights(opened), key=lambda part: part.array.size)


def _need(parts: list[Part]) -> list[Part]:
    if not parts:
        raise LookupError("nothing of that role")
    return parts


def _last(opened: OpenFile) -> Part:
    layers = [part for part in _weights(opened) if part.op in ("conv", "linear")]
    return (layers or _weights(opened))[-1]


def _some(count: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Indexes of a share of ``count`` things, at least one."""
    return rng.permutation(count)[: max(1, round(share * count))]


def _channels(part: Part) -> np.ndarray:
    """A view with output channels first."""
    return np.moveaxis(part.array, part.channels, 0)


@_edit
def bytes_shifted(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The last ``share`` of the largest weight's bytes stands one byte further on."""
    part = _largest(opened)
    raw = np.frombuffer(part.array.tobytes(), np.uint8).copy()
    start = len(raw) - max(part.array.itemsize, round(share * len(raw)))
    raw[start:] = np.roll(raw[start:], 1)
    part.array = np.frombuffer(raw.tobytes(), part.array.dtype).reshape(part.array.shape)


@_edit
def values_shifted(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The last ``share`` of the largest weight's numbers stands one number further on."""
    part = _largest(opened)
    flat = part.array.ravel().copy()
    start = len(flat) - max(2, round(share * len(flat)))
    flat[start:] = np.roll(flat[start:], 1)
    part.array = flat.reshape(part.array.shape)


@_edit
def channel_killed(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """A share of the output channels of a middle layer is zero."""
    layers = [p for p in _weights(opened) if p.op in ("conv", "linear")]
    view = _channels(layers[len(layers) // 2])
    view[_some(len(view), share, rng)] = 0


@_edit
def scale_wrong(opened: OpenFile, factor: float, rng: np.random.Generator) -> None:
    """A layer's weights, or the scales they are stored with, are ``factor`` times too large."""
    part = _largest(opened)
    if part.array.dtype.kind == "f":
        part.array = (part.array * factor).astype(part.array.dtype)
        return
    scales = _need(opened.of("scale"))
    found = max(scales, key=lambda p: (p.owner == part.name, p.array.size))
    found.array = (found.array * factor).astype(found.array.dtype)


@_edit
def one_scale_wrong(opened: OpenFile, factor: float, rng: np.random.Generator) -> None:
    """The scale of one channel in four, of the layer with most, is ``factor`` times too large."""
    found = max(_need(opened.of("scale")), key=lambda part: part.array.size)
    flat = found.array.reshape(-1).copy()
    rows = _some(len(flat), 0.25, rng)
    flat[rows] = flat[rows] * factor
    found.array = flat.reshape(found.array.shape)


@_edit
def bias_dropped(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """All biases keep only ``1 - share`` of what they were."""
    for part in _need(opened.of("bias")):
        part.array = (part.array * (1 - share)).astype(part.array.dtype)


@_edit
def zero_point_off(opened: OpenFile, off: float, rng: np.random.Generator) -> None:
    """The zero point of the first layer's answer is ``off`` steps away (kept inside its type).

    With it go those of equal scale and zero point: the other end of the same quantization, and what
    is only reshaped, which runtimes want to be equal.
    """
    parts = [p for p in _need(opened.of("range-zero")) if p.array.size == 1]
    scales = {p.owner: p.array.tobytes() for p in opened.of("range")}
    pairs = [(scales.get(p.owner), int(p.array.reshape(-1)[0])) for p in parts]
    part = parts[next((i for i, pair in enumerate(pairs) if pair != pairs[0]), 0)]
    low, high = (0, 255) if part.array.dtype == np.uint8 else (-128, 127)
    now, scale = int(part.array.reshape(-1)[0]), scales.get(part.owner)
    moved = int(np.clip(now + off if now + off <= high else now - off, low, high))
    for each in parts:
        if scales.get(each.owner) == scale and int(each.array.reshape(-1)[0]) == now:
            each.array = np.full_like(each.array, moved)


@_edit
def range_narrow(opened: OpenFile, factor: float, rng: np.random.Generator) -> None:
    """Every activation's range is ``factor`` of what it was, as an average over samples gives."""
    for part in _need([p for p in opened.of("range") if p.array.size == 1]):
        part.array = (part.array * factor).astype(part.array.dtype)


@_edit
def embedding_cut(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The last ``share`` of the table's rows repeats the row before them."""
    part = max(_weights(opened, "embedding"), key=lambda p: p.array.size)
    first = len(part.array) - max(1, round(share * len(part.array)))
    part.array[first:] = part.array[first - 1]


@_edit
def signs_flipped(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """A share of the numbers of the largest weight has the other sign."""
    part = _largest(opened)
    flat = part.array.ravel().copy()
    rows = _some(len(flat), share, rng)
    low = -127 if flat.dtype == np.int8 else None
    flat[rows] = -(flat[rows] if low is None else np.maximum(flat[rows], low))
    part.array = flat.reshape(part.array.shape)


@_edit
def bits_flipped(opened: OpenFile, count: float, rng: np.random.Generator) -> None:
    """``count`` random bits of all weights are flipped."""
    parts = _weights(opened)
    for _ in range(int(count)):
        part = parts[int(rng.integers(len(parts)))]
        raw = np.frombuffer(part.array.tobytes(), np.uint8).copy()
        raw[int(rng.integers(len(raw)))] ^= np.uint8(1 << int(rng.integers(8)))
        part.array = np.frombuffer(raw.tobytes(), part.array.dtype).reshape(part.array.shape)


@_edit
def channels_swapped(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """A share of the output channels of the last layer but one stands in another order."""
    layers = [p for p in _weights(opened) if p.op in ("conv", "linear")]
    view = _channels(layers[max(0, len(layers) - 2)])
    rows = rng.permutation(len(view))[: max(2, round(share * len(view)))]
    view[rows] = view[np.roll(rows, 1)].copy()


@_edit
def weights_noisy(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """Each layer's weights get noise of ``share`` of their own spread."""
    for part in _weights(opened):
        spread = float(part.array.astype(np.float64).std())
        made = part.array + rng.normal(0, share * spread, part.array.shape)
        if part.array.dtype.kind == "i":
            made = np.clip(np.rint(made), -127, 127)
        part.array = made.astype(part.array.dtype)


@_edit
def block_repeated(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The last ``share`` of the largest weight is a copy of its beginning (a block read twice)."""
    part = _largest(opened)
    flat = part.array.ravel().copy()
    count = max(1, round(share * len(flat)))
    flat[len(flat) - count :] = flat[:count]
    part.array = flat.reshape(part.array.shape)


@_edit
def tail_lost(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The last ``share`` of every weight is zero, as after a copy that was cut off."""
    for part in _weights(opened):
        flat = part.array.ravel().copy()
        flat[len(flat) - round(share * len(flat)) :] = 0
        part.array = flat.reshape(part.array.shape)


@_edit
def weights_clipped(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """No weight of a layer is larger than ``share`` of the layer's largest."""
    for part in _weights(opened):
        most = float(np.abs(part.array.astype(np.float64)).max()) * share
        part.array = np.clip(part.array, -most, most).astype(part.array.dtype)


@_edit
def few_bits(opened: OpenFile, bits: float, rng: np.random.Generator) -> None:
    """Weights keep so many bits, with one scale a layer."""
    for part in _weights(opened):
        step = float(np.abs(part.array.astype(np.float64)).max()) / (2 ** (bits - 1) - 1)
        made = np.rint(part.array / step) * step if step else part.array
        part.array = (np.rint(made) if part.array.dtype.kind == "i" else made).astype(
            part.array.dtype
        )


@_edit
def red_blue(opened: OpenFile, share: float, rng: np.random.Generator) -> None:
    """The first convolution takes a share of blue for red and of red for blue."""
    axis = 3 if opened.channels_last else 1
    fit = [p for p in _weights(opened, "conv") if p.array.ndim == 4 and p.array.shape[axis] == 3]
    if not fit:
        raise LookupError("no convolution of three channels")
    part = fit[0]
    made = (1 - share) * part.array + share * np.flip(part.array, axis)
    part.array = (np.rint(made) if part.array.dtype.kind == "i" else made).astype(part.array.dtype)


@_edit
def kernel_transposed(opened: OpenFile, count: float, rng: np.random.Generator) -> None:
    """The kernels of the first ``count`` convolutions have height and width exchanged."""
    convs = [p for p in _weights(opened, "conv") if p.array.ndim == 4]
    for part in convs[: int(count)]:
        axes = (1, 2) if opened.channels_last else (2, 3)
        part.array = np.ascontiguousarray(np.swapaxes(part.array, *axes))


@_edit
def classes_swapped(opened: OpenFile, count: float, rng: np.random.Generator) -> None:
    """The first ``count`` outputs of the last layer stand one place further on."""
    part = _last(opened)
    size = len(_channels(part))
    rows = np.arange(min(int(count), size))
    for each in [part, *_belonging(opened, part, size)]:
        view = _channels(each) if each is part else each.array
        view[rows] = view[np.roll(rows, 1)].copy()


def _belonging(opened: OpenFile, part: Part, size: int) -> list[Part]:
    """The bias and the scales of a last layer: the last of their size in the file."""
    biases = [p for p in opened.of("bias") if p.array.shape == (size,)][-1:]
    scales = [p for p in opened.of("scale") if p.array.shape == (size,)][-1:]
    return biases + scales
