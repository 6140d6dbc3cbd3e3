"""A number as a tensor without axes, which coremltools cannot fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LOWERINGS"]


def _full(context: Any, node: Any) -> None:
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch import ops

    if list(node.inputs[0]):
        ops.full(context, node)
        return
    value: Any = ops._get_inputs(context, node)[1]
    context.add(Builder.identity(x=value, name=node.name))


#: Translations by the name under which `torch.export` has the operator.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {"full": _full}
