"""One trial of padding: inputs of some size, and whether filling them up changes the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.buffers import Buffers
from edgeserve.types.processing import Tokenize
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["Run", "Tensors", "agrees", "inputs_of", "kept", "numbers_in", "runner", "sizes_of"]

#: How far apart two answers may be, relative to the largest: the same kernels at two sizes.
_TOLERANCE = 1e-5

Tensors = list[torch.Tensor]
Run = Callable[[Tensors], Tensors]


def runner(program: ExportedProgram) -> Run:
    """The program as a function that keeps no state between calls and leaves its inputs alone."""
    module: Any = program.module()
    buffers = Buffers(module)

    def run(tensors: Tensors) -> Tensors:
        found = [each.clone() for each in module(*(tensor.clone() for tensor in tensors))]
        buffers.restore()
        return found

    return run


def sizes_of(signature: Signature, examples: Sequence[torch.Tensor]) -> dict[str, int]:
    """The examples' own sizes."""
    pairs = zip(signature.inputs, examples, strict=True)
    return {
        dim: size
        for spec, tensor in pairs
        for dim, size in zip(spec.shape, tensor.shape, strict=True)
        if isinstance(dim, str)
    }


def numbers_in(signature: Signature, sizes: Mapping[str, int]) -> int:
    total = 0
    for spec in signature.inputs:
        count = 1
        for dim in spec.shape:
            count *= dim if isinstance(dim, int) else sizes[dim]
        total += count
    return total


def inputs_of(
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


def kept(signature: Signature, inputs: Tensors, dim: str, places: Mapping[int, slice]) -> Tensors:
    """The inputs, some of them zero but at some places along a dimension."""
    made = list(inputs)
    for which, place in places.items():
        axis = signature.inputs[which].shape.index(dim)
        at = (slice(None),) * axis + (place,)
        made[which] = torch.zeros_like(inputs[which])
        made[which][at] = inputs[which][at]
    return made


def agrees(
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
    got = run([_filled(spec, x, dim, larger, padding.get(spec.name)) for spec, x in named])
    left = any(step.padding == "left" for step in padding.values())
    start = larger - size if left else 0
    specs = zip(signature.outputs, right, got, strict=True)
    return all(_same(r, _cut(spec, g, dim, start, size), tolerance) for spec, r, g in specs)


def _filled(
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


def _cut(spec: TensorSpec, tensor: torch.Tensor, dim: str, start: int, size: int) -> torch.Tensor:
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
