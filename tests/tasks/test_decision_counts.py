"""Decisions of many units: figures over all inputs and alignments, against other definitions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, jaccard_score

from edgeserve import tasks
from edgeserve.tasks import DecisionRule, compare, decision_rule, gap, margin, metrics_for
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.keypoints import Keypoints
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.speech_recognition.device import alignment, edit_distance
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.token_classification import Span, Tokens
from edgeserve.tasks.voice_activity import Voice
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record
from edgeserve.types.steps import Slice
from edgeserve.types.vocabulary import TASKS

BOXES = DecisionRule("object-detection", 0.05, 0.5)
MASKS = DecisionRule("image-segmentation", 0.05)


def area(box: Any) -> float:
    return float(max(0, box[2] - box[0]) * max(0, box[3] - box[1]))


def overlap(a: Any, b: Any) -> float:
    both = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    return both / (area(a) + area(b) - both)


def average_precision(pairs: list[tuple[Detection, Detection]], label: str) -> float | None:
    """By the definition, one threshold at a time: the best precision at a recall or above."""
    found: list[tuple[float, bool]] = []
    total = 0
    for wanted, got in pairs:
        left = [
            box
            for box, s, n in zip(wanted.boxes, wanted.scores, wanted.labels, strict=True)
            if n == label and s >= 0.5
        ]
        total += len(left)
        mine = [j for j, n in enumerate(got.labels) if n == label]
        for j in sorted(mine, key=lambda j: -got.scores[j]):
            near = [(overlap(box, got.boxes[j]), i) for i, box in enumerate(left)]
            best = max(near, default=(0.0, -1))
            if best[0] >= 0.5:
                left.pop(best[1])
            found.append((float(got.scores[j]), best[0] >= 0.5))
    if not total:
        return None
    found.sort(key=lambda each: -each[0])
    curve = []
    for k in range(1, len(found) + 1):
        right = sum(hit for _, hit in found[:k])
        curve.append((right / total, right / k))
    recalls = np.linspace(0, 1, 101)
    return float(np.mean([max((p for r, p in curve if r >= at), default=0.0) for at in recalls]))


def detections(rng: np.random.Generator, count: int) -> Detection:
    corner, size = rng.uniform(0, 40, (count, 2)), rng.uniform(5, 30, (count, 2))
    return Detection(
        boxes=np.concatenate([corner, corner + size], 1),
        scores=rng.uniform(0.3, 1, count),
        labels=tuple(rng.choice(["cat", "dog", "owl"], count).tolist()),
    )


def test_mean_average_precision_is_the_definition() -> None:
    rng = np.random.default_rng(4)
    pairs = []
    for _ in range(40):
        wanted = detections(rng, int(rng.integers(0, 6)))
        kept = rng.random(len(wanted.labels)) < 0.8
        extra = detections(rng, int(rng.integers(0, 3)))
        moved = wanted.boxes[kept] + rng.normal(0, 2, (int(kept.sum()), 4))
        labels = [n for n, it in zip(wanted.labels, kept, strict=True) if it]
        pairs.append(
            (
                wanted,
                Detection(
                    boxes=np.concatenate([moved, extra.boxes]),
                    scores=np.concatenate([rng.uniform(0.5, 1, len(labels)), extra.scores]),
                    labels=(*labels, *extra.labels),
                ),
            )
        )
    figures = metrics_for(BOXES)
    assert figures is not None
    for pair in pairs:
        figures.add(*pair)
    each = [average_precision(pairs, label) for label in ("cat", "dog", "owl")]
    assert figures.value()["map50"] == pytest.approx(np.mean([a for a in each if a is not None]))
    assert 0.2 < figures.value()["map50"] < 0.95, "neither all right nor all wrong"


def test_figures_of_answers_that_are_none() -> None:
    for task in tasks.REGISTRY:
        figures = metrics_for(decision_rule(task, Processing()))
        if figures is not None:
            assert figures.value() == {}
    figures = metrics_for(BOXES)
    assert figures is not None
    figures.add(detections(np.random.default_rng(0), 4), None)
    assert figures.value() == {"map50": 0.0}


def test_mean_overlap_of_masks_is_sklearns() -> None:
    rng = np.random.default_rng(5)
    figures = metrics_for(MASKS)
    assert figures is not None
    wanted = rng.integers(0, 4, (3, 8, 9))
    got = np.where(rng.random(wanted.shape) < 0.7, wanted, rng.integers(0, 5, wanted.shape))
    for one, other in zip(wanted, got, strict=True):
        figures.add(Segmentation(mask=one, labels=()), Segmentation(mask=other, labels=()))
    found = figures.value()
    right = jaccard_score(wanted.ravel(), got.ravel(), average="macro", labels=range(5))
    assert found["miou"] == pytest.approx(right)
    assert found["agreement"] == pytest.approx((wanted == got).mean())


def test_relative_error_of_depth() -> None:
    rng = np.random.default_rng(6)
    rule = decision_rule("depth-estimation", Processing())
    figures = metrics_for(rule)
    assert figures is not None
    wanted, got = rng.uniform(1, 9, (4, 5, 6)), rng.uniform(1, 9, (4, 5, 6))
    for one, other in zip(wanted, got, strict=True):
        figures.add(Depth(map=one), Depth(map=other))
    right = np.abs(got.astype("f4") - wanted.astype("f4").astype("f8")) / wanted.astype("f4")
    assert figures.value()["abs_rel"] == pytest.approx(right.mean(), rel=1e-6)
    broken = compare(rule, Depth(map=np.ones((2, 2))), Depth(map=np.full((2, 2), np.nan)))
    assert (broken.flips, broken.decided_flips) == (4, 4)


def test_spans_are_scored_as_sklearn_does() -> None:
    rng = np.random.default_rng(7)
    figures = metrics_for(decision_rule("token-classification", Processing()))
    assert figures is not None
    truth, told = [], []
    for _ in range(20):
        both = rng.random((2, 12)) < 0.4
        records = [
            Tokens(
                spans=tuple(
                    Span(start=i, end=i + 1, label="X", score=0.9) for i in np.flatnonzero(row)
                )
            )
            for row in both.tolist()
        ]
        figures.add(*records)
        truth += both[0].tolist()
        told += both[1].tolist()
    assert figures.value()["f1"] == pytest.approx(f1_score(truth, told))


TOKENS = st.lists(st.integers(0, 3), max_size=7).map(tuple)


@cache
def distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The recursive definition."""
    if not a or not b:
        return len(a) + len(b)
    swap = distance(a[1:], b[1:]) + (a[0] != b[0])
    return min(swap, distance(a[1:], b) + 1, distance(a, b[1:]) + 1)


@given(TOKENS, TOKENS)
@settings(max_examples=150)
def test_edits_are_the_recursive_definition(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert edit_distance(a, b) == distance(a, b)
    kept = alignment(a, b)
    places = [j for j in kept if j >= 0]
    assert places == sorted(set(places)), "in order, none twice"
    assert all(a[i] == b[j] for i, j in enumerate(kept) if j >= 0)
    # What is not kept is replaced, left out or put in: the longer rest has to be edited.
    assert distance(a, b) >= max(len(a), len(b)) - len(places)
    rule = decision_rule("automatic-speech-recognition", Processing())
    units = compare(rule, Text(tokens=a, text=""), Text(tokens=b, text=""))
    assert units.flips == distance(a, b)
    assert units.n >= max(len(a), units.flips)
    assert units.decided_flips == units.flips, "without margins every token is decided"


def poses(rng: np.random.Generator, count: int) -> Keypoints:
    """Poses of three points within 40 pixels, some of which do not count."""
    points, scores = rng.uniform(0, 40, (count, 3, 2)), rng.uniform(0, 1, (count, 3))
    return Keypoints(
        points=points,
        point_scores=np.where(scores < 0.3, 0, scores),
        boxes=np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1),
        scores=rng.uniform(0.3, 1, count),
        sigmas=(0.1, 0.2, 0.3),
    )


def similarity(wanted: Keypoints, i: int, got: Keypoints, j: int) -> float:
    """OKS, point by point."""
    flags = wanted.point_scores[i] > 0
    size, total, counted = 0.53 * area(wanted.boxes[i].astype(float)), 0.0, 0
    for k, sigma in enumerate(wanted.sigmas):
        if flags[k] or not flags.any():
            apart = wanted.points[i, k].astype(float) - got.points[j, k].astype(float)
            total += float(np.exp(-(apart @ apart) / (2 * size * (2 * sigma) ** 2)))
            counted += 1
    return total / counted


def test_poses_match_by_similarity_of_keypoints() -> None:
    rng = np.random.default_rng(8)
    rule = DecisionRule("keypoint-detection", 0.05, 0.5)
    flips = total = 0
    for _ in range(60):
        wanted, other = poses(rng, 3), poses(rng, 2)
        moved = wanted.points[:2] + rng.normal(0, 3, (2, 3, 2))
        got = Keypoints(
            points=np.concatenate([moved, other.points]),
            point_scores=np.ones((4, 3)),
            boxes=np.concatenate([wanted.boxes[:2], other.boxes]),
            scores=rng.uniform(0.5, 1, 4),
            sigmas=wanted.sigmas,
        )
        alike = [[similarity(wanted, i, got, j) for j in range(4)] for i in range(3)]
        left = {i for i in range(3) if wanted.scores[i] >= 0.5}
        n = lost = len(left)
        overlaps = []
        for j in sorted(range(4), key=lambda j: -got.scores[j]):
            best = max(left, key=lambda i: alike[i][j], default=None)
            if best is not None and alike[best][j] >= 0.5:
                left.remove(best)
                overlaps.append(alike[best][j])
                lost -= 1
        extra = sum(max(alike[i][j] for i in range(3)) < 0.5 for j in range(4))
        found = compare(rule, wanted, got)
        assert (found.n, found.flips) == (n + extra, lost + extra)
        if overlaps:
            assert found.figures["oks"] == pytest.approx(np.mean(overlaps))
        flips, total = flips + found.flips, total + found.n
    assert 0.1 < flips / total < 0.9, "neither all alike nor all apart"


def record(rng: np.random.Generator, task: str) -> Record:
    """Any record of a task."""
    if task == "object-detection":
        return detections(rng, 4)
    if task == "keypoint-detection":
        return poses(rng, 4)
    if task == "image-segmentation":
        return Segmentation(
            mask=rng.integers(0, 3, (4, 5)), labels=(), margin=rng.uniform(0, 1, (4, 5))
        )
    if task == "depth-estimation":
        return Depth(map=rng.uniform(1, 2, (4, 5)))
    if task == "voice-activity":
        return Voice(prob=rng.uniform(0, 1, 9), step_s=0.1)
    if task == "token-classification":
        return Tokens(
            spans=tuple(
                Span(
                    start=i, end=i + 1, label=str(rng.integers(2)), score=float(rng.uniform(0.4, 1))
                )
                for i in range(0, 9, 2)
            )
        )
    if task in ("automatic-speech-recognition", "text-generation"):
        tokens = tuple(rng.integers(0, 9, 6).tolist())
        return Text(tokens=tokens, text="a b", margins=tuple(rng.uniform(0, 1, 6).tolist()))
    if task == "feature-extraction":
        return Embedding(vector=rng.normal(0, 1, 4))
    top = tuple((str(i), score) for i, score in enumerate((0.5, 0.3, 0.2)))
    return Classification(label="0", score=0.5, top=top)


@pytest.mark.parametrize("task", [task for task in TASKS if task != "tensors"])
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_laws_of_every_task(task: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rule = decision_rule(task, Processing())
    one, other = record(rng, task), record(rng, task)
    assert tasks.describe(one)
    assert isinstance(one, tasks.schema(task).record)
    if task == "feature-extraction":
        assert margin(one, rule) is None
        assert gap(rule, one, other) == 0
        return
    assert gap(rule, one, one) == 0
    assert gap(rule, one, other) >= 0
    found, lost = compare(rule, one, other), compare(rule, one, None)
    assert 0 <= found.decided_flips <= found.flips <= found.n
    assert found.decided_flips <= found.decided <= found.n
    assert (lost.flips, lost.decided_flips) == (lost.n, lost.decided)
    strict = compare(rule, one, other, sure=2.0)
    assert (strict.n, strict.flips) <= (found.n, found.flips)
    assert strict.decided_flips <= found.decided_flips
    sure = margin(one, rule)
    assert sure is not None
    if task != "depth-estimation":
        assert compare(rule, one, one, sure=sure).decided >= 1
        assert compare(rule, one, one, sure=sure + 1e-6).decided == 0
    # Whatever is kept apart comes back as it was.
    arrays = tasks.sidecar_arrays(one)
    again = tasks.attach_arrays(tasks.detach_arrays(one), arrays)
    assert compare(rule, one, again).flips == 0
    assert gap(rule, one, again) == 0
    if arrays:
        with pytest.raises(ValueError, match="missing"):
            tasks.attach_arrays(tasks.detach_arrays(one), {})


def test_the_rule_knows_a_detectors_threshold() -> None:
    step = Detect(boxes=Slice("y", 0, 0, 4), scores=Slice("y", 0, 4), threshold=0.25)
    assert decision_rule("object-detection", Processing(outputs=(step,))) == DecisionRule(
        "object-detection", 0.05, 0.25
    )


def test_how_far_a_mask_moves() -> None:
    """The largest margin that was turned over, or what 99 of 100 pixels keep within."""
    size = (20, 20)
    wanted = Segmentation(mask=np.zeros(size), labels=(), margin=np.full(size, 0.5))
    moved = Segmentation(mask=np.zeros(size), labels=(), margin=np.full(size, 0.4))
    assert gap(MASKS, wanted, moved) == pytest.approx(0.1)
    margins, turned = np.full(size, 0.5), np.zeros(size)
    margins[3, 3], turned[3, 3] = 0.3, 1
    wanted = Segmentation(mask=np.zeros(size), labels=(), margin=margins)
    other = Segmentation(mask=turned, labels=(), margin=np.full(size, 0.5))
    assert gap(MASKS, wanted, other) == pytest.approx(0.3)
