"""State: tensors that a program reads and replaces, and that outlive a run (iOS 18)."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel

__all__ = ["Cell", "State", "coreml_update_state", "read_state"]


@dataclass(slots=True)
class Cell:
    """One state tensor."""

    value: Tensor


@dataclass(frozen=True)
class State:
    """The state tensors of one conversation with a model, by name."""

    cells: dict[str, Cell] = field(default_factory=dict)


@kernel("read_state")
def read_state(input: Cell) -> Tensor:
    """The tensor that the state holds now; later updates do not change what was read."""
    return input.value


@kernel("coreml_update_state")
def coreml_update_state(state: Cell, value: Tensor) -> Tensor:
    """Replace the state's tensor by ``value``, and give it."""
    state.value = value.clone()
    return state.value
