"""How much is padded before and after each spatial axis, by the name of the rule.

Convolution and pooling share the rules:

- ``valid``: nothing.
- ``custom``: ``pad`` holds before and after of the first spatial axis, then of the second, ...
- ``same``: as much as makes the output ``ceil(size / stride)`` long; where the amount is odd, the
  extra element goes behind. ``same_lower`` (from iOS 16) puts it in front.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.limits import check_shape

__all__ = ["Pads", "extents", "is_even", "pad_spatial", "spatial_pads"]

#: Elements before and after each spatial axis.
Pads = list[tuple[int, int]]


def extents(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """How many elements of the input each axis of a dilated kernel spans."""
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]


def spatial_pads(
    rule: str,
    pad: Sequence[int],
    sizes: Sequence[int],
    spans: Sequence[int],
    strides: Sequence[int],
) -> Pads:
    """The padding of each spatial axis.

    Args:
        rule: "valid", "custom", "same" or "same_lower".
        pad: Two amounts for each axis; read only where the rule is "custom".
        sizes: The input's spatial sizes.
        spans: See `extents`.
        strides: Step of the window on each axis.

    Raises:
        ValueError: There is no such rule.
    """
    rule = rule.lower()
    if rule == "valid":
        return [(0, 0)] * len(sizes)
    if rule == "custom":
        return list(zip(pad[::2], pad[1::2], strict=True))
    if rule not in ("same", "same_lower"):
        raise ValueError(f"unknown pad_type {rule!r}")
    totals = [
        max((-(-size // stride) - 1) * stride + span - size, 0)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    if rule == "same":
        return [(total // 2, total - total // 2) for total in totals]
    return [(total - total // 2, total // 2) for total in totals]


def is_even(pads: Pads) -> bool:
    """Whether each axis has as much padding in front as behind."""
    return all(before == after for before, after in pads)


def pad_spatial(x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
    """``x`` with its last axes padded by a constant; negative amounts cut.

    Raises:
        MilError: EDGE-MIL-004, the result would be too large.
    """
    flat = [amount for pair in reversed(pads) for amount in pair]
    if not any(flat):
        return x
    sizes = [size + sum(pair) for size, pair in zip(x.shape[-len(pads) :], pads, strict=True)]
    check_shape([*x.shape[: -len(pads)], *sizes], "a padded input")
    return functional.pad(x, flat, value=value)
