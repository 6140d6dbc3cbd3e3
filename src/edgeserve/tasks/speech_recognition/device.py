"""Transcripts compared: the edits between two token sequences.

Source:
    V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals",
    Soviet Physics Doklady 10 (1966) 707-710; by rows, after R. A. Wagner, M. J. Fischer, "The
    string-to-string correction problem", J. ACM 21 (1974) 168-173.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.speech_recognition import SCHEMA
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.text_generation.device import (
    describe_text,
    largest_change,
    margins_of,
    reader,
    surest,
)

__all__ = ["COMPARISON", "alignment", "edit_distance", "reader"]


_T = TypeVar("_T", int, str)


def edit_distance(reference: Sequence[_T], answer: Sequence[_T]) -> int:
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


def _compare(rule: DecisionRule, reference: Text, answer: Text, sure: float) -> DecisionCounts:
    """Edits against the reference's length: its tokens, and those that the answer adds.

    Decided: tokens that the reference is sure of, and added ones that the answer is sure of, or
    that stand where the reference is sure of nothing but its own.
    """
    kept = alignment(reference.tokens, answer.tokens)
    lost = [place < 0 for place in kept]
    clear = [margin >= sure for margin in margins_of(reference)]
    added = decided_added = 0
    for wanted, got in _between(kept, len(answer.tokens)):
        more = max(0, len(got) - len(wanted))  # no token of the reference stands for them
        decided = sum(margins_of(answer)[j] >= sure for j in got)
        quiet = more and _quiet(reference, answer, wanted, sure)
        added, decided_added = added + more, decided_added + (more if quiet else min(more, decided))
    figures = _wer(reference, answer)
    return count_flips(lost, clear, figures, extra=added, clear_extra=decided_added)


def _between(kept: Sequence[int], count: int) -> Iterator[tuple[range, range]]:
    """What lies between tokens that are kept: places in the reference, and in the answer."""
    i = j = 0
    for place, other in [*enumerate(kept), (len(kept), count)]:
        if other >= 0:
            yield range(i, place), range(j, other)
            i, j = place + 1, other + 1


def _quiet(reference: Text, answer: Text, wanted: range, sure: float) -> bool:
    """Whether the reference is sure that nothing more stands there than these tokens of its own.

    Read by CTC, its record tells in which gaps it is not. Where there is a token at each position,
    as many on both sides, it is sure of what stands where the first one is put in.
    """
    margins = margins_of(reference)
    if any(margins[i] < sure for i in wanted):
        return False
    gaps = range(wanted.start, wanted.stop + 1)
    if reference.unsure is not None:
        return sure <= SCHEMA.sure and not set(gaps) & set(reference.unsure)
    at_positions = answer.unsure is None and len(reference.tokens) == len(answer.tokens)
    return at_positions and wanted.stop < len(margins) and margins[wanted.stop] >= sure


def _wer(reference: Text, answer: Text) -> dict[str, float]:
    words = reference.text.split()
    return {"wer": edit_distance(words, answer.text.split()) / len(words)} if words else {}


def _by_alignment(reference: Text, answer: Text) -> list[tuple[int, int]]:
    kept = alignment(reference.tokens, answer.tokens)
    return [(i, j) for i, j in enumerate(kept) if j >= 0]


COMPARISON = RecordComparison(
    compare=_compare, margin=surest, gap=largest_change(_by_alignment), describe=describe_text
)
