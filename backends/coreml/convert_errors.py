"""Coded errors for failures of coremltools: the op, the user's own line and a remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.backends.coreml.program import SourceProgram
from edgeserve.backends.torch.diagnose.unsupported_op import (
    RefusedOp,
    converter_error,
    data_dependent_error,
    find_checked_op,
    node_marks,
)
from edgeserve.errors import ConvertError, EdgeError
from edgeserve.user_lines import exception_chain, line_of_text, one_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram


_UNKNOWN = ("Unsupported fx node", "convert function for op")
_NAMED = (re.compile(r"Unsupported fx node (\S+),"), re.compile(r"Layer \"(\S+)\""))


def convert_error(
    error: Exception, program: ExportedProgram, source: SourceProgram, folder: Path
) -> EdgeError:
    """The coded error for an exception of ``coremltools.convert``.

    Args:
        error: As caught.
        program: What was converted, in core ATen.
        source: The source of ``program``.
        folder: The user's folder.

    Returns:
        EDGE-OP-020 an op without a translation, -021 one that cannot be used in this way, else
        EDGE-CONVERT-051.
    """
    chain = list(exception_chain(error))
    message = one_line(chain[-1])
    name = _source(chain, program, source)
    effect = name is None and "TOKEN" in message
    if effect:
        name = find_checked_op((n.name, str(n.target)) for n in source.program.graph.nodes)
    if name is None:
        return converter_error("EDGE-CONVERT-051", "coremltools.convert", message)
    unknown = effect or any(words in str(part) for part in chain for words in _UNKNOWN)
    return _culprit(name, source, folder).unsupported(
        ("EDGE-OP-020", "EDGE-OP-021"),
        "coreml",
        None if unknown else message,
        "other arguments, fewer axes, simpler operators",
    )


def _culprit(name: str, source: SourceProgram, folder: Path) -> RefusedOp:
    line = line_of_text(source.traces[name], folder)
    return RefusedOp(source.target(name), source.modules[name], line)


def fixed_size_error(
    error: Exception, source: SourceProgram, sizes: object, folder: Path
) -> EdgeError:
    """The coded error for a failed export of the program at fixed sizes.

    Args:
        error: As caught.
        source: The program.
        sizes: The requested sizes, for the message.
        folder: The user's folder.

    Returns:
        EDGE-OP-023 where the size of an op's result depends on values, else EDGE-CONVERT-053.
    """
    *_, name = ("", *node_marks(error))
    if data_dependent_error(exception_chain(error)) and name in source.traces:
        return _culprit(name, source, folder).data_dependent("EDGE-OP-023", "coreml")
    return ConvertError(
        "EDGE-CONVERT-053",
        f"program at {sizes}",
        got=one_line(error),
        wanted="a program that is valid for its declared ranges of sizes",
        source_line=line_of_text(source.traces[name], folder) if name in source.traces else None,
        hint="narrow dynamic_shapes to sizes that the model accepts, including batch 1",
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
        *_, name = ("", *node_marks(error))
        if name in source.traces:
            return name
    return None
