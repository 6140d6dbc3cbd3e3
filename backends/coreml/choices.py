"""Which operations of a program take and give 8-bit activations.

coremltools quantizes every convolution, linear layer, pool and sum that it meets. In a transformer
that puts the residual stream into 8 bits, which loses most and gains least: there sums stay float,
and linear layers take 8 bits and give float.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgeserve.backends.coreml.ranges import Ranges
from edgeserve.backends.coreml.spec import operations_of

__all__ = ["left_out"]

#: What hands the values of convolutions on to others.
_GLUE = {
    "add",
    "avg_pool",
    "clip",
    "concat",
    "identity",
    "leaky_relu",
    "max_pool",
    "pad",
    "relu",
    "relu6",
    "resize_bilinear",
    "resize_nearest_neighbor",
    "sigmoid",
    "silu",
    "tanh",
    "upsample_bilinear",
    "upsample_nearest_neighbor",
}
_CONVOLUTIONS = {"conv", "conv_transpose"}

#: Steps of a sum's 8 bits that its smaller part must reach, lest it be lost.
_LEAST_STEPS = 8


def left_out(block: Any, ranges: Ranges) -> Iterator[Any]:
    """Operations of a block that coremltools could quantize and must not.

    Sums that are not between convolutions; of integers (indices); with a mask: in the 8 bits of
    scores - 30000 the scores are all zero; and whatever reads or makes infinities.

    Args:
        block: The program's.
        ranges: Of its floating point values, those with infinities left out.
    """
    flowing: set[str] = set()
    for operation in operations_of(block):
        read = [
            a.name
            for key in "xy"
            if key in operation.inputs
            for a in operation.inputs[key].arguments
            if a.HasField("name")
        ]
        made = [value.name for value in operation.outputs]
        glued = operation.type in _GLUE and bool(read) and flowing.issuperset(read)
        if operation.type in _CONVOLUTIONS or glued:
            flowing.update(made)
        known = all(name in ranges for name in (*read, *made))
        if operation.type == "add":
            if not (glued and known and _balanced(read, made[0], ranges)):
                yield operation
        elif read and not known:
            yield operation


def _balanced(read: list[str], made: str, ranges: Ranges) -> bool:
    """Whether the smaller part of a sum survives in the steps of its result."""
    sizes = [max(abs(value) for value in ranges[name].values()) for name in (*read, made)]
    return min(sizes[:-1]) * 127 >= _LEAST_STEPS * sizes[-1]
