"""Packages with dynamic sizes: ranges on their inputs, and a check at the ends of the ranges.

coremltools writes a range for every program that it converts with an unknown size. Here the program
is compared with its source at other sizes, before the package is accepted; if they differ, sizes
are fixed instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeserve.backends.sizes import Sizes
from edgeserve.errors import ConvertError
from edgeserve.types.tensors import IO, Shape, Signature

if TYPE_CHECKING:
    from torch.export import ExportedProgram


#: Largest difference from the program, relative to each output's largest value.
_TOLERANCE = 1e-3
#: In float16: rounding of every operation; a wrong shape or axis differs far more.
_FP16_TOLERANCE = 5e-2
#: Largest number of elements of the inputs of one probe.
_MAX_ELEMENTS = 1 << 21


def has_dynamic_sizes(io: IO) -> bool:
    """Whether a package takes more than one size."""
    return any(isinstance(dim, str) for spec in io.inputs for dim in spec.shape)


def dynamic_io(io: IO, signature: Signature, sizes: Sizes) -> IO:
    """A package's inputs and outputs, with dynamic dimensions under the signature's names."""
    if not sizes.ranges:
        return io

    def shape(outer: Shape) -> Shape:
        fixed = {name: size for name, size in sizes.dims.items() if name not in sizes.ranges}
        return tuple(fixed.get(dim, dim) if isinstance(dim, str) else dim for dim in outer)

    pairs = ((io.inputs, signature.inputs), (io.outputs, signature.outputs))
    inputs, outputs = (
        tuple(
            msgspec.structs.replace(inner, shape=shape(outer.shape))
            for inner, outer in zip(inners, outers, strict=True)
        )
        for inners, outers in pairs
    )
    return IO(inputs=inputs, outputs=outputs, signature=io.signature)


def check_dynamic_ranges(
    folder: Path,
    program: ExportedProgram,
    signature: Signature,
    sizes: Sizes,
    examples: Sequence[np.ndarray],
    precision: str,
) -> None:
    """Run a package and its source at the ends of its ranges and at a prime between them.

    Raises:
        ConvertError: EDGE-CONVERT-055, it fails or differs at one of them.
    """
    import torch

    from edgeserve.backends.coreml.interpreter import Interpreter

    module: Any = program.module(check_guards=False)
    names = [spec.name for spec in signature.outputs]
    limit = _FP16_TOLERANCE if precision == "fp16" else _TOLERANCE
    engine: Any = None
    for dims in _probe_sizes(sizes):
        here = Sizes(None, {**sizes.dims, **dims})
        shapes = [here.of(spec.shape) for spec in signature.inputs]
        if sum(int(np.prod(shape)) for shape in shapes) > _MAX_ELEMENTS:
            continue
        feed = [_example_like(array, shape) for array, shape in zip(examples, shapes, strict=True)]
        with torch.no_grad():
            right = module(*(torch.from_numpy(array.copy()) for array in feed))
        try:
            engine = engine or Interpreter(folder)
            given = {
                spec.name: array.astype(spec.dtype).reshape(array.shape or 1)
                for spec, array in zip(engine.inputs, feed, strict=True)
            }
            got = engine.run(given)
        except Exception as error:  # the interpreter's, or what a kernel of torch raises
            raise _mismatch(dims, str(error).partition("\n")[0]) from error
        for name, spec, tensor in zip(names, engine.outputs, right, strict=True):
            if (worst := _relative_error(got[spec.name], tensor.numpy())) > limit:
                raise _mismatch(dims, f"output {name!r} is off by {worst:.2g} of its scale")


def _probe_sizes(sizes: Sizes) -> Iterator[dict[str, int]]:
    ends = sizes.ranges.items()
    yield {name: low for name, (low, _) in ends}
    yield {name: _prime(low, high) for name, (low, high) in ends}
    yield {name: high for name, (_, high) in ends}


def _prime(low: int, high: int) -> int:
    """The first prime above a third of the range, or its lower end."""
    start = low + (high - low) // 3
    return next(
        (n for n in range(max(start, 3), high) if all(n % d for d in range(2, int(n**0.5) + 1))),
        low,
    )


def _example_like(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Values like the example's in another shape: seeded numbers, or its own integers."""
    rng = np.random.default_rng(0)
    if array.dtype.kind == "f":
        return rng.uniform(-1, 1, shape).astype(array.dtype)
    return rng.choice(array.reshape(-1), shape).astype(array.dtype)


def _relative_error(got: np.ndarray, right: np.ndarray) -> float:
    if got.shape != right.shape:
        return float("inf")
    wide = right.astype(np.float64)
    finite = np.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0)
    scale = max(float(np.abs(finite).max(initial=0.0)), 1e-6)
    off = np.abs(np.nan_to_num(got.astype(np.float64) - wide, nan=0.0, posinf=0.0, neginf=0.0))
    return float(off.max(initial=0.0)) / scale


def _mismatch(dims: dict[str, int], got: str) -> ConvertError:
    wanted = "the source's own outputs"
    hint = "give fixed sizes: leave these dimensions out of dynamic_shapes"
    return ConvertError("EDGE-CONVERT-055", f"package at {dims}", wanted=wanted, got=got, hint=hint)
