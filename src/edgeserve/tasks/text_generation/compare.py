"""Texts compared: the token at each position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison
from edgeserve.tasks.text_generation import Text

__all__ = ["COMPARISON", "describe_text", "largest_change", "margins_of", "surest"]


_SHOWN = 60


def margins_of(record: Text) -> Sequence[float]:
    """Margin of each token; 1 where the record does not say."""
    return record.margins or (1.0,) * len(record.tokens)


def _compare(rule: DecisionRule, reference: Text, answer: Text, sure: float) -> DecisionCounts:
    """Each position of the reference; one that the answer does not have is flipped."""
    got = answer.tokens
    flips = [i >= len(got) or token != got[i] for i, token in enumerate(reference.tokens)]
    clear = [margin >= sure for margin in margins_of(reference)]
    return DecisionCounts(len(flips), sum(flips), sum(clear), sum(map(bool.__and__, flips, clear)))


def surest(rule: DecisionRule, record: Text) -> float:
    return max(margins_of(record), default=0.0)


def largest_change(pairs: Callable[[Text, Text], list[tuple[int, int]]]) -> Callable[..., float]:
    """Largest change of a token's margin, of tokens that both have."""

    def gap(rule: DecisionRule, reference: Text, answer: Text) -> float:
        if not (reference.margins and answer.margins):
            return 0.0
        moved = (abs(reference.margins[i] - answer.margins[j]) for i, j in pairs(reference, answer))
        return max(moved, default=0.0)

    return gap


def _by_position(reference: Text, answer: Text) -> list[tuple[int, int]]:
    both = zip(reference.tokens, answer.tokens, strict=False)
    return [(i, i) for i, (wanted, got) in enumerate(both) if wanted == got]


def describe_text(record: Text) -> str:
    line = " ".join(record.text.split())
    shown = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
    return f"“{shown}” ({len(record.tokens)} tokens)"


COMPARISON = RecordComparison(
    compare=_compare, margin=surest, gap=largest_change(_by_position), describe=describe_text
)
