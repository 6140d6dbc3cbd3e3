"""Which operations of a package are computed in float16, and which stay in float32.

A mask adds large negative numbers (the least float32, -1e9) to scores before a softmax. In float32
they swallow the scores: the softmax of a row that is masked everywhere is even. In float16 they are
minus infinity: that row is 0/0, and NaN spreads to all rows in the next layer. coremltools casts
them, and keeps of smaller ones only the operation that reads them. So what a constant beyond
float16 reaches stays in float32, up to the softmax, as in ONNX files
(`edgeserve.backends.onnx.fp16_rules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgeserve.backends.coreml.coremltools_import import coremltools

#: Beyond this float16 counts in fours: what is added to such a constant loses its digits.
_EXACT_INTEGER_MAX = 4096.0

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
            kept[id(root)] = float32_operations(root)
        return operation.name not in kept[id(root)]

    return coremltools().transform.FP16ComputePrecision(op_selector=selected)


def float32_operations(function: Any) -> set[str]:
    """Names of the operations of a PyMIL function that read what may be beyond float16.

    Sources are constants, and inputs that are nothing but added to what a softmax reads.
    """
    beyond = {value for value in function.inputs.values() if _is_added_mask(value)}
    found = set()
    for operation in _operations(function):
        own = operation.op_type not in _BOUNDS and any(map(_is_out_of_range, _reads(operation)))
        if not own and not any(value in beyond for value in _reads(operation)):
            continue
        found.add(operation.name)
        scaled = operation.op_type == "mul" and not own  # by a factor that may bring it back
        if not scaled and operation.op_type not in _BOUNDED_OUTPUT:
            beyond.update(filter(_is_float, operation.outputs))
    return found


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


def _is_out_of_range(value: Any) -> bool:
    """Whether a constant holds a finite number that leaves float16 no digits for others."""
    if value.op is None or value.op.op_type != "const" or not _is_float(value):
        return False
    array = np.asarray(value.val)
    if array.ndim == 0 and array == _FUSED_MASK:
        return False
    return bool((np.isfinite(array) & (np.abs(array) > _EXACT_INTEGER_MAX)).any())


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
