"""Recurrent layers: ``lstm.input`` is ``lstm`` with its three results as one tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LOWERINGS"]


def _lstm(context: Any, node: Any) -> None:
    from coremltools.converters.mil.frontend.torch import ops

    names = node.outputs
    node.outputs = [f"{node.name}_{i}" for i in range(3)]
    ops.lstm(context, node)
    results = tuple(context[name] for name in node.outputs)
    node.outputs = names
    context.add(results, torch_name=node.name)


#: Translations by the name under which `torch.export` has the operator.
LOWERINGS: dict[str, Callable[[Any, Any], None]] = {"lstm.input": _lstm}
