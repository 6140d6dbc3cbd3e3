"""Coded errors for failures of `torch.export`: one line, with the module and a remedy.

The module is found in Python's own frames, whose ``self`` may be a module of the tree. The
innermost one that ran where torch raised an error or specialized a size is named.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.proxy import TracerBase

from edgeserve.errors import ConvertError
from edgeserve.user_lines import exception_chain, is_user_frame, line_of_error, one_line, user_line


@dataclass(frozen=True)
class SizeOrigin:
    """Where a size was fixed.

    Attributes:
        module: As `module_label` gives it.
        line: The user's ``file:line``; None where no line of theirs is known.
    """

    module: str
    line: str | None


def module_label(path: str, module: torch.nn.Module) -> str:
    """``encoder.rnn (GRU)``; the class alone for the module at the top."""
    kind = type(module).__name__
    return f"{path} ({kind})" if path else kind


def _module_of_error(error: BaseException, root: torch.nn.Module) -> str | None:
    """The innermost module of ``root`` that ran when ``error`` was raised; None if none did."""
    for part in exception_chain(error):
        frames = [frame for frame, _ in traceback.walk_tb(part.__traceback__)]
        if found := _innermost_module(frames, root):
            return found
    return None


def _innermost_module(frames: Iterable[FrameType], root: torch.nn.Module) -> str | None:
    """The last module among the frames, outermost first.

    A tracer puts proxies in the modules' places, which share their ``__dict__``.
    """
    known = {id(vars(module)): module_label(path, module) for path, module in root.named_modules()}
    found = None
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = known.get(id(vars(owner)), found)
    return found


@contextlib.contextmanager
def record_fixed_sizes(root: torch.nn.Module, folder: Path) -> Iterator[dict[int, SizeOrigin]]:
    """Record where a trace fixes a symbolic size: the first location for each number.

    Torch itself reports only the number, after the trace.

    Args:
        root: The module that is traced.
        folder: The user's folder.
    """
    places: dict[int, SizeOrigin] = {}
    original = ShapeEnv._set_replacement

    def note(self: ShapeEnv, a: Any, tgt: Any, msg: str) -> None:
        if getattr(tgt, "is_Integer", False) and int(tgt) not in places:
            stack = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))][::-1]
            if module := _innermost_module(stack, root):
                places[int(tgt)] = SizeOrigin(module, _innermost_line(stack, folder))
        original(self, a, tgt, msg)

    ShapeEnv._set_replacement = note  # type: ignore[method-assign]
    try:
        yield places
    finally:
        ShapeEnv._set_replacement = original  # type: ignore[method-assign]


def _innermost_line(stack: Iterable[FrameType], folder: Path) -> str | None:
    """The innermost line of the user's that lies below a module's call."""
    line, inside = None, False
    for frame in stack:
        inside = inside or isinstance(frame.f_locals.get("self"), torch.nn.Module)
        if inside:
            line = user_line(frame.f_code.co_filename, frame.f_lineno, folder) or line
    return line


_CONSTRAINT = re.compile(r"^\s*- (.+)$", re.MULTILINE)
_SPECIALIZED = re.compile(r"You marked (.+) as dynamic but .*constant \((\d+)\)")
_SUGGESTED = re.compile(r"Suggested fixes:\n((?:[ \t]+\S.*\n?)+)")
_OPERATOR = re.compile(r"aten\.\w+")
#: Endings of `SizeOrigin.module` for torch's recurrent layers.
_RECURRENT = tuple(f"({kind})" for kind in ("RNN", "LSTM", "GRU"))
_OUT_OF_RANGE = re.compile(r"\d+ not in range \[\S+, \S+\]")


def export_error(
    error: Exception, folder: Path, module: torch.nn.Module, places: Mapping[int, SizeOrigin]
) -> ConvertError:
    """The coded error for an exception of `torch.export.export`.

    Args:
        error: As torch raised it.
        folder: The user's folder.
        module: That was traced.
        places: Where its trace fixed sizes, by the size.

    Returns:
        EDGE-CONVERT-013 where a dynamic dimension cannot vary as asked, -014 where the module's
        path depends on the values of its inputs, -015 otherwise.
    """
    text = str(error)
    where = line_of_error(error, folder)
    if "Constraints violated" in text or _OUT_OF_RANGE.match(text):
        return ConvertError(
            "EDGE-CONVERT-013",
            "dynamic_shapes",
            wanted="dimensions that may take any size in their range",
            got=_violations(text, places),
            hint=_dimension_hint(text, places),
            source_line=where or next((each.line for each in _origins_in(text, places)), None),
        )
    by_values = "data-dependent" in text or "data dependent" in text
    if by_values or type(error).__name__ == "DataDependentOutputException":
        owner = _module_of_error(error, module)
        named = _OPERATOR.match(text)
        by = f" ({named[0]})" if named else ""
        return ConvertError(
            "EDGE-CONVERT-014",
            f"forward of {owner}" if owner else "forward",
            wanted="the same path for every input",
            got=f"control flow that depends on the values of a tensor{by}",
            hint="replace the `if`, .item() or torch.equal on a tensor's values by torch.where or "
            "arithmetic",
            source_line=where,
        )
    return ConvertError(
        "EDGE-CONVERT-015",
        "torch.export",
        wanted="a module it can trace",
        got=one_line(error),
        hint="make this line of forward traceable; the job's log holds torch's whole message",
        source_line=where,
    )


def _origins_in(text: str, places: Mapping[int, SizeOrigin]) -> list[SizeOrigin]:
    """The known origins of the dimensions that torch reports as constant."""
    return [places[int(size)] for _, size in _SPECIALIZED.findall(text) if int(size) in places]


def _constraint(line: str, places: Mapping[int, SizeOrigin]) -> str:
    """One constraint in short form, with the module that fixes the dimension."""
    fixed = _SPECIALIZED.match(line)
    if not fixed:
        return line.split(". If you're using")[0].rstrip(".")
    place = places.get(int(fixed[2]))
    where = f" in {place.module}" if place else ""
    return f"{fixed[1]} can only be {fixed[2]}: it is fixed{where}"


def _violations(text: str, places: Mapping[int, SizeOrigin]) -> str:
    """The violated constraints in one line, each once."""
    lines = _CONSTRAINT.findall(text)
    found = list(dict.fromkeys(_constraint(line, places) for line in lines))
    if not found:
        return text.splitlines()[0]
    more = f" (and {len(found) - 2} more)" if len(found) > 2 else ""
    return "; ".join(found[:2]) + more


def _dimension_hint(text: str, places: Mapping[int, SizeOrigin]) -> str:
    suggested = _SUGGESTED.search(text)
    if suggested:
        fixes = ", ".join(line.strip() for line in suggested[1].splitlines() if line.strip())
        steps = any(place.module.endswith(_RECURRENT) for place in _origins_in(text, places))
        why = "; torch writes out each step of a recurrent layer, so its length is fixed"
        return (
            f"in dynamic_shapes, as torch suggests: {fixes} (a number means: leave that axis fixed)"
            + (why if steps else "")
        )
    return "give the dimension a narrower range, (name, low, high), or leave that axis fixed"


@contextlib.contextmanager
def full_stack_traces() -> Iterator[None]:
    """Let torch record every user frame of each op, not only those of ``forward``.

    Otherwise an op in a function that forward calls has forward's line, not its own.
    """
    original = TracerBase._filter_traceback_frames

    def keep(self: TracerBase, user_stack_summary: Any) -> traceback.StackSummary:
        summary = user_stack_summary
        known = original(self, summary)
        start = next((i for i, f in enumerate(summary) if f.name == "forward"), len(summary))
        own = [
            frame for frame in summary[start:] if frame.name == "forward" or is_user_frame(frame)
        ]
        return traceback.StackSummary.from_list(own) if known and own else known

    TracerBase._filter_traceback_frames = keep  # type: ignore[method-assign]
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = original  # type: ignore[method-assign]
