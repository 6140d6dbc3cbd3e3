"""Activations whose parameters coremltools leaves out.

``gelu`` has its approximation as a keyword, which is not read: the exact one comes out. ``elu`` has
two more factors than the one that is read; ``selu`` and ``celu`` are made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LOWERINGS"]

_MODES = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}


def _gelu(context: Any, node: Any) -> None:
    from coremltools.converters.mil import Builder

    x, *given = _inputs(context, node)
    said = given[0] if given else _keyword(node, "approximate", "none")
    word = said if isinstance(said, str) else said.val
    context.add(Builder.gelu(x=x, mode=_MODES[word], name=node.name))


def _elu(context: Any, node: Any) -> None:
    """``scale * (x where x > 0, else alpha * (exp(input_scale * x) - 1))``."""
    from coremltools.converters.mil import Builder

    x, *given = _inputs(context, node)
    numbers = [float(each.val) for each in given]
    alpha, scale, inner = (*numbers, *(1.0, 1.0, 1.0)[len(numbers) :])
    if inner == 1.0:
        made = Builder.elu(x=x, alpha=alpha)
    else:
        below = Builder.exp(x=Builder.mul(x=Builder.minimum(x=x, y=0.0), y=inner))
        below = Builder.mul(x=Builder.sub(x=below, y=1.0), y=alpha)
        made = Builder.add(x=Builder.relu(x=x), y=below)
    context.add(Builder.mul(x=made, y=scale, name=node.name))


def _inputs(context: Any, node: Any) -> list[Any]:
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

    return list(_get_inputs(context, node))


def _keyword(node: Any, name: str, default: Any) -> Any:
    given = (node.kwinputs or {}).get(name)
    return given[0] if given else default


#: Translations by the name under which `torch.export` has the operator.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {"elu": _elu, "gelu": _gelu}
