"""Labels of a source: none that a terminal would obey, and a word on those that say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgeserve.errors import ConvertError
from edgeserve.types.controls import control_in

__all__ = ["notes_on_labels"]


def notes_on_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """What a report should say of class names: which are equal, and which are empty.

    Both are found in sound models (ImageNet has two classes "crane"), so neither is refused.

    Raises:
        ConvertError: EDGE-CONVERT-084, one holds a control character.
    """
    for index, label in enumerate(labels):
        if (control := control_in(label)) is not None:
            raise ConvertError(
                "EDGE-CONVERT-084",
                f"label {index}",
                wanted="text that can be shown in a line",
                got=f"{label[:60]!a}, with {control}",
                hint="take it out where the labels are made: label.strip(), or splitlines()",
            )
    notes = []
    if twice := [label for label, n in Counter(labels).items() if n > 1 and label]:
        shown = ", ".join(map(repr, twice[:3])) + (", ..." if len(twice) > 3 else "")
        notes.append(f"labels that several classes share: {shown}")
    if empty := sum(not label.strip() for label in labels):
        notes.append(f"{empty} of {len(labels)} labels are empty")
    return tuple(notes)
