"""Reductions: the place of the largest of all elements, which coremltools looks for in one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LOWERINGS"]


def _place(kind: str) -> Callable[[Any, Any], None]:
    """``argmax`` and ``argmin``; without an axis the place in the tensor laid out as one row."""

    def lower(context: Any, node: Any) -> None:
        from coremltools.converters.mil import Builder

        x, axis, keep = _arguments(context, node)
        reduce = getattr(Builder, f"reduce_{kind}")
        if axis is not None:
            context.add(reduce(x=x, axis=axis, keep_dims=keep, name=node.name))
            return
        row = Builder.reshape(x=x, shape=[-1])
        context.add(reduce(x=row, axis=0, keep_dims=False, name=node.name))

    return lower


def _prod(context: Any, node: Any) -> None:
    from coremltools.converters.mil import Builder

    x, axis, keep = _arguments(context, node)
    axes = None if axis is None else [axis]
    context.add(Builder.reduce_prod(x=x, axes=axes, keep_dims=keep, name=node.name))


def _arguments(context: Any, node: Any) -> tuple[Any, int | None, bool]:
    """The tensor, the axis, and whether it stays with size 1."""
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

    x, *given = _get_inputs(context, node)
    named = node.kwinputs or {}
    axis = given[0] if given else (named.get("dim") or [None])[0]
    keep = given[1] if len(given) > 1 else (named.get("keepdim") or [False])[0]
    return x, None if axis is None else int(_value(axis)), bool(_value(keep))


def _value(given: Any) -> Any:
    return given.val if hasattr(given, "val") else given


#: Translations by the name under which `torch.export` has the operator.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "prod": _prod,
    "prod.dim_int": _prod,
}
