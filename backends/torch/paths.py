"""The user's line at which a module leaves its path when a size changes.

The module is run at two sizes with Python's own tracing of instructions. The last one that both
runs share is the branch; where the second run raises, its line is where the size is fixed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from edgeserve.backends.torch.blame import line_of_error, user_line

__all__ = ["parting_line"]

#: Most instructions that are kept of a run: loops over a long input run through millions.
_MOST = 200_000

#: An instruction of the user's or a package's code: file, line, offset in its function.
_Step = tuple[str, int, int]

_Call = Callable[[Sequence[torch.Tensor]], object]


def parting_line(
    call: _Call, here: Sequence[torch.Tensor], there: Sequence[torch.Tensor], folder: Path
) -> str | None:
    """Where a run on ``there`` leaves the path of a run on ``here``; None where it does not.

    Args:
        call: Runs the module.
        here: Inputs that it answers.
        there: The same inputs at another size.
        folder: The user's folder.
    """
    ours, _ = _steps(call, here, folder)
    theirs, error = _steps(call, there, folder)
    before: _Step | None = None
    for a, b in itertools.zip_longest(ours, theirs):
        if a != b:
            break
        before = a
    else:
        return None
    if error is not None and len(theirs) <= _MOST and theirs == ours[: len(theirs)]:
        return line_of_error(error, folder)
    return user_line(before[0], before[1], folder) if before else None


def _steps(
    call: _Call, inputs: Sequence[torch.Tensor], folder: Path
) -> tuple[list[_Step], Exception | None]:
    """The instructions in the order they ran, and what was raised at the end."""
    seen: list[_Step] = []
    known: dict[str, bool] = {}

    def step(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if path not in known:
            known[path] = user_line(path, 1, folder) is not None
        if not known[path] or len(seen) >= _MOST:
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
