"""Dimensions that an export cannot leave dynamic: fixed at the example's sizes, with a note.

First all dimensions are fixed. If that works, they are made dynamic again one by one, in the order
of their declaration, and stay dynamic if the export still works: a batch stays dynamic where only
a length cannot vary.

The note names the user's line at which the module branches when a size changes. For that the
module runs at two sizes under Python's instruction tracing: the last instruction that both runs
share is the branch; if the second run raises, the size is fixed at its line.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from torch.export import Dim

from edgeserve.backends.torch.export.dynamic_shapes import Axes, min_size_examples
from edgeserve.backends.torch.export.flat_module import FlatModule, Tensors
from edgeserve.errors import ConvertError
from edgeserve.user_lines import line_of_error, user_line

#: Maximum number of recorded instructions: loops over a long input execute millions.
_MAX_INSTRUCTIONS = 200_000

#: An instruction of the user's or a package's code: file, line, offset in its function.
_Instruction = tuple[str, int, int]

_Callable = Callable[[Tensors], object]


def branch_line(call: _Callable, here: Tensors, there: Tensors, folder: Path) -> str | None:
    """The line where a run on ``there`` branches off a run on ``here``; None if it does not.

    Args:
        call: Runs the module.
        here: Inputs that it accepts.
        there: The same inputs at another size.
        folder: The user's folder.
    """
    ours, _ = _executed(call, here, folder)
    theirs, error = _executed(call, there, folder)
    before: _Instruction | None = None
    for a, b in itertools.zip_longest(ours, theirs):
        if a != b:
            break
        before = a
    else:
        return None
    if error is not None and len(theirs) <= _MAX_INSTRUCTIONS and theirs == ours[: len(theirs)]:
        return line_of_error(error, folder)
    return user_line(before[0], before[1], folder) if before else None


def _executed(
    call: _Callable, inputs: Tensors, folder: Path
) -> tuple[list[_Instruction], Exception | None]:
    """The instructions in execution order, and the exception at the end, if any."""
    seen: list[_Instruction] = []
    known: dict[str, bool] = {}

    def step(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if path not in known:
            known[path] = user_line(path, 1, folder) is not None
        if not known[path] or len(seen) >= _MAX_INSTRUCTIONS:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen.append((path, frame.f_lineno, frame.f_lasti))
        return step

    previous = sys.gettrace()
    sys.settrace(step)
    try:
        call(inputs)
    except Exception as error:  # the user's own code
        return seen, error
    finally:
        sys.settrace(previous)
    return seen, None


#: Errors of an export that a fixed size may avoid: forward rejects a declared size, a dimension
#: cannot vary, a branch by size that torch takes for one by value, a line that it cannot trace,
#: another branch at another size.
_FIXABLE = tuple(f"EDGE-CONVERT-{number}" for number in ("012", "013", "014", "015", "017"))

#: Those whose hint says how the dimension could stay dynamic.
_HINTED = ("EDGE-CONVERT-012", "EDGE-CONVERT-013")

#: The note's advice for a failure instead.
DYNAMIC_HINT = "--shapes dynamic fails instead"

#: Maximum number of dimensions that are made dynamic again.
_MAX_TRIES = 6

#: Changes of a size that are probed to find the line that fixes it.
_SIZE_STEPS = (1, -1)

Made = TypeVar("Made")


@dataclass(frozen=True)
class DeclaredDims:
    """The declared dynamic dimensions.

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
        """The inputs and axes of each dimension, in order."""
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


def relax_dynamic_dims(
    attempt: Callable[[tuple[Axes, ...]], Made], declared: DeclaredDims, refused: ConvertError
) -> tuple[Made, tuple[Axes, ...], list[str]]:
    """Export with as many of the declared dimensions as can stay open.

    Args:
        attempt: Exports with these axes open, and checks the result.
        declared: The declared dimensions.
        refused: The error of the export with all of them dynamic.

    Returns:
        The result of ``attempt``, its dynamic axes, and a note for each fixed dimension.

    Raises:
        ConvertError: ``refused``, where a fixed size does not help or is none that was declared.
    """
    if refused.code not in _FIXABLE or not _can_fix(declared):
        raise refused
    made = _try(attempt, declared.only(()))
    if isinstance(made, ConvertError):
        print(f"export with fixed sizes failed as well: {made}", flush=True)
        raise refused
    kept: list[str] = []
    why = dict.fromkeys(declared.places, refused)
    for dim in list(declared.places)[:_MAX_TRIES]:
        if len(kept) + 1 == len(declared.places):
            break  # all of them, which failed before
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


def _can_fix(declared: DeclaredDims) -> bool:
    """Whether there are dimensions to fix, and the examples lie in their ranges."""
    ranges = [
        dim.min <= tensor.shape[axis] <= dim.max
        for per, tensor in zip(declared.axes, declared.flat.examples, strict=True)
        for axis, dim in per.items()
        if isinstance(dim, Dim) and not hasattr(dim, "root")
    ]
    return any(declared.axes) and all(ranges)


def has_fixed_sizes(probe: Tensors, examples: Tensors, axes: Sequence[Axes]) -> bool:
    """Whether inputs have the examples' sizes in all fixed dimensions."""
    return all(
        p.dim() == e.dim() and all(p.shape[a] == e.shape[a] for a in range(e.dim()) if a not in per)
        for p, e, per in zip(probe, examples, axes, strict=True)
    )


def _note(declared: DeclaredDims, dim: str, refused: ConvertError) -> str:
    sizes = " and ".join(map(str, declared.sizes(dim)))
    line = refused.source_line or _branch_line_of(declared, dim)
    where = f" at {line}" if line else ""
    known = f"{dim} = {sizes} " in refused.hint  # torch advises exactly this
    advice = refused.hint.partition("; ")[2] if known else refused.hint
    hint = f" ({advice})" if advice and refused.code in _HINTED else ""
    return (
        f"dimension {dim!r} is fixed at {sizes}, the example's size: dynamic export"
        f" failed, {refused.code} {refused.got}{where}{hint}; {DYNAMIC_HINT}"
    )


def _branch_line_of(declared: DeclaredDims, dim: str) -> str | None:
    """The user's line that fixes a dimension: where the module branches at another size."""
    examples = declared.flat.examples
    axes = declared.only([dim])
    others = [_resized(examples, axes, by) for by in _SIZE_STEPS]
    for other in [min_size_examples(examples, axes), *others]:
        if other is None or any(0 in tensor.shape for tensor in other):
            continue
        if line := branch_line(declared.flat.call, examples, other, declared.folder):
            return line
    return None


def _resized(tensors: Tensors, axes: Sequence[Axes], by: int) -> list[torch.Tensor] | None:
    """The tensors with some axes longer or shorter by one; None if that is out of range."""
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
