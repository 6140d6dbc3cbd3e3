"""Which dynamic dimensions of a program may be padded with zeros: tried, not supposed.

A file of fixed sizes answers a smaller input truthfully only if what is added at the end of it
does not reach the answers before it. A convolution over time keeps to itself, an attention
without a mask does not. Which it is follows from no single operator, so the program is run both
ways: each trial makes inputs of some size and sees whether padding them changes the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.export.dynamic_shapes import UNBOUNDED
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = [
    "Run",
    "Tensors",
    "bounded_dynamic_dims",
    "dim_sizes",
    "element_count",
    "nonempty_inputs",
    "paddable_dims",
    "padding_agrees",
    "random_inputs",
    "stateless_runner",
    "zeroed_except",
]


#: How far apart two answers may be, relative to the largest: the same kernels at two sizes.
_TOLERANCE = 1e-5

Tensors = list[torch.Tensor]
Run = Callable[[Tensors], Tensors]


def stateless_runner(program: ExportedProgram) -> Run:
    """The program as a function that keeps no state between calls and leaves its inputs alone."""
    module: Any = program.module()
    buffers = BufferSnapshot(module)

    def run(tensors: Tensors) -> Tensors:
        found = [each.clone() for each in module(*(tensor.clone() for tensor in tensors))]
        buffers.restore()
        return found

    return run


def dim_sizes(signature: Signature, examples: Sequence[torch.Tensor]) -> dict[str, int]:
    """The examples' own sizes."""
    pairs = zip(signature.inputs, examples, strict=True)
    return {
        dim: size
        for spec, tensor in pairs
        for dim, size in zip(spec.shape, tensor.shape, strict=True)
        if isinstance(dim, str)
    }


def element_count(signature: Signature, sizes: Mapping[str, int]) -> int:
    total = 0
    for spec in signature.inputs:
        count = 1
        for dim in spec.shape:
            count *= dim if isinstance(dim, int) else sizes[dim]
        total += count
    return total


def random_inputs(
    signature: Signature, examples: Sequence[torch.Tensor], sizes: Mapping[str, int], kind: int
) -> Tensors:
    generator = torch.Generator().manual_seed(kind)
    made = []
    for spec, example in zip(signature.inputs, examples, strict=True):
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape]
        made.append(_random_like(example, shape, kind, generator))
    return made


def _random_like(
    example: torch.Tensor, shape: list[int], kind: int, generator: torch.Generator
) -> torch.Tensor:
    """Floats of both signs, all negative, all positive, or large; others from the example."""
    if example.dtype.is_floating_point:
        values = torch.rand(shape, generator=generator, dtype=torch.float64)
        ways = (values * 2 - 1, -values - 0.01, values + 0.01, (values * 2 - 1) * 100)
        return ways[kind].to(example.dtype)
    flat = example.reshape(-1)
    if not flat.numel():
        return torch.zeros(shape, dtype=example.dtype)
    count = 1
    for size in shape:
        count *= size
    picks = torch.randint(0, flat.numel(), (count,), generator=generator)
    return flat[picks].reshape(shape)


def zeroed_except(
    signature: Signature, inputs: Tensors, dim: str, places: Mapping[int, slice]
) -> Tensors:
    """The inputs, some of them zero but at some places along a dimension."""
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
    """Whether inputs filled up to a larger size are answered as they are themselves."""
    right = run(inputs)
    named = list(zip(signature.inputs, inputs, strict=True))
    size = next(x.shape[spec.shape.index(dim)] for spec, x in named if dim in spec.shape)
    got = run([_padded(spec, x, dim, larger, padding.get(spec.name)) for spec, x in named])
    left = any(step.padding == "left" for step in padding.values())
    start = larger - size if left else 0
    specs = zip(signature.outputs, right, got, strict=True)
    return all(_same(r, _cropped(spec, g, dim, start, size), tolerance) for spec, r, g in specs)


def _padded(
    spec: TensorSpec, tensor: torch.Tensor, dim: str, larger: int, step: Tokenize | None
) -> torch.Tensor:
    """With zeros at the end, or as the step of a text says."""
    for axis, name in enumerate(spec.shape):
        if name == dim:
            shape = list(tensor.shape)
            shape[axis] = larger - shape[axis]
            added = torch.full(shape, step.pad_id if step else 0, dtype=tensor.dtype)
            left = step is not None and step.padding == "left"
            tensor = torch.cat([added, tensor] if left else [tensor, added], axis)
    return tensor


def _cropped(
    spec: TensorSpec, tensor: torch.Tensor, dim: str, start: int, size: int
) -> torch.Tensor:
    for axis, name in enumerate(spec.shape):
        if name == dim:
            tensor = tensor.narrow(axis, start, size)
    return tensor


def _same(right: torch.Tensor, got: torch.Tensor, tolerance: float) -> bool:
    if right.shape != got.shape:
        return False
    if not right.dtype.is_floating_point:
        return torch.equal(right, got)
    finite = right.double().nan_to_num(0.0, 0.0, 0.0)
    scale = max(float(finite.abs().max()) if finite.numel() else 0.0, 1e-6)
    return torch.allclose(
        got.double(), right.double(), rtol=0.0, atol=tolerance * scale, equal_nan=True
    )


#: How far apart answers may be where an input of zeros is tried, relative to the largest: what
#: that changes is far larger than rounding.
_EMPTY_TOLERANCE = 1e-4
#: Numbers that the inputs of one trial may hold.
_MAX_ELEMENTS = 1 << 21
#: Longest size that is tried.
_MAX_SIZE = 256


def paddable_dims(
    program: ExportedProgram,
    signature: Signature,
    examples: Sequence[torch.Tensor],
    candidates: Sequence[str],
) -> tuple[str, ...]:
    """Those of some dimensions in which zeros at an input's end change no answer before them.

    Each is tried alone, at its smallest size, a prime and one below its largest, filled up by one
    and by many, with inputs of both signs and small and large values, and with masks: inputs that
    are zero but at the first place, the last, or every other. All zero is `nonempty_inputs`'s
    matter.

    Args:
        program: Flat, as `edgeserve.backends.torch.export.export.export_module` makes it.
        signature: Its names and ranges.
        examples: One tensor for each input; integers are drawn from their values.
        candidates: Dimensions to try.
    """
    own = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    given = {dim for spec in signature.outputs for dim in spec.shape if isinstance(dim, str)}
    if not candidates or not given <= own:  # an answer whose size is not one of the inputs'
        return ()
    with log_warnings(), torch.no_grad():
        run = stateless_runner(program)
        return tuple(
            dim for dim in candidates if all(_trial_results(run, signature, examples, dim))
        )


def nonempty_inputs(
    program: ExportedProgram,
    signature: Signature,
    examples: Sequence[torch.Tensor],
    dims: Sequence[str],
    padding: Mapping[str, Tokenize],
) -> tuple[str, ...]:
    """Inputs whose rows may not be all zero where a dimension is filled up.

    A mask of zeros is the usual one: with scores of `finfo.min` everywhere, a softmax spreads over
    all places alike, those that were added too. Padding is exact for every other mask.

    Args:
        program: As for `paddable_dims`.
        signature: Its names and ranges.
        examples: One tensor for each input.
        dims: Dimensions that are filled up.
        padding: How inputs of text are.
    """
    found: set[str] = set()
    with log_warnings(), torch.no_grad():
        run = stateless_runner(program) if dims else None
        for dim in dims:
            found.update(_changed_when_empty(run, signature, examples, dim, padding))
    return tuple(spec.name for spec in signature.inputs if spec.name in found)


def _changed_when_empty(
    run: Any,
    signature: Signature,
    examples: Sequence[torch.Tensor],
    dim: str,
    padding: Mapping[str, Tokenize],
) -> set[str]:
    """Those that, all zero, let what is added along a dimension into the answers."""
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
            print(f"{list(empty)} may not be zero: {type(error).__name__} at {size} and {larger}")
            return False

    if size >= larger or not same(()):  # then it is not the zeros that make the difference
        return set()
    found = {name for name in holders if not same([name])}
    return found if found or same(holders) else set(holders)


def _trial_results(
    run: Any, signature: Signature, examples: Sequence[torch.Tensor], dim: str
) -> Iterator[bool]:
    """Whether each trial of one dimension shows the same answers."""
    low, high = signature.dims[dim]
    base = dim_sizes(signature, examples)
    tried = False
    for size, larger in _size_pairs(max(1, low), min(high, max(_MAX_SIZE, base[dim]))):
        if element_count(signature, base | {dim: larger}) > _MAX_ELEMENTS:
            continue
        for inputs in _trial_inputs(signature, examples, base | {dim: size}, dim):
            tried = True
            try:
                yield padding_agrees(run, signature, inputs, dim, larger)
            except Exception as error:  # torch raises many kinds; then it may not be padded
                print(f"{dim!r} is not padded: {type(error).__name__} at {size} and {larger}")
                yield False
                return
    yield tried


def _trial_inputs(
    signature: Signature, examples: Sequence[torch.Tensor], sizes: Mapping[str, int], dim: str
) -> Iterator[Tensors]:
    """Inputs of one size: of each kind of values, then masked in each way that keeps a place."""
    for kind in range(4):
        yield random_inputs(signature, examples, sizes, kind)
    whole = random_inputs(signature, examples, sizes, 0)
    if sizes[dim] == 1:
        return
    holders = [i for i, spec in enumerate(signature.inputs) if dim in spec.shape]
    for which in holders:
        for place in (slice(0, 1), slice(-1, None), slice(0, None, 2)):
            yield zeroed_except(signature, whole, dim, {which: place})
        if len(holders) > 1:  # masks that have no place in common
            yield zeroed_except(
                signature,
                whole,
                dim,
                {each: slice(0, 1) if each == which else slice(-1, None) for each in holders},
            )


def _size_pairs(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Sizes and larger ones that they are filled up to."""
    prime = next((n for n in range(low + 1, high) if n > 2 and _is_prime(n)), low)
    for size in sorted({low, prime, (low + high) // 2}):
        for larger in sorted({size + 1, min(high, 2 * size + 3), high}):
            if size < larger <= high:
                yield size, larger


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def bounded_dynamic_dims(signature: Signature) -> tuple[str, ...]:
    """Dynamic dimensions beside the batch, those without an upper end left out."""
    return tuple(
        name
        for name, (low, high) in signature.dims.items()
        if name != signature.batch_dim and low < high < UNBOUNDED
    )
