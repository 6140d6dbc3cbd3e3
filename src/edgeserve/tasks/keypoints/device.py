"""heatmaps/1 and poses/1: poses out of a model's outputs, in pixels of the photo, and compared.

Source:
    M. R. Ronchi, P. Perona, "Benchmarking and Error Diagnosis in Multi-Instance Pose Estimation",
    ICCV 2017, section 2: object keypoint similarity (OKS), as COCO evaluates it.
"""

from __future__ import annotations

import numpy as np

from edgeserve.processing.arrays import (
    Arrays,
    activated,
    check_numbers,
    check_probabilities,
    wrong_outputs,
)
from edgeserve.processing.image.pipeline import ImageTransform
from edgeserve.processing.outputs.places import found_reader, sliced
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader, check_labels
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection.device import non_max_suppression, to_xyxy
from edgeserve.tasks.keypoints import COCO_SIGMAS, SCHEMA, Heatmaps, Keypoints, Poses
from edgeserve.tasks.matching import Matches, found_comparison, match_found, visible_things

#: Of a person's box, what the person covers: the area that OKS measures distances by.
AREA_SHARE = 0.53


def oks(
    points: np.ndarray,
    counted: np.ndarray,
    areas: np.ndarray,
    found: np.ndarray,
    sigmas: np.ndarray,
) -> np.ndarray:
    """Object keypoint similarity of each pose with each one found.

    ``mean over points that count of exp(-d^2 / (2 * area * (2 * sigma)^2))``, in float64.

    Args:
        points: xy [n, k, 2].
        counted: Which of them count, bool [n, k]; of a pose without any all do.
        areas: Of the poses, in the points' unit squared [n].
        found: xy [m, k, 2], in the same unit.
        sigmas: Of the points [k].

    Returns:
        float64 [n, m], 0 to 1.
    """
    wanted, got = np.asarray(points, np.float64), np.asarray(found, np.float64)
    apart = np.square(wanted[:, None] - got[None]).sum(axis=3)  # [n, m, k]
    spread = 2 * np.square(2 * np.asarray(sigmas, np.float64))
    size = np.maximum(np.asarray(areas, np.float64), np.spacing(1.0))
    alike = np.exp(-apart / (spread * size[:, None, None]))
    weights = _counted(counted)[:, None]
    return np.asarray((alike * weights).sum(axis=2) / np.maximum(weights.sum(axis=2), 1))


def _counted(points: np.ndarray) -> np.ndarray:
    """Points that count of each pose [n, k]; all of a pose where none does."""
    return np.asarray(np.logical_or(points, ~np.any(points, axis=1, keepdims=True)))


def match_poses(rule: DecisionRule, reference: Keypoints, answer: Keypoints) -> Matches:
    """Match poses by their likeness (OKS); see `match_found`."""
    if reference.points.shape[1] != answer.points.shape[1]:
        likeness = np.zeros((len(reference.scores), len(answer.scores)))
    else:
        boxes = reference.boxes.astype(np.float64)
        areas = AREA_SHARE * np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1)
        sigmas = np.array(reference.sigmas or COCO_SIGMAS)
        counted = reference.point_scores > 0
        likeness = oks(reference.points, counted, areas, answer.points, sigmas)
    return match_found(rule, likeness, reference.scores, answer.scores)


def _describe(record: Keypoints) -> str:
    found = visible_things(record.scores, record.floor, SCHEMA.sure)
    if not found:
        return "no pose"
    best = float(max(record.scores[i] for i in found))
    return f"{len(found)} {'pose' if len(found) == 1 else 'poses'} (surest {best:.2f})"


def _details(record: Keypoints) -> list[str]:
    """Points that count of each pose, by name or number."""
    lines = []
    for score, points, sure in zip(record.scores, record.points, record.point_scores, strict=True):
        named = (
            f"{record.labels[i] if record.labels else i} {points[i][0]:.0f},{points[i][1]:.0f}"
            for i in np.flatnonzero(sure > 0)
        )
        lines.append(f"{score:.3f}  {'  '.join(named)}")
    return lines


COMPARISON = found_comparison(
    SCHEMA, match_poses, label=lambda record, i: "pose", describe=_describe, details=_details
)


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the poses of each sample.

    Raises:
        ProcessingError: EDGE-PROCESS-002 the input that points are places in, -006 a slice.
    """
    step = model.step
    assert isinstance(step, Heatmaps | Poses)
    return found_reader(
        step,
        step.input,
        model,
        lambda values, transform: _of_sample(step, values, transform, model),
    )


def _of_sample(
    step: Heatmaps | Poses, values: Arrays, transform: ImageTransform | None, model: ModelOutputs
) -> Keypoints:
    """The record of one sample; without a photo its places are those of the model."""
    if isinstance(step, Heatmaps):
        points, point_scores, boxes, scores = _from_maps(step, values, transform)
    else:
        points, point_scores, boxes, scores = _from_rows(step, values)
    count = points.shape[1]
    check_labels(model.labels, len(model.labels) == count, f"{count}, one a point of {step.tag}")
    if len(step.sigmas or COCO_SIGMAS) != count:
        wanted = f"{len(step.sigmas or COCO_SIGMAS)} points, one a sigma of {step.tag}"
        raise wrong_outputs(wanted, f"{count}")
    if transform is not None and isinstance(step, Poses) and step.unit == "relative":
        points = points * (transform.end[1], transform.end[0])
        boxes = None if boxes is None else boxes * np.tile((transform.end[1], transform.end[0]), 2)
    point_scores = np.where(point_scores < step.visible, np.float32(0), point_scores)
    around = _around(points, point_scores)
    kept = _kept(step, around if boxes is None else boxes, scores)
    points, boxes = points[kept], None if boxes is None else boxes[kept]
    if transform is not None:
        points = transform.points_back(points.reshape(-1, 2)).reshape(points.shape)
        boxes = None if boxes is None else transform.back(boxes)
    point_scores = point_scores[kept]
    return Keypoints(
        points=points.astype(np.float32),
        point_scores=point_scores,
        boxes=(_around(points, point_scores) if boxes is None else boxes).astype(np.float32),
        scores=scores[kept],
        labels=model.labels,
        sigmas=step.sigmas,
    )


_Found = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]


def _from_maps(step: Heatmaps, values: Arrays, transform: ImageTransform | None) -> _Found:
    """Points [1, k, 2] in the model's input, or in the map without a photo, and their scores."""
    maps = values[step.output]
    if maps.ndim != 3 or not -3 <= step.axis < 3 or maps.dtype.kind != "f" or not maps.size:
        wanted = f"output {step.output!r} as floats [points, height, width] a sample"
        raise wrong_outputs(wanted, f"{maps.dtype} {list(maps.shape)}")
    maps = check_numbers(np.moveaxis(np.asarray(maps, np.float32), step.axis, 0), "maps")
    count, height, width = maps.shape
    best = maps.reshape(count, -1).argmax(axis=1)
    rows, columns = np.divmod(best, width)
    peaks = activated(maps.reshape(count, -1), step.activation)[np.arange(count), best]
    places = np.stack([columns, rows], axis=1) + 0.5
    if step.shift:
        places += 0.25 * np.stack(
            [_slope(maps, rows, columns, 2), _slope(maps, rows, columns, 1)], 1
        )
    if transform is not None:
        places *= (transform.end[1] / width, transform.end[0] / height)
    scores = check_probabilities(np.asarray(peaks, np.float32))
    whole = np.array([scores.astype(np.float64).mean()], np.float32)
    return places[None], scores[None], None, whole


def _slope(maps: np.ndarray, rows: np.ndarray, columns: np.ndarray, axis: int) -> np.ndarray:
    """Which neighbour of each map's place is higher: 1 the next, -1 the one before, 0 on edges."""
    at, size = (columns if axis == 2 else rows), maps.shape[axis]
    low, high = np.maximum(at - 1, 0), np.minimum(at + 1, size - 1)
    each = np.arange(len(maps))
    before, after = (
        maps[each, rows, place] if axis == 2 else maps[each, place, columns]
        for place in (low, high)
    )
    return np.asarray(np.where((at > 0) & (at < size - 1), np.sign(after - before), 0.0))


def _from_rows(step: Poses, values: Arrays) -> _Found:
    """Points [n, k, 2] in the model's own unit, with scores and, where there are some, boxes."""
    numbers = sliced(step.points, values, "points", several=True)
    if numbers.shape[1] % step.each:
        raise wrong_outputs(f"{step.each} numbers a point", f"{numbers.shape[1]} a pose")
    numbers = check_numbers(numbers, "points").reshape(len(numbers), -1, step.each)
    point_scores = np.ones(numbers.shape[:2], np.float32)
    if step.each == 3:
        point_scores = _activated(numbers[:, :, 2], step.point_activation)
    scores = np.asarray(point_scores.astype(np.float64).mean(axis=1), np.float32)
    if step.scores is not None:
        joined = step.scores.output == step.points.output  # one axis: the numbers of one pose
        column = sliced(step.scores, values, "scores", several=joined)[:, 0]
        scores = _activated(column, step.activation)
    boxes = None
    if step.boxes is not None:
        boxes = to_xyxy(
            check_numbers(sliced(step.boxes, values, "boxes", several=True), "boxes"), step.form
        )
    if not len(scores) == len(numbers) == (len(numbers) if boxes is None else len(boxes)):
        raise wrong_outputs("as many scores and boxes as poses", f"{len(numbers)}, {len(scores)}")
    return numbers[:, :, :2].astype(np.float64), point_scores, boxes, scores


def _activated(scores: np.ndarray, activation: str) -> np.ndarray:
    made = np.asarray(activated(scores, activation), np.float32)
    return check_probabilities(check_numbers(made, "scores"))


def _kept(step: Heatmaps | Poses, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Indexes of the poses that stay, the surest first."""
    chosen = np.flatnonzero(scores.astype(np.float64) >= step.threshold)
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
    if isinstance(step, Heatmaps):
        return chosen
    if step.nms is None:
        return chosen[: step.most]
    alone = non_max_suppression(boxes[chosen], None, step.nms, step.most)
    return np.asarray(chosen[np.array(alone, int)])


def _around(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The rectangle around the points that count of each pose, of all where none does: [n, 4]."""
    counted = _counted(scores > 0)[:, :, None]
    low = np.where(counted, points, np.inf).min(axis=1, initial=np.inf)
    high = np.where(counted, points, -np.inf).max(axis=1, initial=-np.inf)
    return np.concatenate([low, high], axis=1).reshape(-1, 4)
