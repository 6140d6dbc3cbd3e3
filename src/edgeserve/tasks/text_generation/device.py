"""tokens/1: the best token at each position and the text they spell, read and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

import numpy as np

from edgeserve.processing.arrays import check_numbers, softmax
from edgeserve.processing.outputs.places import leads, position_reader, position_scores
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader
from edgeserve.processing.steps.tokenize import detokenizer
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.text_generation import SCHEMA, Picks, Text

_SHOWN = 60


def margins_of(record: Text) -> Sequence[float]:
    """Margin of each token; 1 where the record does not say."""
    return record.margins or (1.0,) * len(record.tokens)


def _compare(rule: DecisionRule, reference: Text, answer: Text, sure: float) -> DecisionCounts:
    """Each position of the reference; one that the answer does not have is flipped."""
    got = answer.tokens
    flips = [i >= len(got) or token != got[i] for i, token in enumerate(reference.tokens)]
    return count_flips(flips, [margin >= sure for margin in margins_of(reference)])


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


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the text of each sample.

    Raises:
        ProcessingError: EDGE-PROCESS-025 the step's mask, -020 to -022 the tokenizer that spells.
    """
    step = model.step
    assert isinstance(step, Picks)
    own = step.tokenizer
    spell = detokenizer(own, model.assets) if own else label_detokenizer(model.labels, step.space)
    return position_reader(step, model, lambda value, where: text(step, value, where[0], spell))


#: Spells token ids.
Detokenizer = Callable[[Sequence[int]], str]


def text(step: Picks, value: np.ndarray, places: np.ndarray, spell: Detokenizer) -> Text:
    """tokens/1 on one sample.

    Args:
        step: What to do.
        value: Scores [positions, vocabulary].
        places: Positions that count.
        spell: Makes text of token ids.

    Raises:
        ProcessingError: EDGE-PROCESS-008 (form), -009 (NaN).
    """
    scores = check_numbers(position_scores(step.output, value)[places], "scores")
    shares = softmax(scores, -1)
    best = scores.argmax(axis=1).tolist()
    margins = leads(shares, 1).tolist()
    unsure = None
    if step.blank is not None:
        doubted = np.asarray(margins) < SCHEMA.sure
        unsure = _open_gaps(best, shares, np.flatnonzero(doubted).tolist(), step.blank)
        best, margins = _collapsed(best, margins, step.blank)
    return Text(tokens=tuple(best), text=spell(best), margins=tuple(margins), unsure=unsure)


def _collapsed(
    best: Sequence[int], margins: Sequence[float], blank: int
) -> tuple[list[int], list[float]]:
    """Repeated tokens become one, as sure as the surest of them; then blanks go."""
    runs = groupby(zip(best, margins, strict=True), key=lambda each: each[0])
    kept = [(token, max(m for _, m in run)) for token, run in runs if token != blank]
    return [token for token, _ in kept], [margin for _, margin in kept]


def _open_gaps(
    best: Sequence[int], shares: np.ndarray, doubted: Sequence[int], blank: int
) -> tuple[int, ...]:
    """Gaps between the tokens that a CTC head spells in which one more might as well stand.

    A frame opens its gap where its second best would spell a token more than its best: a blank that
    might be a token, a token that might be two. Where the second best only lengthens or shortens a
    neighbour, as at the edges of most tokens, nothing is put in.

    Args:
        best: The best of each frame.
        shares: Probabilities [frames, vocabulary].
        doubted: Frames whose best hardly leads their second.
        blank: The blank's index.
    """
    around = [blank, *best, blank]
    heads = [int(t != blank and t != before) for before, t in pairwise(around[:-1])]
    spelled_before = [0, *accumulate(heads)]
    found: set[int] = set()
    for i in doubted:
        before, token, after = around[i : i + 3]
        rest = shares[i].copy()
        rest[token] = -1
        second = int(rest.argmax())  # of equal ones the first
        if _tokens_begun(before, second, after, blank) > _tokens_begun(before, token, after, blank):
            found |= {spelled_before[i], spelled_before[i + 1]}
            if token != blank and not heads[i]:  # in the middle of a token: before it, or behind
                found.add(spelled_before[i] - 1)
    return tuple(sorted(found))


def _tokens_begun(before: int, token: int, after: int, blank: int) -> int:
    """How many tokens begin at a frame or the one behind it."""
    return int(token not in (blank, before)) + int(after not in (blank, token))


def label_detokenizer(labels: Sequence[str], space: str) -> Detokenizer:
    """Spells with labels, one a token: ``space`` is a space; without labels, ids in decimal."""

    def spell(tokens: Sequence[int]) -> str:
        if not labels:
            return " ".join(map(str, tokens))
        known: Mapping[int, str] = dict(enumerate(labels))
        return "".join(known.get(token, "") for token in tokens).replace(space, " ").strip()

    return spell
