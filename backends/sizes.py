"""Which sizes a file is fixed to: batch 1, lengths where it can be padded, the example's else.

Some engines take fixed sizes only, or run fastest with them. Text, and what was tried to answer the
same with zeros at its end, is padded to the next length (a bucket). Nothing else may be padded:
such sizes are left open where the format holds ranges, else fixed at the example's.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from edgeserve.types.processing import Processing
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Shape, Signature

_MIN_LENGTH = 16
#: What stands for "no upper end".
_UNBOUNDED = 2**31 - 1
#: Most buckets of what is no text: each costs the time of a conversion.
_MAX_BUCKETS = 6


@dataclass(frozen=True)
class Sizes:
    """One signature of a file.

    Attributes:
        name: What the file calls it ("len_16"); None where the file has only this one.
        dims: The size of each dynamic dimension, by name; of one that stays open its usual size.
        ranges: Those that stay open, smallest and largest size.
    """

    name: str | None
    dims: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def of(self, shape: Shape) -> tuple[int, ...]:
        """A shape of the source's signature with these sizes."""
        return tuple(dim if isinstance(dim, int) else self.dims[dim] for dim in shape)


def plan_sizes(
    exported: Exported, examples: Mapping[str, tuple[int, ...]], *, ranged: bool = False
) -> tuple[tuple[Sizes, ...], tuple[str, ...]]:
    """The sizes to make, smallest first, and a line for each dimension that loses its freedom.

    Args:
        exported: The source: its signature, and which inputs its processing pads.
        examples: Shapes of the example inputs, by name.
        ranged: Leave dimensions open that are neither the batch nor a text's, where none is a
            text's and they end somewhere: for formats that hold ranges.
    """
    signature = exported.signature
    texts = _padded(signature, exported.processing)
    if ranged and not texts:
        return _ranged(signature, examples), ()
    lengths = {name: _lengths(*texts[name]) for name in texts}
    for name in signature.padded:
        lengths.setdefault(name, _lengths(*signature.dims[name])[-_MAX_BUCKETS:])
    fixed, notes = _fixed(signature, examples, lengths)
    count = max(map(len, lengths.values()), default=1)
    picks = [
        {name: sizes[min(i, len(sizes) - 1)] for name, sizes in lengths.items()}
        for i in range(count)
    ]
    names = ["len_" + "_".join(map(str, pick.values())) if count > 1 else None for pick in picks]
    return tuple(Sizes(n, fixed | p) for n, p in zip(names, picks, strict=True)), tuple(notes)


def _fixed(
    signature: Signature, examples: Mapping[str, tuple[int, ...]], free: Container[str]
) -> tuple[dict[str, int], list[str]]:
    """One size for each dimension that is not ``free``, and a line for each that loses by it."""
    fixed, notes = {}, []
    for name, (low, _) in signature.dims.items():
        if name == signature.batch_dim:
            fixed[name] = max(1, low)
        elif name not in free:
            fixed[name] = _example_size(signature, examples, name)
            notes.append(f"dimension {name!r} is fixed at {fixed[name]}, as in the example inputs")
    return fixed, notes


def _ranged(signature: Signature, examples: Mapping[str, tuple[int, ...]]) -> tuple[Sizes, ...]:
    """One signature with ranges: batch and endless dimensions are fixed, the others are not."""
    fixed, _ = _fixed(signature, examples, ())
    ranges = {
        name: (max(1, low), high)
        for name, (low, high) in signature.dims.items()
        if name != signature.batch_dim and low < high < _UNBOUNDED
    }
    return (Sizes(None, fixed, ranges),)


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
    return (*(n for n in powers if max(_MIN_LENGTH, low) <= n < high), high)


def _example_size(signature: Signature, examples: Mapping[str, tuple[int, ...]], name: str) -> int:
    return next(
        examples[spec.name][axis]
        for spec in signature.inputs
        for axis, dim in enumerate(spec.shape)
        if dim == name
    )
