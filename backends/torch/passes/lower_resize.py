"""Lower resizing: the nearest element by a lookup, interpolation by two matrix products.

Which element is nearest depends on where a format takes the middle of an element to be, and on
how it rounds: LiteRT's converter gives others than PyTorch, without a word, where the new size
is no multiple of the old one. Here PyTorch says which elements it takes, once and for all.

Bicubic, antialiased and other interpolations are sums with constant weights along one axis and
then along the other. coremltools leaves antialiasing out without a word and has no bicubic
interpolation; other formats decompose it into sixteen lookups. The weights are PyTorch's own:
what its operator makes of one-hot rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    add_tensor,
    arguments_of,
    insert,
    overloads,
    replace_each,
    shape_of,
)

_ATEN = torch.ops.aten
_NEAREST = {
    getattr(getattr(_ATEN, f"{kind}{rank}d"), overload)
    for kind in ("upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
    for overload in ("vec", "default")
}


def resize_by_lookup(module: fx.GraphModule) -> bool:
    """Replace resizing to the nearest where a size is no multiple of the old one.

    All values must have fixed sizes.
    """
    return replace_each(module, _NEAREST, lambda node: _looked_up(module, node))


def _looked_up(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    before, after = shape_of(node.args[0]), shape_of(node)
    if before is None or after is None:
        return None
    if all(new % old == 0 for old, new in zip(before, after, strict=True)):
        return None
    made: Any = node.args[0]
    for axis in range(2, len(before)):
        index = add_tensor(module, "nearest", _places(node, before, axis), node)
        made = insert(node, _ATEN.index_select.default, made, axis, index)
    return made  # type: ignore[no-any-return]


def _places(node: fx.Node, before: tuple[int, ...], axis: int) -> torch.Tensor:
    """Which elements of an axis the operator takes: its answer to their numbers."""
    shape = [1] * len(before)
    shape[axis] = before[axis]
    numbers = torch.arange(before[axis], dtype=torch.float64).reshape(shape)
    image = numbers.expand(1, 1, *before[2:]).contiguous()
    found: torch.Tensor = node.target(image, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    row = found[tuple(slice(None) if i == axis else 0 for i in range(len(before)))]
    return row.to(torch.int64)


_BICUBIC_OR_ANTIALIASED = overloads(
    "upsample_bicubic2d upsample_bicubic2d.vec _upsample_bicubic2d_aa _upsample_bicubic2d_aa.vec "
    "_upsample_bilinear2d_aa _upsample_bilinear2d_aa.vec"
)
_BILINEAR = overloads("upsample_bilinear2d upsample_bilinear2d.vec")


def resize_by_matrices(module: fx.GraphModule) -> bool:
    """Replace bicubic and antialiased resizing, and bilinear where a factor cuts a size off.

    The graph's values must have fixed sizes.
    """

    def lower(node: fx.Node) -> fx.Node | None:
        known = shape_of(node) and shape_of(node.args[0])
        wanted = known and (node.target not in _BILINEAR or _cuts_off(node))
        return _resized(module, node) if wanted else None

    return replace_each(module, _BICUBIC_OR_ANTIALIASED | _BILINEAR, lower)


def _cuts_off(node: fx.Node) -> bool:
    """Whether a factor was given that is not that of the sizes: PyTorch samples by the factor."""
    before, after = shape_of(node.args[0]) or (), shape_of(node) or ()
    pairs = zip(_scales(arguments_of(node)), before[-2:], after[-2:], strict=True)
    return any(scale is not None and scale * old != new for scale, old, new in pairs)


def _resized(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    x: Any = node.args[0]
    before, after = shape_of(x) or (), shape_of(node) or ()
    made = x
    for axis, name in ((-1, "columns"), (-2, "rows")):
        weights = _weights(node, before[axis], after[axis], axis).to(x.meta["val"].dtype)
        matrix = add_tensor(module, name, weights if axis == -2 else weights.T.contiguous(), node)
        pair = (matrix, made) if axis == -2 else (made, matrix)
        made = insert(node, _ATEN.matmul.default, *pair)
    return made  # type: ignore[no-any-return]


def _weights(node: fx.Node, before: int, after: int, axis: int) -> torch.Tensor:
    """[after, before]: how much each old place counts in each new one.

    The operator itself is run on an image for each old place: one there, zero elsewhere. The other
    axis is two wide and stays so; on images one wide the antialiased operators are wrong.
    """
    hot = torch.eye(before, dtype=torch.float64)[:, None]
    wide = (2, before) if axis == -1 else (before, 2)
    image = hot.unsqueeze(2 if axis == -1 else 3).expand(before, 1, *wide).contiguous()
    arguments = arguments_of(node)
    scale = _scales(arguments)[axis]
    size, scales = ([2, after], [None, scale]) if axis == -1 else ([after, 2], [scale, None])
    call = node.target._overloadpacket.default  # type: ignore[union-attr]
    found = call(image, size, arguments["align_corners"], *scales)[:, 0]
    row = found[:, 0] if axis == -1 else found[:, :, 0]
    return row.T.contiguous()  # type: ignore[no-any-return]


def _scales(arguments: dict[str, Any]) -> list[float | None]:
    """The factors that were given, for rows and columns; None: they follow from the sizes."""
    if "scale_factors" in arguments:
        return list(arguments["scale_factors"] or (None, None))
    return [arguments.get("scales_h"), arguments.get("scales_w")]
