"""Why coremltools refused: the op, the user's own line, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.backends.coreml.program import SourceProgram
from edgeserve.backends.torch.blame import line_of_text, one_line
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["refusal"]

_UNKNOWN = ("Unsupported fx node", "convert function for op")
_NAMED = (re.compile(r"Unsupported fx node (\S+),"), re.compile(r"Layer \"(\S+)\""))


def refusal(
    error: Exception, program: ExportedProgram, source: SourceProgram, folder: Path
) -> EdgeError:
    """The coded error for an exception of ``coremltools.convert``.

    Args:
        error: As caught.
        program: What was converted, in core ATen.
        source: What that was made from.
        folder: The user's folder.

    Returns:
        EDGE-OP-020 an op without a translation, -021 one that cannot be used in this way, else
        EDGE-CONVERT-051.
    """
    chain = list(_chain(error))
    said = one_line(chain[-1])
    name = _source(chain, program, source)
    if name is None:
        return ConvertError(
            "EDGE-CONVERT-051", "coremltools.convert", wanted="a model", got=said,
            hint="the job's log holds the converter's whole message",
        )  # fmt: skip
    where = line_of_text(source.traces[name], folder)
    if any(words in str(part) for part in chain for words in _UNKNOWN):
        return UnsupportedOp(
            "EDGE-OP-020", f"op {source.target(name)}", wanted="an op that Core ML can express",
            got="one without a translation",
            hint="write that line with other operators, or do that step outside the model",
            source_line=where,
        )  # fmt: skip
    return UnsupportedOp(
        "EDGE-OP-021", f"op {source.target(name)}", wanted="a use of it that Core ML can express",
        got=said, source_line=where,
        hint="write that line in another way: other arguments, fewer axes, simpler operators",
    )  # fmt: skip


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _source(
    chain: list[BaseException], program: ExportedProgram, source: SourceProgram
) -> str | None:
    """The source op at fault: named in the message, or the node that was being converted."""
    traces = {node.name: str(node.meta.get("stack_trace")) for node in program.graph.nodes}
    for error in chain:
        for pattern in _NAMED:
            found = pattern.search(str(error))
            if found and (name := traces.get(found[1])) in source.traces:
                return name
        if (name := _converting(error)) in source.traces:
            return name
    return None


def _converting(error: BaseException) -> str | None:
    """The mark of the innermost node that a frame of the converter worked on."""
    found, trace = None, error.__traceback__
    while trace is not None:
        meta: Any = getattr(trace.tb_frame.f_locals.get("node"), "meta", None)
        if isinstance(meta, dict) and isinstance(meta.get("stack_trace"), str):
            found = meta["stack_trace"]
        trace = trace.tb_next
    return found
