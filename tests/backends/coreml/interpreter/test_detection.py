"""Non-maximum suppression against a loop over the definition, and classification."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest

IOS16, IOS17 = ct.target.iOS16, ct.target.iOS17


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes (centre x, centre y, width, height)."""
    width = min(a[0] + a[2] / 2, b[0] + b[2] / 2) - max(a[0] - a[2] / 2, b[0] - b[2] / 2)
    height = min(a[1] + a[3] / 2, b[1] + b[3] / 2) - max(a[1] - a[3] / 2, b[1] - b[3] / 2)
    common = max(width, 0) * max(height, 0)
    return float(common / (a[2] * a[3] + b[2] * b[3] - common))


def kept(
    boxes: np.ndarray, scores: np.ndarray, iou: float, floor: float, per_class: bool
) -> list[int]:
    """Indices that stay, best first; the best one where none passes the floor."""
    order = sorted(range(len(boxes)), key=lambda i: -scores[i].max())
    found: list[int] = []
    for i in order:
        rivals = [j for j in found if not per_class or scores[i].argmax() == scores[j].argmax()]
        if scores[i].max() > floor and all(overlap(boxes[i], boxes[j]) <= iou for j in rivals):
            found.append(i)
    return found or order[:1]


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize(("iou", "floor", "most"), [(0.2, 0.3, 5), (0.5, 0.0, 40), (0.7, 2.0, 4)])
def test_suppression(one_op: Any, iou: float, floor: float, most: int, per_class: bool) -> None:
    rng = np.random.default_rng(6)
    boxes = np.concatenate([rng.uniform(0, 60, (2, 30, 2)), rng.uniform(5, 30, (2, 30, 2))], 2)
    boxes = boxes.astype(np.float32)
    scores = rng.permutation(2 * 30 * 3).reshape(2, 30, 3).astype(np.float32) / 180
    settings = {
        "iou_threshold": np.float32(iou),
        "max_boxes": most,
        "per_class_suppression": per_class,
    }
    old = one_op(
        "non_maximum_suppression",
        {"boxes": boxes, "scores": scores},
        opset=IOS16,
        score_threshold=np.float32(floor),
        **settings,
    )
    tensors = {"boxes": boxes.transpose(0, 2, 1).copy(), "scores": scores.transpose(0, 2, 1).copy()}
    new = one_op("non_maximum_suppression", tensors, opset=IOS17, **settings)
    for i in range(2):
        for found, threshold in ((old, floor), ((new[0].mT, new[1].mT, new[2]), -1.0)):
            right = kept(boxes[i], scores[i], iou, threshold, per_class)[:most]
            count = len(right)
            assert found[2][i].tolist() == right + [-1] * (most - count)
            np.testing.assert_array_equal(found[0][i, :count], boxes[i, right])
            np.testing.assert_array_equal(found[1][i, :count], scores[i, right])
            assert not found[0][i, count:].any()
        assert old[3][i] == len(kept(boxes[i], scores[i], iou, floor, per_class)[:most])


def test_boxes_without_area_suppress_nobody(one_op: Any) -> None:
    boxes = np.array([[[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 2, 2]]], np.float32)
    scores = np.array([[[0.9], [0.8], [0.7]]], np.float32)
    found = one_op(
        "non_maximum_suppression",
        {"boxes": boxes, "scores": scores},
        opset=IOS16,
        iou_threshold=np.float32(0.1),
        score_threshold=np.float32(0),
        max_boxes=3,
    )
    assert found[2].tolist() == [[0, 1, 2]]
