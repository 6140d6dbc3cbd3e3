"""What `torch.export` says when it refuses a module: in one line, with something to do about it."""

from __future__ import annotations

import re
from pathlib import Path

from edgeserve.backends.torch.blame import line_of_error, one_line
from edgeserve.errors import ConvertError

__all__ = ["refusal"]

_CONSTRAINT = re.compile(r"^\s*- (.+)$", re.MULTILINE)
_SUGGESTED = re.compile(r"Suggested fixes:\n((?:[ \t]+\S.*\n?)+)")
_OPERATOR = re.compile(r"aten\.\w+")
_OUT_OF_RANGE = re.compile(r"\d+ not in range \[\S+, \S+\]")


def refusal(error: Exception, folder: Path) -> ConvertError:
    """The coded error for an exception of `torch.export.export`.

    Returns:
        EDGE-CONVERT-013 where a dynamic dimension cannot vary as asked, -014 where the module's
        path depends on the values of its inputs, -015 otherwise.
    """
    text = str(error)
    where = line_of_error(error, folder)
    if "Constraints violated" in text or _OUT_OF_RANGE.match(text):
        return ConvertError(
            "EDGE-CONVERT-013", "dynamic_shapes",
            wanted="dimensions that may take any size in their range", got=_broken(text),
            hint=_dimension_hint(text), source_line=where,
        )  # fmt: skip
    by_values = "data-dependent" in text or "data dependent" in text
    if by_values or type(error).__name__ == "DataDependentOutputException":
        return ConvertError(
            "EDGE-CONVERT-014", "forward", wanted="the same path for every input",
            got=_choice(error),
            hint="replace the `if`, .item() or torch.equal on a tensor's values by torch.where or "
            "arithmetic",
            source_line=where,
        )  # fmt: skip
    return ConvertError(
        "EDGE-CONVERT-015", "torch.export", wanted="a module it can trace", got=one_line(error),
        hint="make this line of forward traceable; the job's log holds torch's whole message",
        source_line=where,
    )  # fmt: skip


def _choice(error: Exception) -> str:
    """What depends on values: the operator, where torch names one alone."""
    named = _OPERATOR.match(str(error))
    by = f" ({named[0]})" if named else ""
    return f"a choice that depends on the values of a tensor{by}"


def _broken(text: str) -> str:
    """The constraints that do not hold, joined in one line."""
    found = [line.split(". If you're using")[0].rstrip(".") for line in _CONSTRAINT.findall(text)]
    if not found:
        return text.splitlines()[0]
    more = f" (and {len(found) - 2} more)" if len(found) > 2 else ""
    return "; ".join(found[:2]) + more


def _dimension_hint(text: str) -> str:
    suggested = _SUGGESTED.search(text)
    if suggested:
        fixes = ", ".join(line.strip() for line in suggested[1].splitlines() if line.strip())
        return (
            f"in dynamic_shapes, as torch suggests: {fixes} (a number means: leave that axis fixed)"
        )
    return "give the dimension a narrower range, (name, low, high), or leave that axis fixed"
