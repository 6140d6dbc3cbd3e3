"""Why the TFLite converter refused: the op, the user's own line, and what can be done about it.

Every op of the program bears a mark in place of its stack trace (`mark`): the converter's messages
name it as a file, and its frames hold the node that it worked on.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeserve.backends.tflite.tensor_names import SourceOp
from edgeserve.backends.torch.diagnose.unsupported_op import (
    RefusedOp,
    data_dependent_error,
    find_checked_op,
    find_op_by_name,
    mask_name,
    op_hint,
)
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.user_lines import exception_chain, line_of_text, one_line

__all__ = ["ErrorTranslator"]

_MARK = re.compile(r'File "(\w+)", line 1\b|\b(\w+)"?:1:0\b')
_NO_LOWERING = "Lowering not found"
_TENSORFLOW_ONLY = re.compile(r"TF Select ops: (\w+)")
_GENERIC_HINT = "write that line with other operators, or do that step outside the model"
_REASON = re.compile(r"error: (.+)")


@dataclass(frozen=True)
class ErrorTranslator:
    """Where errors lead to.

    Attributes:
        origins: The source ops, by name.
        folder: The user's folder.
    """

    origins: Mapping[str, SourceOp]
    folder: Path

    def convert_error(self, error: Exception) -> EdgeError:
        """The coded error for an exception of the converter.

        Returns:
            EDGE-OP-010, -011 or -013 where an op is to blame, EDGE-CONVERT-042 where the program
            does not hold for the sizes, else EDGE-CONVERT-040.
        """
        chain = list(exception_chain(error))
        source = self._source(chain)
        if source is not None and data_dependent_error(chain):
            return self._sized_by_values(self._culprit(source))
        if any(_is_export_failure(part) for part in chain):
            return ConvertError(
                "EDGE-CONVERT-042",
                "program",
                got=_reason(chain),
                source_line=self.line(source),
                wanted="one that holds for one sample and each length",
                hint="narrow dynamic_shapes to sizes that the model takes, batch 1 among them",
            )
        if source is not None:
            unknown = any(_NO_LOWERING in str(part) for part in chain)
            return self._op(self._culprit(source), unknown, _reason(chain))
        if (source := self._unmarked(chain)) is not None:
            return self._op(self._culprit(source), True, "")
        return ConvertError(
            "EDGE-CONVERT-040",
            "litert_torch.convert",
            wanted="a model",
            got=_reason(chain),
            hint="the job's log holds the converter's whole message; --bisect finds the part",
        )

    def _op(self, found: RefusedOp, unknown: bool, said: str) -> UnsupportedOp:
        if unknown:
            return UnsupportedOp(
                "EDGE-OP-010",
                found.thing,
                got="one without a translation",
                wanted="an op that TFLite can express",
                source_line=found.line,
                hint=op_hint(found.operator, "tflite", _GENERIC_HINT),
            )
        return UnsupportedOp(
            "EDGE-OP-011",
            found.thing,
            got=said,
            wanted="a use of it that TFLite can express",
            source_line=found.line,
            hint=op_hint(
                found.operator,
                "tflite",
                "write that line in another way: float32, other arguments, or simpler operators",
            ),
        )

    def _sized_by_values(self, found: RefusedOp) -> UnsupportedOp:
        return UnsupportedOp(
            "EDGE-OP-013",
            found.thing,
            wanted="an op whose result has one size",
            got="a size that depends on values",
            source_line=found.line,
            hint=op_hint(
                mask_name(found.operator), "tflite", "keep the size: torch.where and masks"
            ),
        )

    def unrunnable(self, type: str, source: str | None, error: Exception) -> UnsupportedOp:
        """The coded error where the engine refuses an op of a finished file: EDGE-OP-012."""
        found = self._culprit(source) if source else RefusedOp(type)
        return UnsupportedOp(
            "EDGE-OP-012",
            found.thing,
            wanted="an op that LiteRT can run",
            got=one_line(error),
            hint=op_hint(found.operator, "tflite", _GENERIC_HINT),
            source_line=found.line,
        )

    def _culprit(self, source: str) -> RefusedOp:
        origin = self.origins.get(source)
        if origin is None:
            return RefusedOp(source)
        return RefusedOp(origin.operator, origin.module, self.line(source))

    def _unmarked(self, chain: list[BaseException]) -> str | None:
        """The source op, where the converter speaks of it in words of its own."""
        operators = [(name, origin.operator) for name, origin in self.origins.items()]
        for part in chain:
            if said := _TENSORFLOW_ONLY.search(str(part)):
                return find_op_by_name(operators, said[1])
            if "tokens" in str(part):
                return find_checked_op(operators)
        return None

    def line(self, source: str | None) -> str | None:
        """The user's line that a source op came from."""
        origin = self.origins.get(source or "")
        return line_of_text(origin.trace, self.folder) if origin else None

    def _source(self, chain: list[BaseException]) -> str | None:
        """The source op being converted: marked in a message, or held by the frames."""
        found = [name for error in chain for name in self._marked(str(error))]
        found += [name for error in chain for name in self._held(error)]
        return found[-1] if found else None

    def _marked(self, text: str) -> Iterator[str]:
        for pair in _MARK.findall(text):
            yield from (name for name in pair if name in self.origins)

    def _held(self, error: BaseException) -> Iterator[str]:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for held in ("node", "n"):
                meta = getattr(frame.f_locals.get(held), "meta", None)
                if isinstance(meta, dict):
                    yield from self._marked(str(meta.get("stack_trace") or ""))


def _is_export_failure(error: BaseException) -> bool:
    """Whether torch was exporting anew when it failed; lowering comes after."""
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "with_sizes" in names or "_export" in names


def _reason(chain: list[BaseException]) -> str:
    """What went wrong, in a line: the compiler's own word for it, else the first exception's."""
    for error in reversed(chain):
        if said := _REASON.search(str(error)):
            return said[1][:300]
    return one_line(chain[-1])
