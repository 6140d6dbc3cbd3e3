"""Why the ONNX converter refused: the op, the user's own line, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.backends.torch.advice import hint
from edgeserve.backends.torch.blame import chain_of, line_of_text, one_line
from edgeserve.backends.torch.culprit import Culprit, checks_itself
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["refusal"]

_NO_TRANSLATION = ("No ONNX function found", "No decompositions registered")


def refusal(
    error: Exception, program: ExportedProgram, traces: Mapping[str, str], folder: Path
) -> EdgeError:
    """The coded error for an exception of ``torch.onnx.export``.

    Args:
        error: As caught.
        program: What was converted; the stack trace of each node is the name of a source op.
        traces: The real stack traces, by source op.
        folder: The user's folder.

    Returns:
        EDGE-OP-001 or EDGE-OP-002 where an op is to blame, else EDGE-CONVERT-020.
    """
    chain = list(chain_of(error))
    source = _source(chain, traces)
    if source is None and "token" in str(chain[-1]).lower():
        source = checks_itself((n.name, str(n.target)) for n in program.graph.nodes)
    if source is None:
        return ConvertError(
            "EDGE-CONVERT-020",
            "torch.onnx.export",
            wanted="a model",
            got=one_line(chain[-1]),
            hint="the job's log holds the converter's whole message; --bisect finds the part",
        )
    return _op(_culprit(source, program, traces, folder), chain)


def _op(found: Culprit, chain: list[BaseException]) -> UnsupportedOp:
    if any(words in str(part) for part in chain for words in _NO_TRANSLATION):
        return UnsupportedOp(
            "EDGE-OP-001",
            found.thing,
            wanted="an op that ONNX can express",
            got="one without a translation",
            source_line=found.line,
            hint=hint(
                found.operator,
                "onnx",
                "write that line with other operators, or do that step outside the model",
            ),
        )
    return UnsupportedOp(
        "EDGE-OP-002",
        found.thing,
        wanted="a use of it that ONNX can express",
        got=one_line(chain[-1]),
        source_line=found.line,
        hint=hint(
            found.operator,
            "onnx",
            "write that line in another way: other arguments, fixed sizes, or simpler operators",
        ),
    )


def _culprit(
    source: str, program: ExportedProgram, traces: Mapping[str, str], folder: Path
) -> Culprit:
    from edgeserve.backends.torch.inspect import module_path

    node = next(node for node in program.graph.nodes if node.name == source)
    return Culprit(str(node.target), module_path(node), line_of_text(traces[source], folder))


def _source(chain: list[BaseException], traces: Mapping[str, str]) -> str | None:
    """The source op being converted: the converter's frames hold the fx node they worked on."""
    found = None
    for error in chain:
        trace = error.__traceback__
        while trace is not None:
            for name in ("node", "n"):
                meta = getattr(trace.tb_frame.f_locals.get(name), "meta", None)
                source = meta.get("stack_trace") if isinstance(meta, dict) else None
                if source in traces:
                    found = str(source)
            trace = trace.tb_next
        if found is not None and traces.get(found):
            return found
    return found
