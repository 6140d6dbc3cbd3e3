"""Dimensions that an export cannot leave open: fixed at the example's sizes, and said.

First everything is fixed. Where that works, the dimensions are opened again one after the other, in
the order they were declared, and those stay open with which the export works: a batch is kept where
only a length cannot vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch.export import Dim

from edgeserve.backends.torch.flat import FlatModule
from edgeserve.backends.torch.paths import parting_line
from edgeserve.backends.torch.shapes import Axes, corner
from edgeserve.errors import ConvertError

__all__ = ["INSIST", "Declared", "fits", "narrow"]

#: What a failed export says that a fixed size may answer: forward does not take a declared size, a
#: dimension cannot vary, a choice by size that torch takes for one by value, a line it cannot
#: trace, another path at another size.
_FIXABLE = tuple(f"EDGE-CONVERT-{number}" for number in ("012", "013", "014", "015", "017"))

#: Of these, the ones whose hint says how the dimension could stay open.
_HINTED = ("EDGE-CONVERT-012", "EDGE-CONVERT-013")

#: How the note tells to refuse instead.
INSIST = "--shapes dynamic refuses instead"

#: Most dimensions that are opened again.
_TRIES = 6

#: Sizes by which a dimension is moved to find the line that fixes it.
_STEPS = (1, -1)

Made = TypeVar("Made")


@dataclass(frozen=True)
class Declared:
    """What was asked for.

    Attributes:
        flat: The module with its examples.
        names: Of the inputs.
        axes: The axes that may vary, for each input.
        folder: The user's folder.
    """

    flat: FlatModule
    names: Sequence[str]
    axes: tuple[Axes, ...]
    folder: Path

    @cached_property
    def places(self) -> dict[str, list[tuple[int, int]]]:
        """For each dimension, in order, the inputs and axes where it stands."""
        found: dict[str, list[tuple[int, int]]] = {}
        for i, per in enumerate(self.axes):
            for axis, dim in per.items():
                root = getattr(dim, "root", dim)
                word = root.__name__ if isinstance(root, Dim) else f"{self.names[i]}_dim{axis}"
                found.setdefault(word, []).append((i, axis))
        return found

    def sizes(self, dim: str) -> list[int]:
        """The example's sizes of a dimension: one, if the examples agree."""
        return list(
            dict.fromkeys(self.flat.examples[i].shape[axis] for i, axis in self.places[dim])
        )

    def only(self, open_: Sequence[str]) -> tuple[Axes, ...]:
        """The axes of these dimensions alone."""
        kept = {place for dim in open_ for place in self.places[dim]}
        return tuple(
            {axis: dim for axis, dim in per.items() if (i, axis) in kept}
            for i, per in enumerate(self.axes)
        )


def narrow(
    attempt: Callable[[tuple[Axes, ...]], Made], declared: Declared, refused: ConvertError
) -> tuple[Made, tuple[Axes, ...], list[str]]:
    """Export with as many of the declared dimensions as can stay open.

    Args:
        attempt: Exports with these axes open, and checks the result.
        declared: What was asked for.
        refused: What the export said with all of them open.

    Returns:
        What ``attempt`` made, the axes that are open in it, and a note for each dimension that is
        not.

    Raises:
        ConvertError: ``refused``, where a fixed size does not help or is none that was declared.
    """
    if refused.code not in _FIXABLE or not _within(declared):
        raise refused
    made = _try(attempt, declared.only(()))
    if isinstance(made, ConvertError):
        print(f"with fixed sizes too: {made}", flush=True)
        raise refused
    kept: list[str] = []
    why = dict.fromkeys(declared.places, refused)
    for dim in list(declared.places)[:_TRIES]:
        if len(kept) + 1 == len(declared.places):
            break  # all of them, which was refused
        wider = _try(attempt, declared.only([*kept, dim]))
        if isinstance(wider, ConvertError):
            why[dim] = wider
        else:
            made, kept = wider, [*kept, dim]
    notes = [_note(declared, dim, why[dim]) for dim in declared.places if dim not in kept]
    return made, declared.only(kept), notes


def _try(
    attempt: Callable[[tuple[Axes, ...]], Made], axes: tuple[Axes, ...]
) -> Made | ConvertError:
    try:
        return attempt(axes)
    except ConvertError as error:
        return error


def _within(declared: Declared) -> bool:
    """Whether there is something to fix, at sizes that were declared."""
    ranges = [
        dim.min <= tensor.shape[axis] <= dim.max
        for per, tensor in zip(declared.axes, declared.flat.examples, strict=True)
        for axis, dim in per.items()
        if isinstance(dim, Dim) and not hasattr(dim, "root")
    ]
    return any(declared.axes) and all(ranges)


def fits(
    probe: Sequence[torch.Tensor], examples: Sequence[torch.Tensor], axes: Sequence[Axes]
) -> bool:
    """Whether inputs have the examples' sizes wherever no size may vary."""
    return all(
        p.dim() == e.dim() and all(p.shape[a] == e.shape[a] for a in range(e.dim()) if a not in per)
        for p, e, per in zip(probe, examples, axes, strict=True)
    )


def _note(declared: Declared, dim: str, refused: ConvertError) -> str:
    sizes = " and ".join(map(str, declared.sizes(dim)))
    line = refused.source_line or _line(declared, dim)
    where = f" at {line}" if line else ""
    known = f"{dim} = {sizes} " in refused.hint  # torch advises what is done here
    advice = refused.hint.partition("; ")[2] if known else refused.hint
    hint = f" ({advice})" if advice and refused.code in _HINTED else ""
    return (
        f"dimension {dim!r} is fixed at {sizes}, the example's size: exporting it dynamic was"
        f" refused, {refused.code} {refused.got}{where}{hint}; {INSIST}"
    )


def _line(declared: Declared, dim: str) -> str | None:
    """The user's line that fixes a dimension: where the module leaves its path at another size."""
    examples = declared.flat.examples
    axes = declared.only([dim])
    others = [_moved(examples, axes, by) for by in _STEPS]
    for other in [corner(examples, axes), *others]:
        if other is None or any(0 in tensor.shape for tensor in other):
            continue
        if line := parting_line(declared.flat.call, examples, other, declared.folder):
            return line
    return None


def _moved(
    tensors: Sequence[torch.Tensor], axes: Sequence[Axes], by: int
) -> list[torch.Tensor] | None:
    """The tensors with some axes longer or shorter by one place; None where that is not allowed."""
    made = []
    for tensor, per in zip(tensors, axes, strict=True):
        for axis, dim in per.items():
            size = tensor.shape[axis] + by
            if isinstance(dim, Dim) and not dim.min <= size <= dim.max:
                return None
            last = tensor.narrow(axis, tensor.shape[axis] - 1, 1)
            tensor = torch.cat([tensor, last], axis) if by > 0 else tensor.narrow(axis, 0, size)
        made.append(tensor)
    return made
