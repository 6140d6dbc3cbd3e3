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

from edgeserve.backends.torch.padding_trial import (
    Tensors,
    agrees,
    inputs_of,
    kept,
    numbers_in,
    runner,
    sizes_of,
)
from edgeserve.backends.torch.program import log_warnings
from edgeserve.backends.torch.shapes import UNBOUNDED
from edgeserve.types.processing import Tokenize
from edgeserve.types.tensors import Signature

__all__ = ["nonempty", "open_dims", "paddable"]

#: How far apart answers may be where an input of zeros is tried, relative to the largest: what
#: that changes is far larger than rounding.
_EMPTY_TOLERANCE = 1e-4
#: Numbers that the inputs of one trial may hold.
_MOST = 1 << 21
#: Longest size that is tried.
_LONGEST = 256


def paddable(
    program: ExportedProgram,
    signature: Signature,
    examples: Sequence[torch.Tensor],
    candidates: Sequence[str],
) -> tuple[str, ...]:
    """Those of some dimensions in which zeros at an input's end change no answer before them.

    Each is tried alone, at its smallest size, a prime and one below its largest, filled up by one
    and by many, with inputs of both signs and small and large values, and with masks: inputs that
    are zero but at the first place, the last, or every other. All zero is `nonempty`'s matter.

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
        run = runner(program)
        return tuple(dim for dim in candidates if all(_holds(run, signature, examples, dim)))


def nonempty(
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
        program: As for `paddable`.
        signature: Its names and ranges.
        examples: One tensor for each input.
        dims: Dimensions that are filled up.
        padding: How inputs of text are.
    """
    found: set[str] = set()
    with log_warnings(), torch.no_grad():
        run = runner(program) if dims else None
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
    sizes = sizes_of(signature, examples)
    low, high = signature.dims[dim]
    size = max(1, low, min(sizes[dim], high - 1))
    larger = min(high, 2 * size + 3)
    inputs = inputs_of(signature, examples, sizes | {dim: size}, 0)
    holders = [spec.name for spec in signature.inputs if dim in spec.shape]

    def same(empty: Sequence[str]) -> bool:
        pairs = zip(signature.inputs, inputs, strict=True)
        zeroed = [torch.zeros_like(x) if spec.name in empty else x for spec, x in pairs]
        try:
            return agrees(run, signature, zeroed, dim, larger, padding, _EMPTY_TOLERANCE)
        except Exception as error:  # torch raises many kinds
            print(f"{list(empty)} may not be zero: {type(error).__name__} at {size} and {larger}")
            return False

    if size >= larger or not same(()):  # then it is not the zeros that make the difference
        return set()
    found = {name for name in holders if not same([name])}
    return found if found or same(holders) else set(holders)


def _holds(
    run: Any, signature: Signature, examples: Sequence[torch.Tensor], dim: str
) -> Iterator[bool]:
    """Whether each trial of one dimension shows the same answers."""
    low, high = signature.dims[dim]
    base = sizes_of(signature, examples)
    tried = False
    for size, larger in _pairs(max(1, low), min(high, max(_LONGEST, base[dim]))):
        if numbers_in(signature, base | {dim: larger}) > _MOST:
            continue
        for inputs in _trials(signature, examples, base | {dim: size}, dim):
            tried = True
            try:
                yield agrees(run, signature, inputs, dim, larger)
            except Exception as error:  # torch raises many kinds; then it may not be padded
                print(f"{dim!r} is not padded: {type(error).__name__} at {size} and {larger}")
                yield False
                return
    yield tried


def _trials(
    signature: Signature, examples: Sequence[torch.Tensor], sizes: Mapping[str, int], dim: str
) -> Iterator[Tensors]:
    """Inputs of one size: of each kind of values, then masked in each way that keeps a place."""
    for kind in range(4):
        yield inputs_of(signature, examples, sizes, kind)
    whole = inputs_of(signature, examples, sizes, 0)
    if sizes[dim] == 1:
        return
    holders = [i for i, spec in enumerate(signature.inputs) if dim in spec.shape]
    for which in holders:
        for place in (slice(0, 1), slice(-1, None), slice(0, None, 2)):
            yield kept(signature, whole, dim, {which: place})
        if len(holders) > 1:  # masks that have no place in common
            yield kept(
                signature,
                whole,
                dim,
                {each: slice(0, 1) if each == which else slice(-1, None) for each in holders},
            )


def _pairs(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Sizes and larger ones that they are filled up to."""
    prime = next((n for n in range(low + 1, high) if n > 2 and _is_prime(n)), low)
    for size in sorted({low, prime, (low + high) // 2}):
        for larger in sorted({size + 1, min(high, 2 * size + 3), high}):
            if size < larger <= high:
                yield size, larger


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def open_dims(signature: Signature) -> tuple[str, ...]:
    """Dynamic dimensions beside the batch, those without an upper end left out."""
    return tuple(
        name
        for name, (low, high) in signature.dims.items()
        if name != signature.batch_dim and low < high < UNBOUNDED
    )
