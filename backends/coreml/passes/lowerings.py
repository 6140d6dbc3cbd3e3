"""Translations of operators (lowerings) that coremltools gets wrong or does not have.

``gelu`` has its approximation as a keyword, which coremltools does not read: the exact one comes
out. ``elu`` has two more factors than the one that is read; ``selu`` and ``celu`` are made of
it. A reciprocal gains 1e-4 under the line. A number as a tensor without axes cannot be filled.
``lstm.input`` is ``lstm`` with its three results as one tuple. The place of the largest of all
elements is looked for in one axis.

Imported once coremltools is (`coremltools_import`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coremltools.converters.mil import Builder
from coremltools.converters.mil.frontend.torch import ops

_MODES = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}


def _gelu(context: Any, node: Any) -> None:
    x, *given = ops._get_inputs(context, node)
    declared = given[0] if given else _keyword(node, "approximate", "none")
    word = declared if isinstance(declared, str) else declared.val
    context.add(Builder.gelu(x=x, mode=_MODES[word], name=node.name))


def _elu(context: Any, node: Any) -> None:
    """``scale * (x where x > 0, else alpha * (exp(input_scale * x) - 1))``."""
    x, *given = ops._get_inputs(context, node)
    numbers = [float(each.val) for each in given]
    alpha, scale, inner = (*numbers, *(1.0, 1.0, 1.0)[len(numbers) :])
    if inner == 1.0:
        made = Builder.elu(x=x, alpha=alpha)
    else:
        below = Builder.exp(x=Builder.mul(x=Builder.minimum(x=x, y=0.0), y=inner))
        below = Builder.mul(x=Builder.sub(x=below, y=1.0), y=alpha)
        made = Builder.add(x=Builder.relu(x=x), y=below)
    context.add(Builder.mul(x=made, y=scale, name=node.name))


def _keyword(node: Any, name: str, default: Any) -> Any:
    given = (node.kwinputs or {}).get(name)
    return given[0] if given else default


def _reciprocal(context: Any, node: Any) -> None:
    x = Builder.cast(x=ops._get_inputs(context, node, expected=1)[0], dtype="fp32")
    context.add(Builder.real_div(x=1.0, y=x, name=node.name))


def _full(context: Any, node: Any) -> None:
    if list(node.inputs[0]):
        ops.full(context, node)
        return
    value: Any = ops._get_inputs(context, node)[1]
    context.add(Builder.identity(x=value, name=node.name))


def _lstm(context: Any, node: Any) -> None:
    names = node.outputs
    node.outputs = [f"{node.name}_{i}" for i in range(3)]
    ops.lstm(context, node)
    results = tuple(context[name] for name in node.outputs)
    node.outputs = names
    context.add(results, torch_name=node.name)


def _arg_reduction(kind: str) -> Callable[[Any, Any], None]:
    """``argmax`` and ``argmin``; without an axis the place in the tensor laid out as one row."""

    def lower(context: Any, node: Any) -> None:
        x, axis, keep = _reduction_arguments(context, node)
        reduce = getattr(Builder, f"reduce_{kind}")
        if axis is not None:
            context.add(reduce(x=x, axis=axis, keep_dims=keep, name=node.name))
            return
        row = Builder.reshape(x=x, shape=[-1])
        context.add(reduce(x=row, axis=0, keep_dims=False, name=node.name))

    return lower


def _prod(context: Any, node: Any) -> None:
    x, axis, keep = _reduction_arguments(context, node)
    axes = list(range(x.rank)) if axis is None else [axis]
    context.add(Builder.reduce_prod(x=x, axes=axes, keep_dims=keep, name=node.name))


def _reduction_arguments(context: Any, node: Any) -> tuple[Any, int | None, bool]:
    """The tensor, the axis, and whether it stays with size 1."""
    x, *given = ops._get_inputs(context, node)
    named = node.kwinputs or {}
    axis = given[0] if given else (named.get("dim") or [None])[0]
    keep = given[1] if len(given) > 1 else (named.get("keepdim") or [False])[0]
    return x, None if axis is None else int(_value(axis)), bool(_value(keep))


def _floor_divide(context: Any, node: Any) -> None:
    """Of integers; coremltools divides in float32, which has 24 bits."""
    x, y = ops._get_inputs(context, node, expected=2)
    x, y = ops.promote_input_dtypes([x, y])
    context.add(Builder.floor_div(x=x, y=y, name=node.name))


def _div(context: Any, node: Any) -> None:
    mode = ops._get_kwinputs(context, node, "rounding_mode", default=[None])[0]
    parts = ops._get_inputs(context, node)[:2]
    if mode == "floor" and not any(ops.types.is_float(part.dtype) for part in parts):
        _floor_divide(context, node)
    else:
        ops.div(context, node)


def _remainder(context: Any, node: Any) -> None:
    """By one operation: a rounded quotient times the divisor is not what was divided."""
    x, y = ops.promote_input_dtypes(ops._get_inputs(context, node)[:2])
    context.add(Builder.mod(x=x, y=y, name=node.name))


def _value(given: Any) -> Any:
    return given.val if hasattr(given, "val") else given


def _where(context: Any, node: Any) -> None:
    """Single numbers have no shape that coremltools could broadcast."""
    cond, *branches = ops._get_inputs(context, node)
    if any(each.rank for each in (cond, *branches)):
        ops.where(context, node)
        return
    a, b = ops.promote_input_dtypes(branches)
    context.add(Builder.select(cond=Builder.cast(x=cond, dtype="bool"), a=a, b=b, name=node.name))


#: Translations by the name under which `torch.export` has the operator. ``grid_sampler_2d`` takes
#: ``grid_sampler``'s arguments, an ``alias`` is its input.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {
    "alias": ops.noop,
    "argmax": _arg_reduction("argmax"),
    "argmin": _arg_reduction("argmin"),
    "div": _div,
    "elu": _elu,
    "floor_divide": _floor_divide,
    "full": _full,
    "gelu": _gelu,
    "grid_sampler_2d": ops.grid_sampler,
    "lstm.input": _lstm,
    "prod": _prod,
    "prod.dim_int": _prod,
    "reciprocal": _reciprocal,
    "remainder": _remainder,
    "where.self": _where,
}
