"""Which operations of a package are computed in float16, and which stay in float32.

A mask adds large negative numbers (the least float32, -1e9) to scores before a softmax. In float32
they swallow the scores: the softmax of a row that is masked everywhere is even. In float16 they are
minus infinity: that row is 0/0, and NaN spreads to all rows in the next layer. coremltools casts
them, and keeps of smaller ones only the operation that reads them. So what a constant beyond
float16 reaches stays in float32, up to the softmax, as in ONNX files
(`edgeserve.backends.onnx.fp16_rules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.float16_range import (
    EXACT_INTEGER_MAX,
    MASK_MAGNITUDE,
    largest_finite,
    result_magnitude,
)

#: What coremltools itself adds for attention with truth values: every row of those sees something
#: (`edgeserve.backends.torch.passes.zero_fully_masked_rows`), so that float16 will do.
_FUSED_MASK = np.float32(-3e4)

#: Where a huge constant is a bound on values, float16's infinity is as good a bound.
_BOUNDS = frozenset("clip maximum minimum pad relu6".split())

#: Operations whose results are of their own size, whatever they read.
_BOUNDED_OUTPUT = frozenset(
    "atan batch_norm erf instance_norm inverse l2_norm layer_norm real_div "
    "scaled_dot_product_attention sigmoid sigmoid_hard sign softmax softsign tanh".split()
)

#: What a mask that is an input passes through before it is added to scores.
_VIEWS = frozenset(
    "cast expand_dims identity reshape slice_by_index slice_by_size squeeze tile transpose".split()
)


def float16_precision() -> Any:
    """``compute_precision`` of `coremltools.convert`: float16 where numbers stay within it."""
    kept: dict[int, set[str]] = {}

    def selected(operation: Any) -> bool:
        root = _root_block(operation)
        if id(root) not in kept:  # before the first operation is cast
            kept[id(root)] = _float32_operations(root)
        return operation.name not in kept[id(root)]

    return coremltools().transform.FP16ComputePrecision(op_selector=selected)


def _float32_operations(function: Any) -> set[str]:
    """Names of the operations of a PyMIL function that read what may be beyond float16.

    Sources are constants, and inputs that are nothing but added to what a softmax reads.
    """
    beyond = {v: MASK_MAGNITUDE for v in function.inputs.values() if _is_added_mask(v)}
    found = set()
    for operation in _operations(function):
        size = _size(operation, beyond)
        if size is None:
            continue
        found.add(operation.name)
        if size > EXACT_INTEGER_MAX:
            beyond |= dict.fromkeys(filter(_is_float, operation.outputs), size)
    return found


def _size(operation: Any, beyond: Mapping[Any, float]) -> float | None:
    """See `result_magnitude`."""
    kind, reads = operation.op_type, _reads(operation)
    return result_magnitude(
        max(map(_magnitude, reads), default=0.0),
        max((beyond.get(value, 0.0) for value in reads), default=0.0),
        bound=kind in _BOUNDS,
        product=kind == "mul",
        quotient=kind == "real_div",
        bounded=kind in _BOUNDED_OUTPUT,
    )


def _root_block(operation: Any) -> Any:
    block = operation.enclosing_block
    while block.outer_op is not None:
        block = block.outer_op.enclosing_block
    return block


def _operations(block: Any) -> Iterator[Any]:
    """All operations but constants, in order, those of inner blocks first."""
    for operation in block.operations:
        for inner in operation.blocks:
            yield from _operations(inner)
        if operation.op_type != "const":
            yield operation


def _reads(operation: Any) -> list[Any]:
    values = operation.inputs.values()
    return [v for each in values for v in (each if isinstance(each, list | tuple) else [each])]


def _is_float(value: Any) -> bool:
    return bool(value.is_tensor_or_scalar_of(dtype="fp32"))


def _magnitude(value: Any) -> float:
    """The largest finite |number| of a float constant; 0 of anything else."""
    if value.op is None or value.op.op_type != "const" or not _is_float(value):
        return 0.0
    array = np.asarray(value.val)
    if array.size and array.min() == _FUSED_MASK and array.max() <= 0:
        return 0.0
    return largest_finite(array)


def _is_added_mask(value: Any) -> bool:
    """Whether all that reads a float input adds it to what a softmax reads."""
    return _is_float(value) and _leads_to_softmax(value, added=False)


def _leads_to_softmax(value: Any, added: bool) -> bool:
    readers = value.child_ops
    return bool(readers) and all(
        (added and reader.op_type == "softmax")
        or (
            reader.op_type in _VIEWS | {"add"}
            and _leads_to_softmax(reader.outputs[0], added or reader.op_type == "add")
        )
        for reader in readers
    )
