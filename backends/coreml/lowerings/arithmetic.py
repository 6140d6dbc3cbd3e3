"""Arithmetic that coremltools changes: a reciprocal gains 1e-4 under the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LOWERINGS"]


def _reciprocal(context: Any, node: Any) -> None:
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

    x = Builder.cast(x=_get_inputs(context, node, expected=1)[0], dtype="fp32")
    context.add(Builder.real_div(x=1.0, y=x, name=node.name))


#: Translations by the name under which `torch.export` has the operator.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {"reciprocal": _reciprocal}
