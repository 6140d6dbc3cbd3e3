"""Ways of computing attention, in the order they are tried.

transformers writes a network's attention down in several ways that answer the same. Which of them a
network has, and which of them can be exported, only trying tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from edgeserve.convert.factory import Made
from edgeserve.errors import ConvertError

__all__ = ["ATTENTION", "attention_of", "first_attention"]

#: In this order: ``sdpa`` is one operation of PyTorch and makes the smaller graph, ``eager`` spells
#: it out; some networks have the second one only.
ATTENTION = ("sdpa", "eager")

#: Refusals of an export that another attention may get over.
_REFUSED = ("EDGE-CONVERT-013", "EDGE-CONVERT-014", "EDGE-CONVERT-015", "EDGE-CONVERT-017")

Shapes = Literal["auto", "dynamic"]
Result = TypeVar("Result")


def attention_of(made: Made) -> str:
    """How a loaded network computes attention; empty where it does not say."""
    word = getattr(getattr(made.module, "config", None), "_attn_implementation", None)
    return word if isinstance(word, str) else ""


def first_attention(
    load: Callable[[Sequence[str]], Made], export: Callable[[Made, Shapes], Result], shapes: Shapes
) -> Result:
    """Export by the first attention with which that works; the log tells how each of them went.

    All are tried with the sizes that may vary left open before any is tried with sizes fixed.

    Args:
        load: Loads the network with the first of these that it has.
        export: Exports it; with "auto" what cannot vary is fixed.
        shapes: "dynamic": nothing may be fixed.

    Raises:
        ConvertError: what the first one said, if none works.
    """
    first: ConvertError | None = None
    sizes: tuple[Shapes, ...] = ("dynamic",) if shapes == "dynamic" else ("dynamic", "auto")
    for wish in sizes:
        left: Sequence[str] = ATTENTION
        while left:
            made = load(left)
            used = attention_of(made)
            try:
                result = export(_noted(made, used, first), wish)
            except ConvertError as error:
                if error.code not in _REFUSED:
                    raise
                print(f"attention {used!r} with {wish} sizes failed: {error}", flush=True)
                first = first or error
                left = left[left.index(used) + 1 :] if used in left else ()
                continue
            print(f"attention {used!r} with {wish} sizes worked", flush=True)
            return result
    assert first is not None  # there is at least one attention
    raise first


def _noted(made: Made, used: str, first: ConvertError | None) -> Made:
    """With a note where it is not the first choice."""
    if used not in ATTENTION[1:]:
        return made
    why = f"{first.code} {first.got}" if first else "the network has no other"
    note = f"attention is computed by {used!r}, not by {ATTENTION[0]!r}: {why}"
    return dataclasses.replace(made, notes=(*made.notes, note))
