"""Determine which dynamic dimensions of a program may be padded with zeros, by running it.

An artifact of fixed sizes is right for a smaller input only if padding at its end does not change
the outputs before it. That holds for a convolution over time, not for attention without a mask. It
follows from no single operator, so the program runs both ways: each probe makes inputs of some
size and checks whether padding them changes the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from edgeserve.backends.torch.export.check_program import describe_difference
from edgeserve.backends.torch.export.dynamic_shapes import UNBOUNDED
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.tensors import Signature, TensorSpec

#: Largest difference of two outputs, relative to the largest: the same kernels at two sizes.
_TOLERANCE = 1e-5

Tensors = list[Tensor]
#: One tensor for each input.
Examples = Sequence[Tensor]
Run = Callable[[Tensors], Tensors]


def stateless_runner(program: ExportedProgram) -> Run:
    """The program as a function without state between calls that does not change its inputs."""
    module: Any = program.module()
    buffers = BufferSnapshot(module)

    def run(tensors: Tensors) -> Tensors:
        found = [each.clone() for each in module(*(tensor.clone() for tensor in tensors))]
        buffers.restore()
        return found

    return run


def dim_sizes(signature: Signature, examples: Examples) -> dict[str, int]:
    """The examples' own sizes."""
    pairs = zip(signature.inputs, examples, strict=True)
    return {
        dim: size
        for spec, tensor in pairs
        for dim, size in zip(spec.shape, tensor.shape, strict=True)
        if isinstance(dim, str)
    }


def element_count(signature: Signature, sizes: Mapping[str, int]) -> int:
    """Elements of all inputs at these sizes."""
    return sum(math.prod(_at(spec, sizes)) for spec in signature.inputs)


def _at(spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
    """A tensor's shape at these sizes."""
    return [dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape]


def random_inputs(
    signature: Signature, examples: Examples, sizes: Mapping[str, int], kind: int
) -> Tensors:
    """Inputs of these sizes, of one of four kinds; the same each time."""
    generator = torch.Generator().manual_seed(kind)
    return [
        _random_like(example, _at(spec, sizes), kind, generator)
        for spec, example in zip(signature.inputs, examples, strict=True)
    ]


def _random_like(
    example: Tensor, shape: list[int], kind: int, generator: torch.Generator
) -> Tensor:
    """Floats of both signs, all negative, all positive, or large; others from the example."""
    if example.dtype.is_floating_point:
        values = torch.rand(shape, generator=generator, dtype=torch.float64)
        variants = (values * 2 - 1, -values - 0.01, values + 0.01, (values * 2 - 1) * 100)
        return variants[kind].to(example.dtype)
    flat = example.reshape(-1)
    if not flat.numel():
        return torch.zeros(shape, dtype=example.dtype)
    picks = torch.randint(0, flat.numel(), (math.prod(shape),), generator=generator)
    return flat[picks].reshape(shape)


def zeroed_except(
    signature: Signature, inputs: Tensors, dim: str, places: Mapping[int, slice]
) -> Tensors:
    """The inputs, some of them zero except at some positions along a dimension."""
    made = list(inputs)
    for which, place in places.items():
        axis = signature.inputs[which].shape.index(dim)
        at = (slice(None),) * axis + (place,)
        made[which] = torch.zeros_like(inputs[which])
        made[which][at] = inputs[which][at]
    return made


def padding_agrees(
    run: Run,
    signature: Signature,
    inputs: Tensors,
    dim: str,
    larger: int,
    padding: Mapping[str, Tokenize] = MappingProxyType({}),
    tolerance: float = _TOLERANCE,
) -> bool:
    """Whether inputs padded to a larger size give the outputs of the unpadded inputs."""
    right = run(inputs)
    named = list(zip(signature.inputs, inputs, strict=True))
    size = next(x.shape[spec.shape.index(dim)] for spec, x in named if dim in spec.shape)
    got = run([_padded(spec, x, dim, larger, padding.get(spec.name)) for spec, x in named])
    left = any(step.padding == "left" for step in padding.values())
    start = larger - size if left else 0
    pairs = zip(signature.outputs, got, strict=True)
    cropped = [_cropped(spec, tensor, dim, start, size) for spec, tensor in pairs]
    return not describe_difference(right, cropped, tolerance)


def _padded(
    spec: TensorSpec, tensor: Tensor, dim: str, larger: int, step: Tokenize | None
) -> Tensor:
    """Padded with zeros at the end, or as the tokenize step specifies."""
    for axis, name in enumerate(spec.shape):
        if name == dim:
            shape = list(tensor.shape)
            shape[axis] = larger - shape[axis]
            added = torch.full(shape, step.pad_id if step else 0, dtype=tensor.dtype)
            left = step is not None and step.padding == "left"
            tensor = torch.cat([added, tensor] if left else [tensor, added], axis)
    return tensor


def _cropped(spec: TensorSpec, tensor: Tensor, dim: str, start: int, size: int) -> Tensor:
    for axis, name in enumerate(spec.shape):
        if name == dim:
            tensor = tensor.narrow(axis, start, size)
    return tensor


#: Largest difference of outputs for an input of zeros, relative to the largest: the effect of the
#: zeros is far larger than rounding.
_EMPTY_TOLERANCE = 1e-4
#: Largest number of elements of the inputs of one probe.
_MAX_ELEMENTS = 1 << 21
#: Largest size that is probed.
_MAX_SIZE = 256


def paddable_dims(
    program: ExportedProgram, signature: Signature, examples: Examples, candidates: Sequence[str]
) -> tuple[str, ...]:
    """The candidates along which zeros at an input's end change no output before them.

    Each is probed alone, at its smallest size, a prime and one below its largest, padded by one and
    by many, with inputs of both signs and small and large values, and with masks: inputs that are
    zero except at the first position, the last, or every other. `nonempty_inputs` probes inputs
    that are all zero.

    Args:
        program: Flat, as `edgeserve.backends.torch.export.export.export_module` makes it.
        signature: Its names and ranges.
        examples: One tensor for each input; integers are drawn from their values.
        candidates: Dimensions to probe.
    """
    own = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    given = {dim for spec in signature.outputs for dim in spec.shape if isinstance(dim, str)}
    if not candidates or not given <= own:  # an output size that is not one of the inputs'
        return ()
    with log_warnings(), torch.no_grad():
        run = stateless_runner(program)
        return tuple(
            dim for dim in candidates if all(_probe_results(run, signature, examples, dim))
        )


def nonempty_inputs(
    program: ExportedProgram,
    signature: Signature,
    examples: Examples,
    dims: Sequence[str],
    padding: Mapping[str, Tokenize],
) -> tuple[str, ...]:
    """Inputs whose rows must not be all zero if a dimension is padded.

    The usual case is a mask of zeros: with scores of `finfo.min` everywhere, a softmax is uniform
    over all positions, including padding. Padding is exact for every other mask.

    Args:
        program: As for `paddable_dims`.
        signature: Its names and ranges.
        examples: One tensor for each input.
        dims: Dimensions that are padded.
        padding: The tokenize step of each text input.
    """
    found: set[str] = set()
    with log_warnings(), torch.no_grad():
        run = stateless_runner(program) if dims else None
        for dim in dims:
            found.update(_changed_when_empty(run, signature, examples, dim, padding))
    return tuple(spec.name for spec in signature.inputs if spec.name in found)


def _changed_when_empty(
    run: Any, signature: Signature, examples: Examples, dim: str, padding: Mapping[str, Tokenize]
) -> set[str]:
    """The inputs that, if all zero, let padding along a dimension change the outputs."""
    sizes = dim_sizes(signature, examples)
    low, high = signature.dims[dim]
    size = max(1, low, min(sizes[dim], high - 1))
    larger = min(high, 2 * size + 3)
    inputs = random_inputs(signature, examples, sizes | {dim: size}, 0)
    holders = [spec.name for spec in signature.inputs if dim in spec.shape]

    def same(empty: Sequence[str]) -> bool:
        pairs = zip(signature.inputs, inputs, strict=True)
        zeroed = [torch.zeros_like(x) if spec.name in empty else x for spec, x in pairs]
        try:
            return padding_agrees(run, signature, zeroed, dim, larger, padding, _EMPTY_TOLERANCE)
        except Exception as error:  # torch raises many kinds
            print(
                f"{list(empty)} must not be all zero: {type(error).__name__} at {size} and {larger}"
            )
            return False

    if size >= larger or not same(()):  # then the zeros are not the cause
        return set()
    found = {name for name in holders if not same([name])}
    return found if found or same(holders) else set(holders)


def _probe_results(run: Any, signature: Signature, examples: Examples, dim: str) -> Iterator[bool]:
    """Whether each probe of one dimension gives the same outputs."""
    low, high = signature.dims[dim]
    base = dim_sizes(signature, examples)
    tried = False
    for size, larger in _size_pairs(max(1, low), min(high, max(_MAX_SIZE, base[dim]))):
        if element_count(signature, base | {dim: larger}) > _MAX_ELEMENTS:
            continue
        for inputs in _probe_inputs(signature, examples, base | {dim: size}, dim):
            tried = True
            try:
                yield padding_agrees(run, signature, inputs, dim, larger)
            except Exception as error:  # torch raises many kinds; then it may not be padded
                print(f"{dim!r} is not padded: {type(error).__name__} at {size} and {larger}")
                yield False
                return
    yield tried


def _probe_inputs(
    signature: Signature, examples: Examples, sizes: Mapping[str, int], dim: str
) -> Iterator[Tensors]:
    """Inputs of one size: with each kind of values, then with each mask that keeps a position."""
    for kind in range(4):
        yield random_inputs(signature, examples, sizes, kind)
    whole = random_inputs(signature, examples, sizes, 0)
    if sizes[dim] == 1:
        return
    holders = [i for i, spec in enumerate(signature.inputs) if dim in spec.shape]
    for which in holders:
        for place in (slice(0, 1), slice(-1, None), slice(0, None, 2)):
            yield zeroed_except(signature, whole, dim, {which: place})
        if len(holders) > 1:  # masks without a common position
            apart = {i: slice(0, 1) if i == which else slice(-1, None) for i in holders}
            yield zeroed_except(signature, whole, dim, apart)


def _size_pairs(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Sizes and the larger sizes that they are padded to."""
    prime = next((n for n in range(low + 1, high) if n > 2 and _is_prime(n)), low)
    for size in sorted({low, prime, (low + high) // 2}):
        for larger in sorted({size + 1, min(high, 2 * size + 3), high}):
            if size < larger <= high:
                yield size, larger


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def bounded_dynamic_dims(signature: Signature) -> tuple[str, ...]:
    """Dynamic dimensions except the batch and those without an upper bound."""
    return tuple(
        name
        for name, (low, high) in signature.dims.items()
        if name != signature.batch_dim and low < high < UNBOUNDED
    )
