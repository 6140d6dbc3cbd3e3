"""Coded errors for failures of the TFLite converter: the op, the user's own line and a remedy.

Every op of the program has a tag instead of its stack trace (`tag_sources`): the converter's
messages name it as a file, and its frames hold the node that it worked on.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeserve.backends.tflite.tensor_names import SourceOp
from edgeserve.backends.torch.diagnose.unsupported_op import (
    REWRITE_HINT,
    RefusedOp,
    converter_error,
    data_dependent_error,
    find_checked_op,
    find_op_by_name,
    node_marks,
    op_hint,
)
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.user_lines import exception_chain, line_of_text, one_line

_MARK = re.compile(r'File "(\w+)", line 1\b|\b(\w+)"?:1:0\b')
_NO_LOWERING = "Lowering not found"
_TENSORFLOW_ONLY = re.compile(r"TF Select ops: (\w+)")
_REASON = re.compile(r"error: (.+)")


@dataclass(frozen=True)
class ErrorTranslator:
    """Translates exceptions of the converter and the engine.

    Attributes:
        origins: The source ops, by name.
        folder: The user's folder.
    """

    origins: Mapping[str, SourceOp]
    folder: Path

    def convert_error(self, error: Exception) -> EdgeError:
        """The coded error for an exception of the converter.

        Returns:
            EDGE-OP-010, -011 or -013 where an op is the cause, EDGE-CONVERT-042 where the program
            is not valid for the sizes, else EDGE-CONVERT-040.
        """
        chain = list(exception_chain(error))
        source = self._source(chain)
        if source is not None and data_dependent_error(chain):
            return self._culprit(source).data_dependent("EDGE-OP-013", "tflite")
        if any(_is_export_failure(part) for part in chain):
            return ConvertError(
                "EDGE-CONVERT-042",
                "program",
                got=_reason(chain),
                source_line=self.line(source),
                wanted="a program that is valid for one sample and each length",
                hint="narrow dynamic_shapes to sizes that the model accepts, including batch 1",
            )
        if source is not None:
            unknown = any(_NO_LOWERING in str(part) for part in chain)
            return self._unsupported(source, None if unknown else _reason(chain))
        if (source := self._unmarked(chain)) is not None:
            return self._unsupported(source, None)
        return converter_error("EDGE-CONVERT-040", "litert_torch.convert", _reason(chain))

    def _unsupported(self, source: str, reason: str | None) -> UnsupportedOp:
        codes = ("EDGE-OP-010", "EDGE-OP-011")
        others = "float32, other arguments, or simpler operators"
        return self._culprit(source).unsupported(codes, "tflite", reason, others)

    def unrunnable(self, type: str, source: str | None, error: Exception) -> UnsupportedOp:
        """The error for an op that the engine does not support: EDGE-OP-012."""
        op = self._culprit(source) if source else RefusedOp(type)
        return UnsupportedOp(
            "EDGE-OP-012",
            op.thing,
            wanted="an op that LiteRT supports",
            got=one_line(error),
            hint=op_hint(op.operator, "tflite", REWRITE_HINT),
            source_line=op.line,
        )

    def _culprit(self, source: str) -> RefusedOp:
        origin = self.origins.get(source)
        if origin is None:
            return RefusedOp(source)
        return RefusedOp(origin.operator, origin.module, self.line(source))

    def _unmarked(self, chain: list[BaseException]) -> str | None:
        """The source op that the converter names by its own name for the operator."""
        operators = [(name, origin.operator) for name, origin in self.origins.items()]
        for part in chain:
            if match := _TENSORFLOW_ONLY.search(str(part)):
                return find_op_by_name(operators, match[1])
            if "tokens" in str(part):
                return find_checked_op(operators)
        return None

    def line(self, source: str | None) -> str | None:
        """The user's line that a source op came from."""
        origin = self.origins.get(source or "")
        return line_of_text(origin.trace, self.folder) if origin else None

    def _source(self, chain: list[BaseException]) -> str | None:
        """The source op being converted: tagged in a message, or held by the frames."""
        op = [name for error in chain for name in self._marked(str(error))]
        marks = [mark for error in chain for mark in node_marks(error)]
        op += [name for mark in marks for name in self._marked(mark)]
        return op[-1] if op else None

    def _marked(self, text: str) -> Iterator[str]:
        for pair in _MARK.findall(text):
            yield from (name for name in pair if name in self.origins)


def _is_export_failure(error: BaseException) -> bool:
    """Whether torch failed during an export; lowering follows later."""
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "with_sizes" in names or "_export" in names


def _reason(chain: list[BaseException]) -> str:
    """The failure in one line: the compiler's own message, else that of the first exception."""
    for error in reversed(chain):
        if match := _REASON.search(str(error)):
            return match[1][:300]
    return one_line(chain[-1])
