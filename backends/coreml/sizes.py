"""Which sizes a package is fixed to: batch 1, a few lengths of text, and else the example's sizes.

Core ML runs fastest, and on the Neural Engine only, where every size is known. Text is padded to
the next length (a bucket); nothing else may be padded, so other dynamic sizes are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeserve.types.processing import Processing
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Shape, Signature

__all__ = ["Sizes", "plan_sizes"]

_SMALLEST = 16


@dataclass(frozen=True)
class Sizes:
    """One signature of a file.

    Attributes:
        name: What the file calls it ("len_16"); None where the file has only this one.
        dims: The size of each dynamic dimension, by name.
    """

    name: str | None
    dims: Mapping[str, int]

    def of(self, shape: Shape) -> tuple[int, ...]:
        """A shape of the source's signature with these sizes."""
        return tuple(dim if isinstance(dim, int) else self.dims[dim] for dim in shape)


def plan_sizes(
    exported: Exported, examples: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[Sizes, ...], tuple[str, ...]]:
    """The sizes to make, smallest first, and a line for each dimension that loses its freedom.

    Args:
        exported: The source: its signature, and which inputs its processing pads.
        examples: Shapes of the example inputs, by name.
    """
    signature = exported.signature
    padded = _padded(signature, exported.processing)
    fixed, notes = {}, []
    for name, (low, _) in signature.dims.items():
        if name == signature.batch_dim:
            fixed[name] = max(1, low)
        elif name not in padded:
            fixed[name] = _example_size(signature, examples, name)
            notes.append(f"dimension {name!r} is fixed at {fixed[name]}, as in the example inputs")
    lengths = {name: _lengths(*padded[name]) for name in padded}
    count = max(map(len, lengths.values()), default=1)
    picks = [
        {name: sizes[min(i, len(sizes) - 1)] for name, sizes in lengths.items()}
        for i in range(count)
    ]
    named = (_name(pick) if count > 1 else None for pick in picks)
    return tuple(Sizes(n, fixed | p) for n, p in zip(named, picks, strict=True)), tuple(notes)


def _padded(signature: Signature, processing: Processing) -> dict[str, tuple[int, int]]:
    """Dimensions, other than the batch, of inputs that are all padded; with their range."""
    found: dict[str, tuple[int, int]] = {}
    for name, (low, high) in signature.dims.items():
        holders = [spec.name for spec in signature.inputs if name in spec.shape]
        steps = [processing.padding.get(holder) for holder in holders]
        if name != signature.batch_dim and holders and all(steps):
            longest = min(high, *(step.max_length for step in steps if step is not None))
            found[name] = (low, max(low, longest))
    return found


def _lengths(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from 16 up to ``high``, which is the last in any case."""
    powers = (1 << bits for bits in range(high.bit_length()))
    return (*(n for n in powers if max(_SMALLEST, low) <= n < high), high)


def _example_size(signature: Signature, examples: Mapping[str, tuple[int, ...]], name: str) -> int:
    return next(
        examples[spec.name][axis]
        for spec in signature.inputs
        for axis, dim in enumerate(spec.shape)
        if dim == name
    )


def _name(pick: Mapping[str, int]) -> str:
    return "len_" + "_".join(str(size) for size in pick.values())
