"""8-bit activations: calibrated ranges, and the operations that stay float.

coremltools measures ranges by running the package on a Mac, and keeps the range of the last
sample only. Here our interpreter computes them, and every sample counts. coremltools quantizes
every convolution, linear layer, pool and sum that it meets. In a transformer that puts the
residual stream into 8 bits, which loses most and gains least: there sums stay float, and linear
layers take 8 bits and give float.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.backends.base import Samples
from edgeserve.backends.checks import not_finite
from edgeserve.backends.coreml.package import read_package
from edgeserve.backends.coreml.spec import block_of, dtype_of, is_constant, operations_of

#: Smallest and largest value of each tensor, in coremltools' form.
Ranges = dict[str, dict[str, float]]

#: Largest number of bytes of activations that one run may return.
_MAX_TAP_BYTES = 256 << 20


def measure_ranges(folder: Path, samples: Samples) -> Ranges:
    """Run samples through a package with one function, and record every floating point tensor.

    Tensors that hold infinities (masks do) are left out: 8 bits cannot hold those.

    Args:
        folder: The ``.mlpackage``.
        samples: Feeds of one sample each, by the package's names; smaller ones are filled up with
            zeros, larger ones cut off (text of another length). Gone through several times where
            the tensors do not fit into memory at once.

    Raises:
        QuantizeError: EDGE-QUANTIZE-010, a tensor becomes NaN on a sample.
    """
    from edgeserve.backends.coreml.interpreter import Interpreter

    spec, _ = read_package(folder)
    block = block_of(spec.mlProgram.functions["main"])
    found: Ranges = {}
    for names in _groups(block):
        engine = Interpreter(folder, taps=names)
        for index, sample in enumerate(samples):
            feed = _fitted(sample, engine.inputs)
            values = {name: array for name, array in feed.items() if array.dtype.kind == "f"}
            for name, array in (values | engine.run(feed)).items():
                _update_range(found, name, array, index)
    finite = {n: r for n, r in found.items() if all(map(math.isfinite, r.values()))}
    return _clip_ranges(finite, block)


def _groups(block: Any) -> Iterator[tuple[str, ...]]:
    """Names of the floating point values, as many at once as fit into memory."""
    group: list[str] = []
    size = 0
    for operation in operations_of(block):
        if is_constant(operation):
            continue
        for value in operation.outputs:
            kind = value.type.tensorType
            if not dtype_of(kind).startswith("FLOAT"):
                continue
            size += 4 * math.prod(int(dim.constant.size) for dim in kind.dimensions)
            if group and size > _MAX_TAP_BYTES:
                yield tuple(group)
                group, size = [], 0
            group.append(value.name)
    if group:
        yield tuple(group)


def _fitted(sample: Mapping[str, np.ndarray], inputs: Iterable[Any]) -> dict[str, np.ndarray]:
    """A sample in the package's integer type and sizes."""
    feed = {}
    for spec in inputs:
        array = sample[spec.name]
        sizes = [  # a dynamic size is that of the sample
            size if isinstance(size, int) else have
            for size, have in zip(spec.shape, array.shape, strict=True)
        ]
        array = array[tuple(slice(size) for size in sizes)]
        widths = [(0, size - have) for size, have in zip(sizes, array.shape, strict=True)]
        feed[spec.name] = np.pad(array, widths).astype(spec.dtype, copy=False)
    return feed


def _update_range(found: Ranges, name: str, values: np.ndarray, index: int) -> None:
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if math.isnan(low) or math.isnan(high):
        raise not_finite(name, index, "NaN")
    known = found.setdefault(name, {"rmin": low, "rmax": high})
    known["rmin"], known["rmax"] = min(known["rmin"], low), max(known["rmax"], high)


def _clip_ranges(found: Ranges, block: Any) -> Ranges:
    """Limit the range of a tensor that only a clip reads to the range of the clip.

    coremltools quantizes a convolution's result before the clip that follows; beyond the clip's
    ends its values make no difference, and would only take steps away from the others.
    """
    readers: dict[str, list[Any]] = {}
    constants = {}
    for operation in operations_of(block):
        if operation.type == "const":
            constants[operation.outputs[0].name] = operation.attributes["val"]
        for argument in operation.inputs.values():
            for each in argument.arguments:
                readers.setdefault(each.name, []).append(operation)
    for name, reading in readers.items():
        if name in found and all(each.type == "clip" for each in reading) and len(reading) == 1:
            low, high = (_number(reading[0], key, constants) for key in ("alpha", "beta"))
            known = found[name]
            known["rmin"], known["rmax"] = max(known["rmin"], low), min(known["rmax"], high)
            known["rmin"] = min(known["rmin"], known["rmax"])
    return found


def _number(operation: Any, key: str, constants: Mapping[str, Any]) -> float:
    argument = operation.inputs[key].arguments[0]
    value = constants[argument.name] if argument.HasField("name") else argument.value
    tensor = value.immediateValue.tensor
    if tensor.WhichOneof("value") == "bytes":  # float16
        return float(np.frombuffer(tensor.bytes.values, np.float16)[0])
    return float(tensor.floats.values[0])


#: Operations that pass the values of convolutions on.
_PASS_THROUGH = set(
    "add avg_pool clip concat identity leaky_relu max_pool pad relu relu6 resize_bilinear "
    "resize_nearest_neighbor sigmoid silu tanh upsample_bilinear upsample_nearest_neighbor".split()
)
_CONVOLUTIONS = {"conv", "conv_transpose"}

#: Quantization steps of a sum that its smaller operand must span at least.
_LEAST_STEPS = 8


def float_operations(block: Any, ranges: Ranges) -> Iterator[Any]:
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
        glued = operation.type in _PASS_THROUGH and bool(read) and flowing.issuperset(read)
        if operation.type in _CONVOLUTIONS or glued:
            flowing.update(made)
        known = all(name in ranges for name in (*read, *made))
        if operation.type == "add":
            if not (glued and known and _is_balanced(read, made[0], ranges)):
                yield operation
        elif read and not known:
            yield operation


def _is_balanced(read: list[str], made: str, ranges: Ranges) -> bool:
    """Whether the smaller operand of a sum survives the quantization of the result."""
    sizes = [max(abs(value) for value in ranges[name].values()) for name in (*read, made)]
    return min(sizes[:-1]) * 127 >= _LEAST_STEPS * sizes[-1]
