"""Why coremltools refused: the op, the user's own line, and what can be done about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.backends.coreml.program import SourceProgram
from edgeserve.backends.torch.diagnose.unsupported_op import (
    RefusedOp,
    data_dependent_error,
    find_checked_op,
    mask_name,
    op_hint,
)
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.user_lines import exception_chain, line_of_text, one_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["convert_error", "fixed_size_error"]

_UNKNOWN = ("Unsupported fx node", "convert function for op")
_NAMED = (re.compile(r"Unsupported fx node (\S+),"), re.compile(r"Layer \"(\S+)\""))


def convert_error(
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
    chain = list(exception_chain(error))
    said = one_line(chain[-1])
    name = _source(chain, program, source)
    effect = name is None and "TOKEN" in said
    if effect:
        name = find_checked_op((n.name, str(n.target)) for n in source.program.graph.nodes)
    if name is None:
        return ConvertError(
            "EDGE-CONVERT-051",
            "coremltools.convert",
            wanted="a model",
            got=said,
            hint="the job's log holds the converter's whole message; --bisect finds the part",
        )
    unknown = effect or any(words in str(part) for part in chain for words in _UNKNOWN)
    return _unsupported_op(_culprit(name, source, folder), unknown, said)


def _unsupported_op(found: RefusedOp, unknown: bool, said: str) -> UnsupportedOp:
    if unknown:
        return UnsupportedOp(
            "EDGE-OP-020",
            found.thing,
            wanted="an op that Core ML can express",
            got="one without a translation",
            source_line=found.line,
            hint=op_hint(
                found.operator,
                "coreml",
                "write that line with other operators, or do that step outside the model",
            ),
        )
    return UnsupportedOp(
        "EDGE-OP-021",
        found.thing,
        wanted="a use of it that Core ML can express",
        got=said,
        source_line=found.line,
        hint=op_hint(
            found.operator,
            "coreml",
            "write that line in another way: other arguments, fewer axes, simpler operators",
        ),
    )


def _culprit(name: str, source: SourceProgram, folder: Path) -> RefusedOp:
    line = line_of_text(source.traces[name], folder)
    return RefusedOp(source.target(name), source.modules[name], line)


def fixed_size_error(
    error: Exception, source: SourceProgram, sizes: object, folder: Path
) -> EdgeError:
    """The coded error where torch refuses the program at fixed sizes.

    Args:
        error: As caught.
        source: The program.
        sizes: What was asked for, to be shown.
        folder: The user's folder.

    Returns:
        EDGE-OP-023 where the size of an op's result depends on values, else EDGE-CONVERT-053.
    """
    name = _converting(error)
    if data_dependent_error(exception_chain(error)) and name in source.traces:
        found = _culprit(name, source, folder)
        return UnsupportedOp(
            "EDGE-OP-023",
            found.thing,
            wanted="an op whose result has one size",
            got="a size that depends on values",
            source_line=found.line,
            hint=op_hint(
                mask_name(found.operator), "coreml", "keep the size: torch.where and masks"
            ),
        )
    return ConvertError(
        "EDGE-CONVERT-053",
        f"program at {sizes}",
        got=one_line(error),
        wanted="a program that holds for sizes in its declared ranges",
        source_line=line_of_text(source.traces[name], folder) if name in source.traces else None,
        hint="narrow dynamic_shapes to sizes that the model takes, batch 1 among them",
    )


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
        for held in ("node", "n"):
            meta: Any = getattr(trace.tb_frame.f_locals.get(held), "meta", None)
            if isinstance(meta, dict) and isinstance(meta.get("stack_trace"), str):
                found = meta["stack_trace"]
        trace = trace.tb_next
    return found
