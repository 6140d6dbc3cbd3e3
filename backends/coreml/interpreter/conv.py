"""Convolution and its transpose over one, two or three spatial axes.

``x`` is [N, C_in, *spatial]. ``strides``, ``dilations`` (default 1) and ``pad`` are per axis;
``groups`` (default 1) splits channels into groups that do not mix. Padding is always with zeros;
its rules are those of pooling too.

How much is padded before and after each spatial axis, by the name of the rule:

- ``valid``: nothing.
- ``custom``: ``pad`` holds before and after of the first spatial axis, then of the second, ...
- ``same``: as much as makes the output ``ceil(size / stride)`` long; where the amount is odd,
  the extra element goes behind. ``same_lower`` (from iOS 16) puts it in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.plan_nodes import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Int, integer, ints
from edgeserve.errors import MilError

#: One number for each spatial axis, or two where they are amounts of padding.
Ints = Sequence[int]
#: Elements before and after each spatial axis.
Pads = list[tuple[int, int]]


def _extents(kernel: Ints, dilations: Ints) -> list[int]:
    """How many elements of the input each axis of a dilated kernel spans."""
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]


def spatial_pads(rule: str, pad: Ints, sizes: Ints, spans: Ints, strides: Ints) -> Pads:
    """The padding of each spatial axis.

    Args:
        rule: "valid", "custom", "same" or "same_lower".
        pad: Two amounts for each axis; read only where the rule is "custom".
        sizes: The input's spatial sizes.
        spans: See `_extents`.
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


_CONV: Any = {n: getattr(functional, f"conv{n}d") for n in (1, 2, 3)}
_TRANSPOSE: Any = {n: getattr(functional, f"conv_transpose{n}d") for n in (1, 2, 3)}


@kernel("conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: Tensor | None = None,
    pad_type: str = "valid",
    pad: Tensor | None = None,
    dilations: Tensor | None = None,
    groups: Int = 1,
) -> Tensor:
    """Cross-correlation: the kernel is not flipped.

    Args:
        x: [N, C_in, *spatial].
        weight: [C_out, C_in / groups, *kernel]; may be computed by the program.
        bias: [C_out].
        strides: Step of the window.
        pad_type: "valid", "same", "same_lower" or "custom".
        pad: Before and after each axis, read only for "custom".
        dilations: Distance between the kernel's taps.
        groups: Number of channel groups.

    Returns:
        [N, C_out, *spatial]; each size is ``floor((size + padding - span) / stride) + 1``.
    """
    rank = x.ndim - 2
    step, apart = _each(strides, rank, 1), _each(dilations, rank, 1)
    spans = _extents(weight.shape[2:], apart)
    pads = spatial_pads(pad_type, _each(pad, 2 * rank, 0), x.shape[2:], spans, step)
    if not is_even(pads):
        x, pads = pad_spatial(x, pads), [(0, 0)] * rank
    padding = [before for before, _ in pads]
    made: Tensor = _CONV[rank](x, weight, bias, step, padding, apart, integer(groups))
    return made


@kernel("conv_quantized")
def conv_quantized(
    x: Tensor,
    weight: Tensor,
    quant_scale: Tensor,
    quant_bias: Tensor,
    quantization_type: str,
    bias: Tensor | None = None,
    nbits: Int = 8,
    op: Any = None,
    **others: Any,
) -> Tensor:
    """`conv` with a weight of bytes, each worth ``byte * quant_scale + quant_bias``.

    Scale and bias are one for all or [C_out]. An experimental op, which coremltools writes nowhere
    itself.

    Raises:
        MilError: EDGE-MIL-030, the bytes are indices into a table or narrower than 8 bits: how
            they lie is documented nowhere.
    """
    if quantization_type != "linear" or integer(nbits) != 8:
        raise MilError(
            "EDGE-MIL-030",
            f"op {getattr(op, 'name', '')!r} (conv_quantized)",
            wanted="linear quantization with 8 bits",
            got=f"{quantization_type} with {integer(nbits)} bits",
            hint="quantize with coremltools.optimize, which writes constexpr ops",
        )
    shape = [-1] + [1] * (weight.ndim - 1)
    values = weight.float() * quant_scale.reshape(shape) + quant_bias.reshape(shape)
    return conv(x, values, None if bias is None else bias.float(), **others)


@kernel("conv_transpose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    pad: Tensor | None = None,
    output_shape: Tensor | None = None,
    pad_type: str = "valid",
    strides: Tensor | None = None,
    dilations: Tensor | None = None,
    groups: Int = 1,
) -> Tensor:
    """The gradient of `conv` in its input: each element of ``x`` strews a kernel.

    The strewn kernels span ``(size - 1) * stride + span`` elements an axis. "custom" cuts ``pad``
    off them; "same" cuts to ``size * stride`` elements, an odd cut taking more behind
    ("same_lower": in front). An ``output_shape`` says how many elements are left, from where
    "custom" begins, else from the middle; what lies beyond the strewn ones is zero (plus bias).

    Args:
        x: [N, C_in, *spatial].
        weight: [C_in, C_out / groups, *kernel].
        bias: [C_out].
        pad: Cut before and after each axis, read only for "custom".
        output_shape: Full shape of the output, batch and channels included.
        pad_type: "valid", "same", "same_lower" or "custom".
        strides: Distance between strewn kernels.
        dilations: Distance between the kernel's taps.
        groups: Number of channel groups.
    """
    rank = x.ndim - 2
    step, apart = _each(strides, rank, 1), _each(dilations, rank, 1)
    spans = _extents(weight.shape[2:], apart)
    full = [(n - 1) * s + span for n, s, span in zip(x.shape[2:], step, spans, strict=True)]
    wanted = None if output_shape is None else ints(output_shape)[2:]
    cuts = _cuts(pad_type.lower(), _each(pad, 2 * rank, 0), full, wanted, x.shape[2:], step)
    convolve, count = _TRANSPOSE[rank], integer(groups)
    if is_even(cuts) and min(before for before, _ in cuts) >= 0:
        padding = [before for before, _ in cuts]
        made: Tensor = convolve(x, weight, bias, step, padding, 0, count, apart)
        return made
    check_shape([len(x), weight.shape[1] * count, *full], "a conv_transpose before its cut")
    strewn = convolve(x, weight, None, step, 0, 0, count, apart)
    cut = pad_spatial(strewn, [(-before, -after) for before, after in cuts])
    return cut if bias is None else cut + bias.reshape([-1] + [1] * rank)


def _cuts(
    rule: str, pad: Ints, full: Ints, wanted: Ints | None, sizes: Ints, strides: Ints
) -> Pads:
    """What is cut off in front and behind each axis; negative where zeros are added behind."""
    if rule == "custom":
        fronts, backs = pad[::2], pad[1::2]
        if wanted is not None:
            backs = [n - f - w for n, f, w in zip(full, fronts, wanted, strict=True)]
        return list(zip(fronts, backs, strict=True))
    if wanted is None and rule == "valid":
        return [(0, 0)] * len(full)
    if wanted is None:
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    totals = [n - w for n, w in zip(full, wanted, strict=True)]
    lower = rule == "same_lower"
    fronts = [max((total + 1) // 2 if lower else total // 2, 0) for total in totals]
    return [(front, total - front) for front, total in zip(fronts, totals, strict=True)]


def _each(value: Tensor | None, count: int, default: int) -> list[int]:
    return [default] * count if value is None else ints(value)
