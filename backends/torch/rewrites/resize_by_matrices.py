"""Resize an image by two matrix products.

Bicubic, antialiased and other interpolations are sums with constant weights along one axis and then
along the other. coremltools leaves antialiasing out without a word and has no bicubic
interpolation; other formats take it apart into sixteen lookups. The weights are PyTorch's own: what
its operator makes of one-hot rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert, shape_of

__all__ = ["resize_by_matrices"]

_ATEN = torch.ops.aten
_RESIZES = {
    _ATEN.upsample_bicubic2d.vec,
    _ATEN.upsample_bicubic2d.default,
    _ATEN._upsample_bicubic2d_aa.vec,
    _ATEN._upsample_bicubic2d_aa.default,
    _ATEN._upsample_bilinear2d_aa.vec,
    _ATEN._upsample_bilinear2d_aa.default,
}
_BILINEAR = {_ATEN.upsample_bilinear2d.vec, _ATEN.upsample_bilinear2d.default}


def resize_by_matrices(module: fx.GraphModule) -> bool:
    """Replace bicubic and antialiased resizing, and bilinear where a factor cuts a size off.

    The graph's values must have fixed sizes.
    """
    changed = False
    for node in list(module.graph.nodes):
        known = shape_of(node) and shape_of(node.args[0]) if node.args else None
        if known and (node.target in _RESIZES or (node.target in _BILINEAR and _cuts_off(node))):
            node.replace_all_uses_with(_resized(module, node))
            module.graph.erase_node(node)
            changed = True
    return changed


def _named(node: fx.Node) -> dict[str, Any]:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _cuts_off(node: fx.Node) -> bool:
    """Whether a factor was given that is not that of the sizes: PyTorch samples by the factor."""
    before, after = shape_of(node.args[0]) or (), shape_of(node) or ()
    pairs = zip(_scales(_named(node)), before[-2:], after[-2:], strict=True)
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
    made.meta["val"] = node.meta["val"]
    return made  # type: ignore[no-any-return]


def _weights(node: fx.Node, before: int, after: int, axis: int) -> torch.Tensor:
    """[after, before]: how much each old place counts in each new one.

    The operator itself is run on an image for each old place: one there, zero elsewhere. The other
    axis is two wide and stays so; on images one wide the antialiased operators are wrong.
    """
    hot = torch.eye(before, dtype=torch.float64)[:, None]
    wide = (2, before) if axis == -1 else (before, 2)
    image = hot.unsqueeze(2 if axis == -1 else 3).expand(before, 1, *wide).contiguous()
    arguments = _named(node)
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
