"""The record of a text, and the step that reads it."""

from __future__ import annotations

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.artifact import FileEntry
from edgeserve.types.records import Record
from edgeserve.types.steps import TokenOutput

__all__ = ["SCHEMA", "Picks", "Text"]


class Text(Record, frozen=True, kw_only=True, tag_field="record", tag="text"):
    """Token ids and the text they spell.

    ``margins`` says for each token how far it leads the second best (of probabilities); empty where
    that is not known. ``unsure`` lists, for text read by CTC, the gaps between tokens in which a
    frame might as well have put one more in, by a probability below 0.05: gap k lies before token
    k, the last one behind all. None where that is not known.
    """

    tokens: tuple[int, ...]
    text: str
    margins: tuple[float, ...] = ()
    unsure: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.margins and len(self.margins) != len(self.tokens):
            raise ValueError(f"{len(self.margins)} margins for {len(self.tokens)} tokens")


class Picks(TokenOutput, frozen=True, tag_field="step", tag="tokens/1"):
    """The best token at each position, and the text that they spell.

    Attributes:
        output: Scores [positions, vocabulary], not yet probabilities.
        blank: The blank of a CTC head: repeated tokens become one, then blanks go. None: none.
        tokenizer: A ``tokenizer.json`` that spells the text, an asset; None: labels do, else ids.
        space: The label that stands for a space.
        mask: Input that is 1 for positions that count; None: all do.
    """

    output: str
    blank: int | None = None
    tokenizer: FileEntry | None = None
    space: str = "|"
    mask: str | None = None

    def __post_init__(self) -> None:
        if self.blank is not None and self.blank < 0:
            raise ValueError(f"blank {self.blank} is below 0")


SCHEMA = TaskSchema(Text, unit="tokens", steps=(Picks,), predicts_next=True, most_flips=0.0)
