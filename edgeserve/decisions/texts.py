"""Text: the token at each position, and for speech the edits between two token sequences.

Source:
    V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals",
    Soviet Physics Doklady 10 (1966) 707-710; by rows, after R. A. Wagner, M. J. Fischer, "The
    string-to-string correction problem", J. ACM 21 (1974) 168-173.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from edgeserve.decisions.units import Kind, Rule, Units
from edgeserve.types.records import Text

__all__ = ["POSITIONS", "SPOKEN", "WordErrors", "alignment", "edits"]

_T = TypeVar("_T", int, str)
_SHOWN = 60


def edits(reference: Sequence[_T], answer: Sequence[_T]) -> int:
    """Fewest insertions, deletions and substitutions that make the answer of the reference."""
    row = list(range(len(answer) + 1))
    for i, wanted in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, got in enumerate(answer, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (wanted != got))
    return row[-1]


def alignment(reference: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Which token of the answer each of the reference's is kept as, -1 for none.

    One of the alignments with the fewest edits; of several the one that keeps tokens earliest from
    the end.
    """
    rows = [list(range(len(answer) + 1))]
    for i, wanted in enumerate(reference, 1):
        row = [i]
        for j, got in enumerate(answer, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (wanted != got)))
        rows.append(row)
    kept = [-1] * len(reference)
    i, j = len(reference), len(answer)
    while i and j:
        if reference[i - 1] == answer[j - 1] and rows[i][j] == rows[i - 1][j - 1]:
            i, j = i - 1, j - 1
            kept[i] = j
        elif rows[i][j] == rows[i - 1][j - 1] + 1:
            i, j = i - 1, j - 1
        elif rows[i][j] == rows[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return kept


def _margins(record: Text) -> Sequence[float]:
    """Margin of each token; 1 where the record does not say."""
    return record.margins or (1.0,) * len(record.tokens)


def _compare_positions(rule: Rule, reference: Text, answer: Text, sure: float) -> Units:
    """Each position of the reference; one that the answer does not have is flipped."""
    got = answer.tokens
    flips = [i >= len(got) or token != got[i] for i, token in enumerate(reference.tokens)]
    clear = [margin >= sure for margin in _margins(reference)]
    return Units(len(flips), sum(flips), sum(clear), sum(map(bool.__and__, flips, clear)))


def _compare_spoken(rule: Rule, reference: Text, answer: Text, sure: float) -> Units:
    """Edits against the reference's length: its tokens, and those that the answer adds.

    Decided: tokens that the reference is sure of, and added ones that the answer is sure of.
    """
    kept = alignment(reference.tokens, answer.tokens)
    lost = [place < 0 for place in kept]
    flips = edits(reference.tokens, answer.tokens)
    added = max(0, flips - sum(lost))  # insertions, which no token of the reference stands for
    clear = [margin >= sure for margin in _margins(reference)]
    decided_added = min(added, _added(answer, kept, sure))
    return Units(
        n=len(lost) + added,
        flips=flips,
        decided=sum(clear) + decided_added,
        decided_flips=sum(map(bool.__and__, lost, clear)) + decided_added,
        figures=_wer(reference, answer),
    )


def _added(answer: Text, kept: Sequence[int], sure: float) -> int:
    """How many tokens that the reference lacks the answer is sure of."""
    held = set(kept)
    return sum(m >= sure for j, m in enumerate(_margins(answer)) if j not in held)


def _wer(reference: Text, answer: Text) -> dict[str, float]:
    words = reference.text.split()
    return {"wer": edits(words, answer.text.split()) / len(words)} if words else {}


def _margin(rule: Rule, record: Text) -> float:
    return max(_margins(record), default=0.0)


def _gap_by(pairs: Callable[[Text, Text], list[tuple[int, int]]]) -> Callable[..., float]:
    """Largest change of a token's margin, of tokens that both have."""

    def gap(rule: Rule, reference: Text, answer: Text) -> float:
        if not (reference.margins and answer.margins):
            return 0.0
        moved = (abs(reference.margins[i] - answer.margins[j]) for i, j in pairs(reference, answer))
        return max(moved, default=0.0)

    return gap


def _by_place(reference: Text, answer: Text) -> list[tuple[int, int]]:
    both = zip(reference.tokens, answer.tokens, strict=False)
    return [(i, i) for i, (wanted, got) in enumerate(both) if wanted == got]


def _by_alignment(reference: Text, answer: Text) -> list[tuple[int, int]]:
    kept = alignment(reference.tokens, answer.tokens)
    return [(i, j) for i, j in enumerate(kept) if j >= 0]


def _describe(record: Text) -> str:
    line = " ".join(record.text.split())
    shown = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
    return f"“{shown}” ({len(record.tokens)} tokens)"


class WordErrors:
    """Word error rate of the answers against the reference's own text, over all inputs."""

    def __init__(self, rule: Rule) -> None:
        self._words = self._edits = 0

    def add(self, reference: Text, answer: Text | None) -> None:
        """Take one input in."""
        words = reference.text.split()
        self._words += len(words)
        self._edits += edits(words, answer.text.split() if answer else [])

    def value(self) -> dict[str, float]:
        """``wer``."""
        return {"wer": self._edits / self._words} if self._words else {}


POSITIONS = Kind(
    unit="tokens", compare=_compare_positions, margin=_margin, gap=_gap_by(_by_place),
    describe=_describe,
)  # fmt: skip
SPOKEN = Kind(
    unit="tokens", compare=_compare_spoken, margin=_margin, gap=_gap_by(_by_alignment),
    describe=_describe, figures=WordErrors,
)  # fmt: skip
