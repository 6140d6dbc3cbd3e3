"""Inputs and outputs of a package: what coremltools is told of them, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edgeserve.backends.coreml.image import image_type
from edgeserve.backends.coreml.library import coremltools
from edgeserve.backends.coreml.order import Order
from edgeserve.backends.sizes import Sizes
from edgeserve.errors import ConvertError
from edgeserve.types.tensors import IO

__all__ = ["check_edges", "input_types", "output_types"]

#: What Core ML takes for a dtype of the source; others are left to coremltools.
_INPUTS = {"bool": "int32", "float32": "float32", "int32": "int32", "int64": "int32"}


def input_types(order: Order, sizes: Sizes) -> list[Any]:
    """The inputs in coremltools' words: names, 32 bits, a picture where one is asked for."""
    import numpy as np

    types = []
    for spec in order.exported.signature.inputs:
        shape = sizes.of(spec.shape)
        if spec.name == order.picture:
            types.append(image_type(order.exported, spec.name, shape))
        else:
            known = _INPUTS.get(spec.dtype)
            dtype = np.dtype(known).type if known else None
            types.append(coremltools().TensorType(name=spec.name, shape=shape or None, dtype=dtype))
    return types


def output_types(order: Order) -> list[Any]:
    """The outputs in coremltools' words: names, float32 or int32."""
    import numpy as np

    return [
        coremltools().TensorType(
            name=spec.name, dtype=np.float32 if "float" in spec.dtype else np.int32
        )
        for spec in order.exported.signature.outputs
    ]


def check_edges(found: Sequence[IO], order: Order, sizes: Sequence[Sizes]) -> None:
    """Hold what a package says of its edges against what was asked for.

    Raises:
        ConvertError: EDGE-CONVERT-052.
    """
    signature, picture = order.exported.signature, order.picture
    for io, each in zip(found, sizes, strict=True):
        wanted = [(_safe(s.name), each.of(s.shape)) for s in signature.inputs if s.name != picture]
        got = [(spec.name, spec.shape) for spec in io.inputs if spec.name != picture]
        names = [_safe(spec.name) for spec in signature.outputs]
        made = [spec.name for spec in io.outputs]
        if (wanted, names, each.name) != (got, made, io.signature):
            raise ConvertError(
                "EDGE-CONVERT-052", "model.mlpackage", wanted=f"{wanted} -> {names}",
                got=f"{got} -> {made}",
                hint="report it with `edgeserve doctor --json`: the fault is not in your model",
            )  # fmt: skip


def _safe(name: str) -> str:
    """A name as a Core ML program may have it: what else it holds becomes underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
