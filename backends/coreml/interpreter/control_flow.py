"""Branches, loops and selection; lists of tensors; and state that outlives a run (iOS 18).

A list is a value: writing gives a new one and leaves the old as it was. A state is a tensor that
a program reads and replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel, register_functions
from edgeserve.backends.coreml.interpreter.values import Bool, Int, held_as, integer, ints, truth
from edgeserve.errors import MilError

#: After this many turns a loop is taken for one that never ends.
MAX_TURNS = 1_000_000


register_functions(
    {
        # Run the first block if ``pred`` is true, else the second.
        "cond": lambda pred, run_block: tuple(run_block(0 if truth(pred) else 1)),
        # ``a`` where the condition is true, else ``b``; the three are broadcast.
        "select": lambda cond, a, b: torch.where(cond, a, b),
        # How many elements the list has now.
        "list_length": lambda ls: torch.tensor(len(ls.items), dtype=torch.int32),
        # One element.
        "list_read": lambda ls, index: ls.read(integer(index)),
        # A list with one element replaced; one that grows gets longer for an index behind its end.
        "list_write": lambda ls, index, value: ls.written([integer(index)], [value]),
        # Several elements as one tensor, along a new first axis.
        "list_gather": lambda ls, indices: torch.stack([ls.read(index) for index in ints(indices)]),
        # A list with several elements replaced by the slices of a tensor.
        "list_scatter": lambda ls, indices, value: ls.written(ints(indices), value.unbind(0)),
        # The tensor that the state holds now; later updates do not change what was read.
        "read_state": lambda input: input.value,
    }
)


@kernel("while_loop")
def while_loop(loop_vars: list[Any], run_block: Callable[..., list[Any]]) -> tuple[Any, ...]:
    """Run the second block on its own results while the first says true."""
    for _ in range(MAX_TURNS):
        (going,) = run_block(0, *loop_vars)
        if not truth(going):
            return tuple(loop_vars)
        loop_vars = run_block(1, *loop_vars)
    wanted = f"an end within {MAX_TURNS} turns"
    hint = "check the model's stop condition; it may never hold for this input"
    raise MilError("EDGE-MIL-011", "while_loop", wanted=wanted, got="none", hint=hint)


#: The longest list; an index beyond it is taken for an error.
_MAX_LENGTH = 1 << 20


@dataclass(frozen=True)
class TensorList:
    """A list of tensors of one shape.

    Attributes:
        items: The elements; None where nothing was written yet, which reads as zeros.
        shape: Shape of an element; a name stands for a size that the first element decides.
        dtype: Type of an element.
        grows: Whether writing behind the end makes the list longer.
    """

    items: tuple[Tensor | None, ...]
    shape: tuple[int | str, ...]
    dtype: torch.dtype
    grows: bool

    def read(self, index: int) -> Tensor:
        """One element."""
        if not 0 <= index < len(self.items):
            raise IndexError(f"index {index} in a list of {len(self.items)}")
        item = self.items[index]
        return self._zeros() if item is None else item

    def written(self, places: Sequence[int], values: Sequence[Tensor]) -> TensorList:
        """A list with some elements replaced."""
        end = max(len(self.items), *(place + 1 for place in places)) if places else 0
        if min(places, default=0) < 0 or end > (_MAX_LENGTH if self.grows else len(self.items)):
            raise IndexError(f"indices {list(places)[:8]} in a list of {len(self.items)}")
        items = [*self.items, *(None,) * (end - len(self.items))]
        for place, value in zip(places, values, strict=True):
            items[place] = value
        return replace(self, items=tuple(items))

    def _zeros(self) -> Tensor:
        known = next((item for item in self.items if item is not None), None)
        if known is not None:
            return torch.zeros_like(known)
        sizes = [size for size in self.shape if isinstance(size, int)]
        if len(sizes) != len(self.shape):
            raise ValueError(f"reads an element of unknown shape {list(self.shape)}")
        return torch.zeros(sizes, dtype=self.dtype)


@kernel("make_list")
def make_list(
    elem_shape: list[Any], init_length: Int = 1, dynamic_length: Bool = True, dtype: str = "fp32"
) -> TensorList:
    """A list of ``init_length`` elements that nobody has written yet."""
    from coremltools.converters.mil.mil import types

    length = integer(init_length)
    if not 0 <= length <= _MAX_LENGTH:
        raise ValueError(f"a list of {length}")
    shape = [size if isinstance(size, str) else integer(size) for size in elem_shape]
    held = held_as(types.string_to_builtin(dtype)) or torch.float32
    return TensorList((None,) * length, tuple(shape), held, truth(dynamic_length))


@dataclass(slots=True)
class StateTensor:
    """One state tensor."""

    value: Tensor


@dataclass(frozen=True)
class State:
    """The state tensors of one conversation with a model, by name."""

    cells: dict[str, StateTensor] = field(default_factory=dict)


@kernel("coreml_update_state")
def coreml_update_state(state: StateTensor, value: Tensor) -> Tensor:
    """Replace the state's tensor by ``value``, and give it."""
    state.value = value.clone()
    return state.value
