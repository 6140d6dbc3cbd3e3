"""Which module it was: the innermost one that ran where torch refused something or fixed a size.

Python's own frames tell it: the ``self`` of each frame that is a module of the tree.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from edgeserve.backends.torch.blame import chain_of, user_line

__all__ = ["Place", "fixed_sizes", "module_of_error", "named"]


@dataclass(frozen=True)
class Place:
    """Where a size was fixed.

    Attributes:
        module: As `named` says it.
        line: The user's ``file:line``; None where no line of theirs is known.
    """

    module: str
    line: str | None


def named(path: str, module: torch.nn.Module) -> str:
    """``encoder.rnn (GRU)``; the class alone for the module at the top."""
    kind = type(module).__name__
    return f"{path} ({kind})" if path else kind


def module_of_error(error: BaseException, root: torch.nn.Module) -> str | None:
    """The innermost module of ``root`` that ran when ``error`` was raised; None if none did."""
    for part in chain_of(error):
        frames = [frame for frame, _ in traceback.walk_tb(part.__traceback__)]
        if found := _innermost(frames, root):
            return found
    return None


def _innermost(frames: Iterable[FrameType], root: torch.nn.Module) -> str | None:
    """The last module among the frames, outermost first.

    A tracer puts proxies in the modules' places, which share their ``__dict__``.
    """
    known = {id(vars(module)): named(path, module) for path, module in root.named_modules()}
    found = None
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = known.get(id(vars(owner)), found)
    return found


@contextlib.contextmanager
def fixed_sizes(root: torch.nn.Module, folder: Path) -> Iterator[dict[int, Place]]:
    """Notes where a trace fixes a symbolic size at a number: for each number the first place.

    Torch itself says the number alone, after the trace.

    Args:
        root: The module that is traced.
        folder: The user's folder.
    """
    places: dict[int, Place] = {}
    original = ShapeEnv._set_replacement

    def note(self: ShapeEnv, a: Any, tgt: Any, msg: str) -> None:
        if getattr(tgt, "is_Integer", False) and int(tgt) not in places:
            stack = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))][::-1]
            if module := _innermost(stack, root):
                places[int(tgt)] = Place(module, _line(stack, folder))
        original(self, a, tgt, msg)

    ShapeEnv._set_replacement = note  # type: ignore[method-assign]
    try:
        yield places
    finally:
        ShapeEnv._set_replacement = original  # type: ignore[method-assign]


def _line(stack: Iterable[FrameType], folder: Path) -> str | None:
    """The innermost line of the user's that lies below a module's call."""
    line, inside = None, False
    for frame in stack:
        inside = inside or isinstance(frame.f_locals.get("self"), torch.nn.Module)
        if inside:
            line = user_line(frame.f_code.co_filename, frame.f_lineno, folder) or line
    return line
