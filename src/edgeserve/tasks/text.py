"""Text: the token at each position, and for speech the edits between two token sequences.

Source:
    V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals",
    Soviet Physics Doklady 10 (1966) 707-710; by rows, after R. A. Wagner, M. J. Fischer, "The
    string-to-string correction problem", J. ACM 21 (1974) 168-173.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from edgeserve.tasks.base import DECIDED_MARGIN, DecisionCounts, DecisionRule, TaskSpec
from edgeserve.types.records import Text

__all__ = [
    "SPEECH_RECOGNITION",
    "TEXT_GENERATION",
    "TokenAgreement",
    "WordErrorRate",
    "alignment",
    "edit_distance",
]

_T = TypeVar("_T", int, str)
_SHOWN = 60


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


def _margins(record: Text) -> Sequence[float]:
    """Margin of each token; 1 where the record does not say."""
    return record.margins or (1.0,) * len(record.tokens)


def _compare_positions(
    rule: DecisionRule, reference: Text, answer: Text, sure: float
) -> DecisionCounts:
    """Each position of the reference; one that the answer does not have is flipped."""
    got = answer.tokens
    flips = [i >= len(got) or token != got[i] for i, token in enumerate(reference.tokens)]
    clear = [margin >= sure for margin in _margins(reference)]
    return DecisionCounts(len(flips), sum(flips), sum(clear), sum(map(bool.__and__, flips, clear)))


def _compare_speech(
    rule: DecisionRule, reference: Text, answer: Text, sure: float
) -> DecisionCounts:
    """Edits against the reference's length: its tokens, and those that the answer adds.

    Decided: tokens that the reference is sure of, and added ones that the answer is sure of, or
    that stand where the reference is sure of nothing but its own.
    """
    kept = alignment(reference.tokens, answer.tokens)
    lost = [place < 0 for place in kept]
    clear = [margin >= sure for margin in _margins(reference)]
    added = decided_added = 0
    for wanted, got in _between(kept, len(answer.tokens)):
        more = max(0, len(got) - len(wanted))  # no token of the reference stands for them
        told = sum(_margins(answer)[j] >= sure for j in got)
        quiet = more and _quiet(reference, answer, wanted, sure)
        added, decided_added = added + more, decided_added + (more if quiet else min(more, told))
    return DecisionCounts(
        n=len(lost) + added,
        flips=sum(lost) + added,
        decided=sum(clear) + decided_added,
        decided_flips=sum(map(bool.__and__, lost, clear)) + decided_added,
        figures=_wer(reference, answer),
    )


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
    margins = _margins(reference)
    if any(margins[i] < sure for i in wanted):
        return False
    gaps = range(wanted.start, wanted.stop + 1)
    if reference.unsure is not None:
        return sure <= DECIDED_MARGIN["automatic-speech-recognition"] and not set(gaps) & set(
            reference.unsure
        )
    at_positions = answer.unsure is None and len(reference.tokens) == len(answer.tokens)
    return at_positions and wanted.stop < len(margins) and margins[wanted.stop] >= sure


def _wer(reference: Text, answer: Text) -> dict[str, float]:
    words = reference.text.split()
    return {"wer": edit_distance(words, answer.text.split()) / len(words)} if words else {}


def _margin(rule: DecisionRule, record: Text) -> float:
    return max(_margins(record), default=0.0)


def _gap_by(pairs: Callable[[Text, Text], list[tuple[int, int]]]) -> Callable[..., float]:
    """Largest change of a token's margin, of tokens that both have."""

    def gap(rule: DecisionRule, reference: Text, answer: Text) -> float:
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


class WordErrorRate:
    """Word error rate of the answers against the reference's own text, over all inputs."""

    def __init__(self, rule: DecisionRule) -> None:
        self._words = self._edits = 0

    def add(self, reference: Text, answer: Text | None) -> None:
        """Take one input in."""
        words = reference.text.split()
        self._words += len(words)
        self._edits += edit_distance(words, answer.text.split() if answer else [])

    def value(self) -> dict[str, float]:
        """``wer``."""
        return {"wer": self._edits / self._words} if self._words else {}


class TokenAgreement:
    """Share of positions at which the answers say the reference's token, over all inputs."""

    def __init__(self, rule: DecisionRule) -> None:
        self._places = self._same = 0

    def add(self, reference: Text, answer: Text | None) -> None:
        """Take one input in."""
        self._places += len(reference.tokens)
        pairs = zip(reference.tokens, answer.tokens if answer else (), strict=False)
        self._same += sum(wanted == got for wanted, got in pairs)

    def value(self) -> dict[str, float]:
        """``agreement``."""
        return {"agreement": self._same / self._places} if self._places else {}


TEXT_GENERATION = TaskSpec(
    unit="tokens",
    compare=_compare_positions,
    margin=_margin,
    gap=_gap_by(_by_place),
    describe=_describe,
    figures=TokenAgreement,
)
SPEECH_RECOGNITION = TaskSpec(
    unit="tokens",
    compare=_compare_speech,
    margin=_margin,
    gap=_gap_by(_by_alignment),
    describe=_describe,
    figures=WordErrorRate,
)
