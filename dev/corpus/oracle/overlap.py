"""Decisions of detectors: boxes out of a joined head, and boxes compared by overlap.

A set holds ``boxes`` [n, k, 4] (two corners), ``scores`` [n, k] (0: no box) and ``kinds`` [n, k].
"""

from __future__ import annotations

from typing import Any

import numpy as np

Set = dict[str, np.ndarray]
_SURE, _OVERLAP, _MOST = 0.05, 0.5, 40


def found_boxes(head: np.ndarray, step: dict[str, Any], labels: list[str]) -> Set:
    """A joined head [n, rows, boxes] to boxes, by greedy suppression within a class."""
    where = step["boxes"], step["scores"]
    places, scores = (head[:, s.get("start", 0) : s.get("stop")] for s in where)
    made = [_one(p, s, step) for p, s in zip(places, scores, strict=True)]
    return _set([(b, s, np.array(labels)[k] if len(k) else k) for b, s, k in made])


def probable(scores: np.ndarray) -> np.ndarray:
    """Where numbers may stand for probabilities: 0 to 1, a hundredth off at most; not NaN."""
    return np.asarray((scores >= -0.01) & (scores <= 1.01))


def _one(
    places: np.ndarray, scores: np.ndarray, step: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not probable(scores).all():  # the description forbids it: there is no answer
        return np.zeros((0, 4)), np.zeros(0), np.zeros(0, int)
    best, kinds = scores.max(0), scores.argmax(0)
    boxes = _corners(
        np.nan_to_num(places, nan=-1e6, posinf=-1e6, neginf=-1e6), step.get("form", "xyxy")
    )
    kept: list[int] = []
    for i in np.argsort(-best, kind="stable"):
        if best[i] < step.get("threshold", 0.5):
            break
        rivals = [j for j in kept if kinds[j] == kinds[i]]
        if step.get("nms") is None or all(_iou(boxes[i], boxes[j]) <= step["nms"] for j in rivals):
            kept.append(int(i))
    return boxes[kept], best[kept], kinds[kept]


def _corners(places: np.ndarray, form: str) -> np.ndarray:
    """Rows of a head [4, boxes] to two corners [boxes, 4]."""
    a, b, c, d = places
    if form == "cxcywh":
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], 1)
    if form == "xywh":
        return np.stack([a, b, a + c, b + d], 1)
    return np.stack([a, b, c, d], 1)


def answered_boxes(answers: list[Any]) -> Set:
    """What a server answered."""
    return _set([(a["boxes"], a["scores"], np.array(a["labels"])) for a in answers])


def _set(held: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Set:
    boxes = np.zeros((len(held), _MOST, 4))
    scores, kinds = np.zeros((len(held), _MOST)), np.full((len(held), _MOST), "", "U16")
    for i, (b, s, k) in enumerate(held):
        n = min(len(s), _MOST)
        boxes[i, :n], scores[i, :n], kinds[i, :n] = b[:n], s[:n], k[:n]
    return {"boxes": boxes, "scores": scores, "kinds": kinds}


def box_flips(reference: Set, other: Set) -> tuple[np.ndarray, np.ndarray]:
    """For each picture the share of units that differ: of the decided ones, and of all.

    A unit is a box of the reference, flipped where no box of the answer matches it (overlap of
    half, same kind, each box once, the surest first), or a box of the answer, at 0.05 over the
    threshold or more, that overlaps none of the reference's of its kind.
    """
    columns = [each[name] for each in (reference, other) for name in ("boxes", "scores", "kinds")]
    rows = [_picture(*(column[i] for column in columns)) for i in range(len(columns[0]))]
    found = np.array(rows, np.float64)
    with np.errstate(invalid="ignore"):
        decided, raw = found[:, 0] / found[:, 1], found[:, 2] / np.maximum(found[:, 3], 1)
    return decided, raw


def _picture(
    boxes: np.ndarray,
    scores: np.ndarray,
    kinds: np.ndarray,
    theirs: np.ndarray,
    sure: np.ndarray,
    named: np.ndarray,
) -> tuple[int, int, int, int]:
    """Decided flips, decided units, flips, units."""
    edge = 0.5 + _SURE
    mine, answer = np.flatnonzero(scores > 0), np.flatnonzero(sure > 0)
    near = {
        (int(i), int(j))
        for i in mine
        for j in answer
        if kinds[i] == named[j] and _iou(boxes[i], theirs[j]) >= _OVERLAP
    }
    free = {int(i) for i in mine}
    for j in sorted(answer.tolist(), key=lambda j: -sure[j]):
        fit = [i for i in free if (i, j) in near]
        if fit:
            free.remove(max(fit, key=lambda i: _iou(boxes[i], theirs[j])))
    extra = [
        j for j in answer.tolist() if sure[j] >= edge and not any((int(i), j) in near for i in mine)
    ]
    decided = [int(i) for i in mine if scores[i] >= edge]
    lost = sum(i in free for i in decided)
    return (
        lost + len(extra),
        len(decided) + len(extra),
        len(free) + len(extra),
        len(mine) + len(extra),
    )


def _iou(one: np.ndarray, other: np.ndarray) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    inner = float(np.prod(np.maximum(high - low, 0)))
    areas = sum(float(np.prod(np.maximum(b[2:] - b[:2], 0))) for b in (one, other))
    return inner / max(areas - inner, 1e-9)
