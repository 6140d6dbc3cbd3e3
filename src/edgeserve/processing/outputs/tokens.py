"""spans/1 and tokens/1: labelled spans, and the best token at each position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import SampleOrigin
from edgeserve.processing.outputs.steps import check_numbers, softmax, wrong_outputs
from edgeserve.tasks.speech_recognition import SCHEMA as _SPEECH
from edgeserve.tasks.text_generation import Picks, Text
from edgeserve.tasks.token_classification import SCHEMA as _SPANS
from edgeserve.tasks.token_classification import Span, Spans, Tokens

__all__ = ["Detokenizer", "label_detokenizer", "positions", "span_labels", "spans", "text"]

#: Spells token ids.
Detokenizer = Callable[[Sequence[int]], str]


def positions(
    count: int, mask: np.ndarray | None, origin: SampleOrigin, left: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which positions of one sample count, and where each lies in its text.

    Args:
        count: How many positions there are, padding included.
        mask: 1 where a position counts [count]; None: all but the padding that is known of.
        origin: Of the sample.
        left: Padding comes first.

    Returns:
        Positions int [n], and their place int64 [n, 2]; without a text a position is its own place.

    Raises:
        ProcessingError: EDGE-PROCESS-008, more tokens than positions.
    """
    places = np.arange(count) if mask is None else np.flatnonzero(mask)
    offsets = origin.offsets
    if offsets is None:
        return places, np.stack([places, places + 1], axis=1)
    if mask is None and len(offsets) <= count:
        places = places[count - len(offsets) :] if left else places[: len(offsets)]
    if len(places) != len(offsets):
        raise wrong_outputs(f"scores for {len(offsets)} tokens", f"{len(places)}")
    real = offsets[:, 0] >= 0
    return places[real], offsets[real]


def spans(
    step: Spans, value: np.ndarray, labels: Sequence[str], where: tuple[np.ndarray, np.ndarray]
) -> Tokens:
    """spans/1 on one sample.

    Args:
        step: What to do.
        value: Scores [positions, labels].
        labels: Name of each label.
        where: See `positions`.

    Raises:
        ProcessingError: EDGE-PROCESS-007 (labels), -008 (form), -009 (NaN).
    """
    scores = _scores(step.output, value)
    if len(labels) != scores.shape[1]:
        raise ProcessingError(
            "EDGE-PROCESS-007",
            "labels",
            wanted=f"{scores.shape[1]}, one a column of spans/1",
            got=str(len(labels)),
            hint="give the label list that the model was trained with",
        )
    places, offsets = where
    shares = softmax(check_numbers(scores[places], "scores"), -1)
    best = shares.argmax(axis=1)
    found: list[Span] = []
    open_ = False
    for kind, share, (start, end) in zip(
        best.tolist(), shares.max(axis=1).tolist(), offsets.tolist(), strict=True
    ):
        name, begins = _named(labels[kind], step)
        if name is None:
            open_ = False
        elif open_ and not begins and found[-1].label == name:
            last = found[-1]
            found[-1] = Span(start=last.start, end=end, label=name, score=min(last.score, share))
        else:
            found.append(Span(start=start, end=end, label=name, score=share))
            open_ = True
    unsure = offsets[np.asarray(_leads(shares)) < _SPANS.sure]
    return Tokens(spans=tuple(found), unsure=tuple((int(a), int(b)) for a, b in unsure))


def span_labels(step: Spans, labels: Sequence[str]) -> tuple[str, ...]:
    """What spans may be called: the labels without B- and I-, and not the one of no span."""
    named = (_named(label, step)[0] for label in labels)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _named(label: str, step: Spans) -> tuple[str | None, bool]:
    """What a token's label says: which kind of span, and whether a new one begins."""
    if label == step.outside:
        return None, False
    if step.scheme == "bio" and label[:2] in ("B-", "I-"):
        return label[2:], label[0] == "B"
    return label, False


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
    scores = check_numbers(_scores(step.output, value)[places], "scores")
    shares = softmax(scores, -1)
    best = scores.argmax(axis=1).tolist()
    margins = _leads(shares)
    unsure = None
    if step.blank is not None:
        doubted = np.asarray(margins) < _SPEECH.sure
        unsure = _open_gaps(best, shares, np.flatnonzero(doubted).tolist(), step.blank)
        best, margins = _collapsed(best, margins, step.blank)
    return Text(tokens=tuple(best), text=spell(best), margins=tuple(margins), unsure=unsure)


def _leads(shares: np.ndarray) -> list[float]:
    """By how much the best of each row leads the second."""
    if shares.shape[1] < 2:
        return [1.0] * len(shares)
    two = np.partition(shares, shares.shape[1] - 2, axis=1)[:, -2:]
    leads: list[float] = (two[:, 1] - two[:, 0]).tolist()
    return leads


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
        second = _second(shares[i], token)
        if _tokens_begun(before, second, after, blank) > _tokens_begun(before, token, after, blank):
            found |= {spelled_before[i], spelled_before[i + 1]}
            if token != blank and not heads[i]:  # in the middle of a token: before it, or behind
                found.add(spelled_before[i] - 1)
    return tuple(sorted(found))


def _second(shares: np.ndarray, best: int) -> int:
    """The second best of a frame; of equal ones the first."""
    rest = shares.copy()
    rest[best] = -1
    return int(rest.argmax())


def _tokens_begun(before: int, token: int, after: int, blank: int) -> int:
    """How many tokens begin at a frame or the one behind it."""
    return int(token not in (blank, before)) + int(after not in (blank, token))


def _scores(output: str, value: np.ndarray) -> np.ndarray:
    if value.ndim != 2 or value.dtype.kind != "f" or not value.shape[1]:
        wanted = f"output {output!r} as floats [positions, scores] a sample"
        raise wrong_outputs(wanted, f"{value.dtype} {list(value.shape)}")
    return np.asarray(value, np.float32)


def label_detokenizer(labels: Sequence[str], space: str) -> Detokenizer:
    """Spells with labels, one a token: ``space`` is a space; without labels, ids in decimal."""

    def spell(tokens: Sequence[int]) -> str:
        if not labels:
            return " ".join(map(str, tokens))
        known: Mapping[int, str] = dict(enumerate(labels))
        return "".join(known.get(token, "") for token in tokens).replace(space, " ").strip()

    return spell
