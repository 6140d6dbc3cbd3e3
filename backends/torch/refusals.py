"""What `torch.export` says when it refuses a module: in one line, with something to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from edgeserve.backends.torch.blame import line_of_error, one_line
from edgeserve.backends.torch.places import Place, module_of_error
from edgeserve.errors import ConvertError

__all__ = ["refusal"]

_CONSTRAINT = re.compile(r"^\s*- (.+)$", re.MULTILINE)
_SPECIALIZED = re.compile(r"You marked (.+) as dynamic but .*constant \((\d+)\)")
_SUGGESTED = re.compile(r"Suggested fixes:\n((?:[ \t]+\S.*\n?)+)")
_OPERATOR = re.compile(r"aten\.\w+")
#: Ends of what `Place.module` says of torch's recurrent layers.
_RECURRENT = tuple(f"({kind})" for kind in ("RNN", "LSTM", "GRU"))
_OUT_OF_RANGE = re.compile(r"\d+ not in range \[\S+, \S+\]")


def refusal(
    error: Exception, folder: Path, module: torch.nn.Module, places: Mapping[int, Place]
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
            got=_broken(text, places),
            hint=_dimension_hint(text, places),
            source_line=where or _fixed_at(text, places),
        )
    by_values = "data-dependent" in text or "data dependent" in text
    if by_values or type(error).__name__ == "DataDependentOutputException":
        return ConvertError(
            "EDGE-CONVERT-014",
            _forward(error, module),
            wanted="the same path for every input",
            got=_choice(error),
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


def _choice(error: Exception) -> str:
    """What depends on values: the operator, where torch names one alone."""
    named = _OPERATOR.match(str(error))
    by = f" ({named[0]})" if named else ""
    return f"a choice that depends on the values of a tensor{by}"


def _forward(error: Exception, module: torch.nn.Module) -> str:
    """Whose forward it is, where that is known."""
    owner = module_of_error(error, module)
    return f"forward of {owner}" if owner else "forward"


def _fixed_at(text: str, places: Mapping[int, Place]) -> str | None:
    """The user's line that fixed the first of the dimensions that cannot vary."""
    found = _named_in(text, places)
    return found[0].line if found else None


def _named_in(text: str, places: Mapping[int, Place]) -> list[Place]:
    """Where the dimensions that the text calls constant were fixed, as far as that is known."""
    return [places[int(size)] for _, size in _SPECIALIZED.findall(text) if int(size) in places]


def _constraint(line: str, places: Mapping[int, Place]) -> str:
    """One constraint, shorter than torch says it; with the module that fixes a dimension."""
    fixed = _SPECIALIZED.match(line)
    if not fixed:
        return line.split(". If you're using")[0].rstrip(".")
    place = places.get(int(fixed[2]))
    where = f" in {place.module}" if place else ""
    return f"{fixed[1]} can only be {fixed[2]}: it is fixed{where}"


def _broken(text: str, places: Mapping[int, Place]) -> str:
    """The constraints that do not hold, joined in one line; each once."""
    lines = _CONSTRAINT.findall(text)
    found = list(dict.fromkeys(_constraint(line, places) for line in lines))
    if not found:
        return text.splitlines()[0]
    more = f" (and {len(found) - 2} more)" if len(found) > 2 else ""
    return "; ".join(found[:2]) + more


def _dimension_hint(text: str, places: Mapping[int, Place]) -> str:
    suggested = _SUGGESTED.search(text)
    if suggested:
        fixes = ", ".join(line.strip() for line in suggested[1].splitlines() if line.strip())
        steps = any(place.module.endswith(_RECURRENT) for place in _named_in(text, places))
        why = "; torch writes out each step of a recurrent layer, so its length is fixed"
        return (
            f"in dynamic_shapes, as torch suggests: {fixes} (a number means: leave that axis fixed)"
            + (why if steps else "")
        )
    return "give the dimension a narrower range, (name, low, high), or leave that axis fixed"
