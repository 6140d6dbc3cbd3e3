"""Metrics against true answers, held to their definitions; and bounds that hold as often as told.

The definitions are written out here the slow way: one box, one pixel, one recall at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, jaccard_score

from edgeserve.processing.image.pipeline import ImageTransform
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.average_precision import average_precisions
from edgeserve.tasks.detection import Detection, TrueBox, TrueBoxes
from edgeserve.tasks.detection.gate import box_row
from edgeserve.tasks.metrics import f1
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.segmentation.metrics import mask_row, mean_ious
from edgeserve.tasks.token_classification import Span, Tokens, TrueSpans
from edgeserve.tasks.token_classification.gate import span_row
from edgeserve.tasks.voice_activity import TrueSegments, Voice
from edgeserve.tasks.voice_activity.gate import frame_row
from edgeserve.validate.stats.paired_tests import bootstrap_stats

CLASSES = ("cat", "dog", "owl")


def overlap(a: Any, b: Any, crowd: bool) -> float:
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = wide * high
    mine, other = (a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1])
    return float(both / mine if crowd else both / (mine + other - both))


def average_precision(
    pictures: list[tuple[TrueBoxes, Detection]], label: str, least: float
) -> float | None:
    """COCO's rules: greedy by score, a crowd swallows what is left over, 101 recalls."""
    found: list[tuple[float, bool]] = []
    total = 0
    for truth, record in pictures:
        mine = [box for box in truth.boxes if box.label == label]
        things = [box for box in mine if not box.crowd]
        total += len(things)
        taken: set[int] = set()
        boxes = [i for i, name in enumerate(record.labels) if name == label]
        for i in sorted(boxes, key=lambda i: -record.scores[i]):
            box = record.boxes[i].tolist()
            best, place = 0.0, -1
            for j, thing in enumerate(things):
                if j not in taken and (shared := overlap(box, thing.xyxy, False)) >= max(
                    best, least
                ):
                    best, place = shared, j
            if place >= 0:
                taken.add(place)
                found.append((float(record.scores[i]), True))
            elif not any(b.crowd and overlap(box, b.xyxy, True) >= least for b in mine):
                found.append((float(record.scores[i]), False))
    if not total:
        return None
    found.sort(key=lambda each: -each[0])
    curve, right = [], 0
    for k, (_, hit) in enumerate(found, 1):
        right += hit
        curve.append((right, right / k))
    return float(
        np.mean(
            [
                max((p for hits, p in curve if 100 * hits >= at * total), default=0.0)
                for at in range(101)
            ]
        )
    )


def picture(rng: np.random.Generator, quality: float) -> tuple[TrueBoxes, Detection, Detection]:
    """Things in a picture, and what a good and a worse detector find."""
    count = int(rng.integers(0, 7))
    corner, size = rng.uniform(0, 60, (count, 2)), rng.uniform(8, 40, (count, 2))
    boxes = np.concatenate([corner, corner + size], 1)
    labels = rng.choice(CLASSES, count).tolist()
    truth = TrueBoxes(
        boxes=tuple(
            TrueBox(tuple(box), label, crowd=bool(rng.random() < 0.15))  # type: ignore[arg-type]
            for box, label in zip(boxes.tolist(), labels, strict=True)
        )
    )

    def detector(noise: float) -> Detection:
        kept = [i for i in range(count) if rng.random() < 0.9]
        extra = int(rng.integers(0, 3))
        moved = boxes[kept] + rng.normal(0, noise, (len(kept), 4))
        low, wide = rng.uniform(0, 60, (extra, 2)), rng.uniform(8, 40, (extra, 2))
        return Detection(
            boxes=np.concatenate([moved, np.concatenate([low, low + wide], 1)]),
            scores=rng.uniform(0.3, 1, len(kept) + extra),
            labels=(*(labels[i] for i in kept), *rng.choice(CLASSES, extra).tolist()),
        )

    return truth, detector(1.5), detector(1.5 + quality)


def test_average_precision_is_the_definition() -> None:
    rng = np.random.default_rng(3)
    pictures = [picture(rng, 1.0) for _ in range(60)]
    rows = [(str(i // 2), box_row(*each)) for i, each in enumerate(pictures)]
    first, second = bootstrap_stats(rows, average_precisions)
    assert (first.metric, second.metric) == ("map50", "map")
    assert (first.inputs, first.groups, first.more_is_better) == (60, 30, True)
    for side, name in ((1, "reference"), (2, "artifact")):
        pairs = [(each[0], each[side]) for each in pictures]
        by_overlap = [
            np.mean([average_precision(pairs, label, least) or 0.0 for label in CLASSES])
            for least in np.linspace(0.5, 0.95, 10)
        ]
        assert float(getattr(first, name)) == pytest.approx(by_overlap[0])
        assert float(getattr(second, name)) == pytest.approx(np.mean(by_overlap))
    assert 0.1 < float(second.artifact) < float(second.reference) < 0.9
    assert float(second.lower) < float(second.artifact) - float(second.reference) < 0
    assert second.lost > second.won


def test_a_draw_weighs_pictures_as_copies_of_them() -> None:
    """A weight of 2 is the same as the picture twice, and 0 as without it."""
    rng = np.random.default_rng(4)
    groups = [[box_row(*picture(rng, 2.0))] for _ in range(12)]
    weights = rng.integers(0, 3, 12)
    copied = [group for group, weight in zip(groups, weights, strict=True) for _ in range(weight)]
    drawn = average_precisions(groups, np.array([weights], np.float64))
    plain = average_precisions(copied, np.ones((1, len(copied))))
    for name, values in drawn.items():
        np.testing.assert_allclose(values, plain[name])


def test_no_answer_finds_nothing_and_what_was_nearly_found_does_not_count() -> None:
    truth = TrueBoxes(boxes=(TrueBox((0, 0, 10, 10), "cat"),))
    nearly = Detection(
        boxes=np.array([[0, 0, 10, 10], [0, 0, 10, 10]]),
        scores=np.array([0.46, 0.9]),
        labels=("cat", "dog"),
        floor=0.45,
    )
    found, none = average_precisions([[box_row(truth, nearly, None)]], np.ones((1, 1)))["map50"]
    assert (found[0], none[0]) == (0.0, 0.0)
    nothing = TrueBoxes(boxes=())
    assert bootstrap_stats([("a", box_row(nothing, nearly, nearly))], average_precisions) == ()


def enlarged(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Each pixel of a picture takes the class under its centre."""
    height, width = size
    return np.array(
        [
            [
                mask[
                    int((y + 0.5) * mask.shape[0] / height), int((x + 0.5) * mask.shape[1] / width)
                ]
                for x in range(width)
            ]
            for y in range(height)
        ]
    )


def test_mean_overlap_is_sklearns_in_the_photos_pixels() -> None:
    rng = np.random.default_rng(5)
    size = (18, 30)
    step = Resize(height=12, width=12)
    rows, truths, wide = [], [], ([], [])
    for i in range(8):
        truth = rng.integers(0, 3, size).astype(np.int32)
        truth[rng.random(size) < 0.1] = -1
        masks = [rng.integers(0, 4, (6, 6)) for _ in range(2)]
        records = [Segmentation(mask=mask, labels=()) for mask in masks]
        rows.append((str(i), mask_row(truth, ImageTransform([step], size), (), *records)))
        truths.append(truth)
        for side, mask in zip(wide, masks, strict=True):
            side.append(enlarged(mask, size))
    (stats,) = bootstrap_stats(rows, mean_ious)
    true = np.concatenate(truths).ravel()
    for side, figure in zip(wide, (stats.reference, stats.artifact), strict=True):
        said = np.concatenate(side).ravel()[true >= 0]
        right = jaccard_score(true[true >= 0], said, labels=[0, 1, 2], average="macro")
        assert float(figure) == pytest.approx(right)


def test_what_a_crop_hides_does_not_count_and_a_letterbox_hides_nothing() -> None:
    truth = np.zeros((20, 40), np.int32)
    truth[:, 10:30] = 1
    ones = Segmentation(mask=np.ones((4, 4)), labels=())
    crop = ImageTransform([CenterCrop(height=20, width=20)], (20, 40))
    row = mask_row(truth, crop, (), ones, None)
    assert (row.classes.tolist(), row.wanted.tolist()) == ([1], [400])
    assert row.right.tolist() == [[400], [0]]
    boxed = ImageTransform([Resize(height=40, width=40, fit="letterbox")], (20, 40))
    mask = np.zeros((8, 8))
    mask[2:6, 2:6] = 1  # the photo lies in rows 2 to 5
    row = mask_row(truth, boxed, (), Segmentation(mask=mask, labels=()), None)
    assert row.wanted.tolist() == row.right[0].tolist() == [400, 400]


def test_classes_count_by_name_where_a_server_orders_them_otherwise() -> None:
    truth = np.array([[0, 1]], np.int32)
    other = Segmentation(mask=np.array([[1, 0]]), labels=("dog", "cat"))
    row = mask_row(truth, ImageTransform([], (1, 2)), ("cat", "dog"), other, other)
    assert row.right.tolist() == [[1, 1], [1, 1]]


def test_f1_of_spans_is_sklearns() -> None:
    rng = np.random.default_rng(6)
    rows, true, said = [], [], []
    for i in range(30):
        places = [(3 * k, 3 * k + 2) for k in range(6)]
        wanted = {p for p in places if rng.random() < 0.6}
        found = {p for p in places if (p in wanted) != (rng.random() < 0.2)}
        truth = TrueSpans(spans=tuple((a, b, "PER") for a, b in sorted(wanted)))
        record = Tokens(spans=tuple(Span(a, b, "PER", 0.9) for a, b in sorted(found)))
        rows.append((str(i), span_row(truth, record, None)))
        true += [p in wanted for p in places]
        said += [p in found for p in places]
    (stats,) = bootstrap_stats(rows, f1)
    assert float(stats.reference) == pytest.approx(f1_score(true, said))
    assert float(stats.artifact) == 0.0
    other = TrueSpans(spans=((0, 2, "LOC"),))
    record = Tokens(spans=(Span(0, 2, "PER", 0.9), Span(0, 3, "LOC", 0.9)))
    assert span_row(other, record, record).both == (0, 0), "label and end have to be right"


def test_f1_of_frames_is_sklearns() -> None:
    prob = np.random.default_rng(7).random(50)
    truth = TrueSegments(segments=((0.4, 1.2), (3.05, 9.0)))
    middles = (np.arange(50) + 0.5) * 0.1
    wanted = ((middles >= 0.4) & (middles < 1.2)) | (middles >= 3.05)
    record = Voice(prob=prob, step_s=0.1)
    (stats,) = bootstrap_stats([("a", frame_row(truth, record, None))], f1)
    assert float(stats.reference) == pytest.approx(f1_score(wanted, prob >= 0.5))
    assert float(stats.artifact) == 0.0
    assert (stats.lower, stats.upper) == (-1.0, 1.0), "of one group nothing is known"


def test_bounds_hold_as_often_as_they_say() -> None:
    """Of two detectors that are equally good, and groups of two pictures that err together."""
    rng = np.random.default_rng(8)
    held = [0, 0]
    rounds = 150
    for _ in range(rounds):
        rows = []
        for group in range(25):
            off = rng.normal(0, 0.1, 2)
            for _ in range(2):
                wanted = 8
                both = np.clip(rng.binomial(wanted, np.clip(0.7 + off, 0, 1)), 0, wanted)
                spans = [
                    Tokens(spans=tuple(Span(k, k + 1, "X", 1.0) for k in range(n))) for n in both
                ]
                truth = TrueSpans(spans=tuple((k, k + 1, "X") for k in range(wanted)))
                rows.append((str(group), span_row(truth, *spans)))
        (stats,) = bootstrap_stats(rows, f1)
        held[0] += float(stats.lower) <= 0
        held[1] += float(stats.upper) >= 0
    assert min(held) >= 0.90 * rounds
    assert max(held) < rounds, "bounds that always hold say too little"
