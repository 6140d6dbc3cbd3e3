"""Reject files whose operators LiteRT's own kernels would run beyond their memory.

Some kernels broadcast over four axes and do not check for more (``BroadcastBinaryFunction4DSlow``
and its kin in LiteRT's ``reference_ops``): with five they read and write where they must not. The
numbers are then wrong, or the process ends, now or on another machine. `merge_axes` keeps such
operators away; what a decomposition of the converter puts in later is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgeserve.backends.tflite.convert_errors import ErrorTranslator
from edgeserve.backends.tflite.schema import op_type
from edgeserve.backends.tflite.tensor_names import source_of

#: Operators that broadcast over at most four axes.
_FOUR_AXES = frozenset(
    "BITWISE_XOR EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND "
    "LOGICAL_OR NOT_EQUAL POW PRELU RIGHT_SHIFT SQUARED_DIFFERENCE".split()
)


def check_kernels(model: Any, translator: ErrorTranslator) -> None:
    """Reject the first operator that broadcasts over more axes than its kernel.

    Args:
        model: A ``ModelT``.
        translator: Names the source op.

    Raises:
        UnsupportedOp: EDGE-OP-012.
    """
    for type, name, rank in _beyond(model):
        source = source_of(type, name)
        error = ValueError(f"{type} that broadcasts over {rank} axes; its kernel takes 4")
        raise translator.unrunnable(type, source[1] if source else None, error)


def _beyond(model: Any) -> Iterator[tuple[str, str, int]]:
    """The type, the name of the first output and the axes of each such operator."""
    for graph in model.subgraphs:
        for op in graph.operators:
            type = op_type(model, op)
            shapes = [_shape(graph.tensors[index]) for index in op.inputs if index >= 0]
            rank = max(map(len, shapes), default=0)
            if type in _FOUR_AXES and rank > 4 and len(set(shapes)) > 1:
                yield type, graph.tensors[op.outputs[0]].name.decode(), rank


def _shape(tensor: Any) -> tuple[int, ...]:
    return () if tensor.shape is None else tuple(map(int, tensor.shape))
