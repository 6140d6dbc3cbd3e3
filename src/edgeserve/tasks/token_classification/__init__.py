"""The record of labelled spans, the step that reads it, and true spans."""

from __future__ import annotations

from typing import Literal

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.steps import TokenOutput

__all__ = ["SCHEMA", "Span", "Spans", "Tokens", "TrueSpans"]


class Span(Value, frozen=True):
    """A labelled span of characters, ``text[start:end]``."""

    start: int
    end: int
    label: str
    score: float


class Tokens(Record, frozen=True, kw_only=True, tag_field="record", tag="tokens"):
    """Labelled spans, in order of start.

    ``unsure`` lists the places [start, end) of tokens whose best label leads the second by a
    probability below 0.05; None where that is not known.
    """

    spans: tuple[Span, ...]
    unsure: tuple[tuple[int, int], ...] | None = None


class Spans(TokenOutput, frozen=True, tag_field="step", tag="spans/1"):
    """Labelled spans of characters out of scores a token.

    Attributes:
        output: Scores [tokens, labels], not yet probabilities.
        scheme: "bio": labels ``B-X`` and ``I-X``; "plain": neighbours of one label are one span.
        outside: The label of tokens that belong to no span.
        mask: Input that is 1 for tokens and 0 for padding; None: the processing knows, or every
            position counts.
    """

    output: str
    scheme: Literal["bio", "plain"] = "bio"
    outside: str = "O"
    mask: str | None = None

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """See `TaskOutput.class_names`: without B- and I-, and not the one of no span."""
        named = (self.named(label)[0] for label in labels)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def named(self, label: str) -> tuple[str | None, bool]:
        """What a token's label says: which kind of span, and whether a new one begins."""
        if label == self.outside:
            return None, False
        if self.scheme == "bio" and label[:2] in ("B-", "I-"):
            return label[2:], label[0] == "B"
        return label, False


class TrueSpans(Value, frozen=True, tag_field="truth", tag="spans"):
    """All labelled spans of a text: first character, the one after the last, and the label."""

    spans: tuple[tuple[int, int, str], ...]


SCHEMA = TaskSchema(
    Tokens, unit="spans", steps=(Spans,), truths=(TrueSpans,), reads_places=True, most_flips=0.0
)
