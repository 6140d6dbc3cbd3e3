"""Constants of a program that are the example inputs themselves: kept by forward, then traced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.export import ExportedProgram

from edgeserve.backends.torch.flat import FlatModule
from edgeserve.backends.torch.steady import First, remembers

__all__ = ["refuse_kept_inputs"]


def refuse_kept_inputs(
    program: ExportedProgram,
    flat: FlatModule,
    first: First,
    inputs: Sequence[Sequence[torch.Tensor]],
    folder: Path,
) -> None:
    """Refuse a program that holds an input it was traced with, or that the module was first asked.

    Args:
        program: As traced.
        flat: Its module.
        first: What the module held before it was asked at all; that may equal an input.
        inputs: The inputs that the module has been given.
        folder: The user's folder, so that an error can name the user's own line.

    Raises:
        ConvertError: EDGE-CONVERT-030.
    """
    own = [*first.state.tensors(), *flat.module.buffers()]
    for name, held in program.constants.items():
        if not isinstance(held, torch.Tensor) or not _tells(held):
            continue
        if any(_equal(held, tensor) for tensor in own):
            continue
        if any(_equal(held, tensor) for given in inputs for tensor in given):
            changed = first.state.changed()
            why = f"the program's constant {name!r} is an example input"
            raise remembers(flat, changed, why, folder)


def _tells(tensor: torch.Tensor) -> bool:
    """Whether equality with it means something: several numbers, not all the same."""
    return tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any())


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
