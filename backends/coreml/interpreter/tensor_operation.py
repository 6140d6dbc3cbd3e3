"""Making, joining, splitting and padding tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.plan_nodes import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel, register_functions
from edgeserve.backends.coreml.interpreter.values import Bool, Float, Int, integer, ints, truth

register_functions(
    {
        # The input itself, a list included.
        "identity": lambda x: x,
        # The sizes of ``x``, int32.
        "shape": lambda x: torch.tensor(x.shape, dtype=torch.int32),
        # A tensor of one value with another's shape.
        "fill_like": lambda ref_tensor, value: value.expand(ref_tensor.shape),
        # Join along a new axis.
        "stack": lambda values, axis: torch.stack(values, integer(axis)),
        # Indices of the elements that are not zero, one row each, in row-major order.
        "non_zero": lambda x: torch.nonzero(x),
        # Indices that sort ``x``; of equal elements the first comes first.
        "argsort": lambda x, axis=-1, ascending=False: torch.argsort(
            x, dim=integer(axis), descending=not truth(ascending), stable=True
        ),
    }
)


@kernel("fill")
def fill(shape: Tensor, value: Tensor) -> Tensor:
    """A tensor of one value, of the value's type."""
    check_shape(ints(shape), "fill")
    return value.expand(ints(shape))


@kernel("range_1d")
def range_1d(start: Tensor, end: Tensor, step: Tensor, op: Any) -> Tensor:
    """``start, start + step, ...`` below ``end``; each value is computed from its index.

    Where the program fixes the length, it is taken from there: the program's author divided in the
    type of the operands, which may round differently.
    """
    low, high, by = float(start), float(end), float(step)
    known = op.outputs[0].shape[0]
    count = int(known) if isinstance(known, int) else max(0, math.ceil((high - low) / by))
    check_shape([count], "range_1d")
    return (low + torch.arange(count, dtype=torch.float64) * by).to(start.dtype)


@kernel("tile")
def tile(x: Tensor, reps: Tensor) -> Tensor:
    """``x`` repeated ``reps[i]`` times along axis i."""
    times = ints(reps)
    check_shape([size * n for size, n in zip(x.shape, times, strict=True)], "tile")
    return x.repeat(times)


@kernel("flatten2d")
def flatten2d(x: Tensor, axis: Tensor) -> Tensor:
    """All axes before ``axis`` as one, all others as the second; a negative axis counts back."""
    at = integer(axis)
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


@kernel("concat")
def concat(values: list[Tensor], axis: Tensor, interleave: Bool = False) -> Tensor:
    """Join along an axis; with ``interleave`` slice by slice in turn. Scalars become a vector."""
    at = integer(axis)
    if values[0].dim() == 0:
        return torch.stack(values)
    if not truth(interleave):
        return torch.cat(values, at)
    at %= values[0].dim()
    return torch.stack(values, at + 1).flatten(at, at + 1)


@kernel("split")
def split(
    x: Tensor, axis: Tensor, num_splits: Tensor | None = None, split_sizes: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Cut into parts of the sizes given, or into ``num_splits`` equal ones."""
    at = integer(axis)
    if split_sizes is not None:
        return torch.split(x, ints(split_sizes), at)
    assert num_splits is not None
    return torch.split(x, x.shape[at] // integer(num_splits), at)


@kernel("pad")
def pad(x: Tensor, pad: Tensor, mode: str, constant_val: Float = 0.0) -> Tensor:
    """Pad the last axes; ``pad`` holds (before, after) of each, first axis first.

    "reflect" mirrors without the edge, "replicate" repeats the edge, as in PyTorch.
    """
    pairs = [(before, after) for before, after in zip(*[iter(ints(pad))] * 2, strict=True)]
    first = x.dim() - len(pairs)
    wide = [n + sum(pair) for n, pair in zip(x.shape[first:], pairs, strict=True)]
    check_shape([*x.shape[:first], *wide], "a padded tensor")
    if mode == "constant":
        flat = [size for pair in reversed(pairs) for size in pair]
        return torch.nn.functional.pad(x, flat, value=float(constant_val))
    for axis, (before, after) in enumerate(pairs, first):
        if before or after:
            x = x.index_select(axis, _outside(x.shape[axis], before, after, mode))
    return x


def _outside(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which element stands at each place of a padded axis."""
    places = torch.arange(-before, size + after)
    if mode == "replicate":
        return places.clamp(0, size - 1)
    if mode != "reflect" or max(before, after) >= size:
        raise ValueError(f"pad {mode} of {max(before, after)} on an axis of {size}")
    mirrored = places.abs()
    return torch.where(mirrored < size, mirrored, 2 * (size - 1) - mirrored)


@kernel("band_part")
def band_part(x: Tensor, lower: Int = -1, upper: Int = -1) -> Tensor:
    """Keep a band of the innermost matrices and zero the rest; a negative bound keeps all."""
    low, high = integer(lower), integer(upper)
    rows = torch.arange(x.shape[-2])[:, None]
    columns = torch.arange(x.shape[-1])[None, :]
    keep = ((rows - columns <= low) | (low < 0)) & ((columns - rows <= high) | (high < 0))
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype))


@kernel("cumsum")
def cumsum(x: Tensor, axis: Int = 0, exclusive: Bool = False, reverse: Bool = False) -> Tensor:
    """Running sum along an axis, from the end with ``reverse``, without itself if ``exclusive``."""
    at, backwards = integer(axis), truth(reverse)
    given = x.flip(at) if backwards else x
    total = given.cumsum(at)
    if truth(exclusive) and x.shape[at]:
        total = total.roll(1, at)
        total.select(at, 0).zero_()
    return total.flip(at) if backwards else total


@kernel("one_hot")
def one_hot(
    indices: Tensor, one_hot_vector_size: Tensor, axis: Tensor, on_value: Tensor, off_value: Tensor
) -> Tensor:
    """``on_value`` at each index along a new axis, else ``off_value``; outside: all off."""
    size = integer(one_hot_vector_size)
    check_shape([*indices.shape, size], "one_hot")
    hot = indices[..., None] == torch.arange(size)
    at = integer(axis)
    hot = hot.movedim(-1, at if at >= 0 else at + hot.dim())
    return torch.where(hot, on_value, off_value)


@kernel("topk")
def topk(
    x: Tensor,
    k: Int = 1,
    axis: Int = -1,
    ascending: Bool = False,
    sort: Bool = True,
    return_indices: Bool = True,
    output_indices_dtype: str = "int32",
) -> Tensor | tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) elements, sorted, and their indices.

    Of equal elements the first comes first. ``k`` of -1 means all. Unsorted results may come in any
    order by the op's contract; they are sorted here as well.
    """
    at, count = integer(axis), integer(k)
    values, indices = torch.sort(x, dim=at, descending=not truth(ascending), stable=True)
    count = x.shape[at] if count < 0 else count
    values, indices = values.narrow(at, 0, count), indices.narrow(at, 0, count)
    return (values, indices) if truth(return_indices) else values
