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

#: What a package has for a number without axes.
_SCALAR = (1,)

#: What Core ML takes for a dtype of the source; others are left to coremltools.
_INPUTS = {"bool": "int32", "float32": "float32", "int32": "int32", "int64": "int32"}


def input_types(order: Order, sizes: Sizes) -> list[Any]:
    """The inputs in coremltools' words: names, 32 bits, a picture where one is asked for."""
    import numpy as np

    types = []
    for spec in order.exported.signature.inputs:
        shape = sizes.of(spec.shape)
        if any(dim in sizes.ranges for dim in spec.shape):
            shape = tuple(_range(dim, sizes) for dim in spec.shape)
        if spec.name == order.picture:
            types.append(image_type(order.exported, spec.name, shape))
        else:
            known = _INPUTS.get(spec.dtype)
            dtype = np.dtype(known).type if known else None
            types.append(coremltools().TensorType(name=spec.name, shape=shape or None, dtype=dtype))
    return types


def _range(dim: int | str, sizes: Sizes) -> Any:
    """A dimension in coremltools' words: a size, or a range with its usual size."""
    if isinstance(dim, int) or dim not in sizes.ranges:
        return dim if isinstance(dim, int) else sizes.dims[dim]
    low, high = sizes.ranges[dim]
    return coremltools().RangeDim(low, high, default=sizes.dims[dim])


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
        inputs = [spec for spec in signature.inputs if spec.name != picture]
        taken = [spec for spec in io.inputs if spec.name != picture]
        wanted = [(spec.name, each.of(spec.shape) or _SCALAR) for spec in inputs]
        got = [(spec.name, spec.shape) for spec in taken]
        names = [spec.name for spec in signature.outputs]
        made = [spec.name for spec in io.outputs]
        shapes = [shape for _, shape in wanted] == [shape for _, shape in got]
        named = _named([*(name for name, _ in wanted), *names], [*(n for n, _ in got), *made])
        if not (shapes and named and each.name == io.signature):
            raise ConvertError(
                "EDGE-CONVERT-052",
                "model.mlpackage",
                wanted=f"{wanted} -> {names}",
                got=f"{got} -> {made}",
                hint="report it with `edgeserve doctor --json`: the fault is not in your model",
            )


def _named(names: Sequence[str], made: Sequence[str]) -> bool:
    """Whether values are called by these names, as far as a Core ML program may have them.

    What is no letter, number or underscore becomes one; a number in front and words of the program
    text ("state", "list") get something added.
    """

    def same(name: str, found: str) -> bool:
        safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return found in (safe, f"{safe}_workaround") or found.endswith(f"_{safe}")

    return len(names) == len(made) and all(map(same, names, made))
