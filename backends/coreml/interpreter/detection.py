"""Non-maximum suppression of boxes.

A box is (centre x, centre y, width, height). Boxes are taken in falling order of their best class
score; one is dropped if it overlaps a taken one by more than the threshold (and, where classes are
kept apart, has the same best class). Two corners of the contract that are easy to miss: where no
box passes the score threshold, the best one is given all the same, and unused places of the result
hold 0, their index -1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Bool, integer, number, truth


@kernel("non_maximum_suppression")
def suppression(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    max_boxes: Tensor,
    per_class_suppression: Bool = False,
) -> tuple[Tensor, ...]:
    """Up to iOS 16: boxes n x B x 4, scores n x B x K; the fourth result counts the boxes."""
    least = number(score_threshold)
    return _suppressed(boxes, scores, iou_threshold, least, max_boxes, per_class_suppression)


@kernel("non_maximum_suppression", since="ios17")
def suppression_boxes_last(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: Tensor,
    max_boxes: Tensor,
    per_class_suppression: Bool = False,
) -> tuple[Tensor, ...]:
    """From iOS 17 on: boxes n x 4 x B, scores n x K x B, no score threshold, no count."""
    least = -float("inf")
    kept = _suppressed(boxes.mT, scores.mT, iou_threshold, least, max_boxes, per_class_suppression)
    return kept[0].mT, kept[1].mT, kept[2]


def _suppressed(
    boxes: Tensor, scores: Tensor, most_iou: Tensor, least: float, max_boxes: Tensor, apart: Bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (batch, _, classes), most = scores.shape, integer(max_boxes)
    kept_boxes = torch.zeros(batch, most, 4)
    kept_scores = torch.zeros(batch, most, classes)
    indices = torch.full((batch, most), -1, dtype=torch.int32)
    counts = torch.zeros(batch, dtype=torch.int32)
    for i in range(batch):
        (best, kind), overlaps = scores[i].max(dim=1), _overlaps(boxes[i]) > number(most_iou)
        if truth(apart):
            overlaps &= kind[:, None] == kind[None, :]
        chosen = _chosen(best, overlaps, least, most)
        count = counts[i] = len(chosen)
        kept_boxes[i, :count] = boxes[i, chosen]
        kept_scores[i, :count] = scores[i, chosen]
        indices[i, :count] = torch.tensor(chosen, dtype=torch.int32)
    return kept_boxes, kept_scores, indices, counts


def _chosen(best: Tensor, overlaps: Tensor, least: float, most: int) -> list[int]:
    """The indices of the boxes that stay, in falling order of score."""
    chosen: list[int] = []
    alive = best > least
    for index in torch.argsort(best, descending=True, stable=True).tolist():
        if len(chosen) == most:
            break
        if alive[index]:
            chosen.append(index)
            alive &= ~overlaps[index]
    return chosen or [int(best.argmax())][:most]


def _overlaps(boxes: Tensor) -> Tensor:
    """Intersection over union of each pair; 0 where a box has no area."""
    centre, size = boxes[:, :2], boxes[:, 2:]
    low, high = centre - size / 2, centre + size / 2
    area = size.prod(dim=1)
    inner = torch.minimum(high[:, None], high[None]) - torch.maximum(low[:, None], low[None])
    common = inner.clamp(min=0).prod(dim=2)
    union = area[:, None] + area[None] - common
    empty = (area[:, None] <= 0) | (area[None] <= 0)
    return torch.where(empty, torch.zeros(()), common / union.clamp(min=torch.finfo().tiny))
