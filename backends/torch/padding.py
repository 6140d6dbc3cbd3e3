"""Which dynamic dimensions of a program may be filled up with zeros: tried, not supposed.

A file of fixed sizes answers a smaller input truthfully only if what is added at the end of it does
not reach the answers before it. A convolution over time keeps to itself, an attention without a
mask does not. Which it is follows from no single operator, so the program is run both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.buffers import Buffers
from edgeserve.backends.torch.program import log_warnings
from edgeserve.backends.torch.shapes import UNBOUNDED
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["open_dims", "paddable"]

#: How far apart two answers may be, relative to the largest: the same kernels at two sizes.
_TOLERANCE = 1e-5
#: Numbers that the inputs of one trial may hold.
_MOST = 1 << 21
#: Longest size that is tried.
_LONGEST = 256

Tensors = list[torch.Tensor]


def paddable(
    program: ExportedProgram, signature: Signature, examples: Sequence[torch.Tensor],
    candidates: Sequence[str],
) -> tuple[str, ...]:  # fmt: skip
    """Those of some dimensions in which zeros at an input's end change no answer before them.

    Each is tried alone, at its smallest size, a prime and one below its largest, filled up by one
    and by many, with inputs of both signs and small and large values.

    Args:
        program: Flat, as `edgeserve.backends.torch.export.export_module` makes it.
        signature: Its names and ranges.
        examples: One tensor for each input; integers are drawn from their values.
        candidates: Dimensions to try.
    """
    own = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    given = {dim for spec in signature.outputs for dim in spec.shape if isinstance(dim, str)}
    if not candidates or not given <= own:  # an answer whose size is not one of the inputs'
        return ()
    with log_warnings(), torch.no_grad():
        module: Any = program.module()
        buffers = Buffers(module)

        def run(tensors: Tensors) -> Tensors:
            found = [each.clone() for each in module(*(tensor.clone() for tensor in tensors))]
            buffers.restore()
            return found

        return tuple(
            dim for dim in candidates if all(_holds(run, signature, examples, dim))
        )  # fmt: skip


def _holds(
    run: Any, signature: Signature, examples: Sequence[torch.Tensor], dim: str
) -> Iterator[bool]:
    """Whether each trial of one dimension shows the same answers."""
    low, high = signature.dims[dim]
    base = _sizes(signature, examples)
    tried = False
    for size, larger in _pairs(max(1, low), min(high, max(_LONGEST, base[dim]))):
        if _numbers(signature, base | {dim: larger}) > _MOST:
            continue
        for kind in range(4):
            tried = True
            inputs = _inputs(signature, examples, base | {dim: size}, kind)
            try:
                right = run(inputs)
                got = run([_filled(*pair, dim, larger) for pair in _named(signature, inputs)])
            except Exception as error:  # torch raises many kinds; then it may not be padded
                print(f"{dim!r} is not padded: {type(error).__name__} at {size} and {larger}")
                yield False
                return
            specs = zip(signature.outputs, right, got, strict=True)
            yield all(_same(r, _cut(spec, g, dim, size)) for spec, r, g in specs)
    yield tried


def _pairs(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Sizes and larger ones that they are filled up to."""
    prime = next((n for n in range(low + 1, high) if n > 2 and _is_prime(n)), low)
    for size in sorted({low, prime, (low + high) // 2}):
        for larger in sorted({size + 1, min(high, 2 * size + 3), high}):
            if size < larger <= high:
                yield size, larger


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _sizes(signature: Signature, examples: Sequence[torch.Tensor]) -> dict[str, int]:
    """The examples' own sizes."""
    pairs = zip(signature.inputs, examples, strict=True)
    return {
        dim: size
        for spec, tensor in pairs
        for dim, size in zip(spec.shape, tensor.shape, strict=True)
        if isinstance(dim, str)
    }


def _numbers(signature: Signature, sizes: Mapping[str, int]) -> int:
    total = 0
    for spec in signature.inputs:
        count = 1
        for dim in spec.shape:
            count *= dim if isinstance(dim, int) else sizes[dim]
        total += count
    return total


def _inputs(
    signature: Signature, examples: Sequence[torch.Tensor], sizes: Mapping[str, int], kind: int
) -> Tensors:
    generator = torch.Generator().manual_seed(kind)
    made = []
    for spec, example in zip(signature.inputs, examples, strict=True):
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape]
        made.append(_drawn(example, shape, kind, generator))
    return made


def _drawn(
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


def _named(signature: Signature, tensors: Tensors) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
    yield from zip(signature.inputs, tensors, strict=True)


def _filled(spec: TensorSpec, tensor: torch.Tensor, dim: str, larger: int) -> torch.Tensor:
    for axis, name in enumerate(spec.shape):
        if name == dim:
            shape = list(tensor.shape)
            shape[axis] = larger - shape[axis]
            tensor = torch.cat([tensor, torch.zeros(shape, dtype=tensor.dtype)], axis)
    return tensor


def _cut(spec: TensorSpec, tensor: torch.Tensor, dim: str, size: int) -> torch.Tensor:
    for axis, name in enumerate(spec.shape):
        if name == dim:
            tensor = tensor.narrow(axis, 0, size)
    return tensor


def _same(right: torch.Tensor, got: torch.Tensor) -> bool:
    if right.shape != got.shape:
        return False
    if not right.dtype.is_floating_point:
        return torch.equal(right, got)
    finite = right.double().nan_to_num(0.0, 0.0, 0.0)
    scale = max(float(finite.abs().max()) if finite.numel() else 0.0, 1e-6)
    return torch.allclose(
        got.double(), right.double(), rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True
    )


def open_dims(signature: Signature) -> tuple[str, ...]:
    """Dynamic dimensions beside the batch, those without an upper end left out."""
    return tuple(
        name
        for name, (low, high) in signature.dims.items()
        if name != signature.batch_dim and low < high < UNBOUNDED
    )
