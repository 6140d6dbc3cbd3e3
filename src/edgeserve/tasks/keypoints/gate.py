"""Poses: average precision by likeness (OKS), what a reference may answer, and true poses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from edgeserve.data.ground_truth import (
    CocoImage,
    LineInput,
    TruthReader,
    bad_box,
    check_within,
    is_crowd,
    read_raw,
    truth_error,
)
from edgeserve.tasks.answers import Fields, field_answers, unreadable_record
from edgeserve.tasks.average_precision import (
    ClassMatches,
    FoundRow,
    MatchedFigures,
    average_precisions,
    match_class,
)
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.keypoints import COCO_SIGMAS, SCHEMA, Keypoints, TruePose, TruePoses
from edgeserve.tasks.keypoints.device import AREA_SHARE, match_poses, oks
from edgeserve.tasks.matching import OVERLAP, visible_things
from edgeserve.tasks.metrics import TaskMetrics
from edgeserve.types.records import Record
from edgeserve.types.steps import Size

#: Poses of a picture that count, as COCO evaluates keypoints.
_MOST = 20


def likeness(truth: Sequence[TruePose], found: np.ndarray, sigmas: Sequence[float]) -> np.ndarray:
    """OKS of each pose found with each true one, float64 [n, m], as COCO has it.

    Of a true pose without a labelled point, points that lie within its box made three times as
    large are right.

    Args:
        truth: The true poses.
        found: xy [n, k, 2].
        sigmas: Of the points [k].
    """
    if not len(truth) or not len(found):
        return np.zeros((len(found), len(truth)))
    given = np.array([pose.points for pose in truth], np.float64).reshape(len(truth), -1, 3)
    areas = np.array([pose.area for pose in truth])
    labelled = given[:, :, 2] > 0
    alike = oks(given[:, :, :2], labelled, areas, found, np.asarray(sigmas)).T
    for j in np.flatnonzero(~labelled.any(axis=1)).tolist():
        x0, y0, x1, y1 = truth[j].xyxy
        size = np.array([x1 - x0, y1 - y0])
        inside = np.clip(found, np.array([x0, y0]) - size, np.array([x1, y1]) + size)
        beyond = np.asarray(found, np.float64) - inside
        nothing = np.ones((1, found.shape[1]), bool)
        zero = np.zeros((1, *found.shape[1:]))
        alike[:, j] = oks(zero, nothing, areas[j : j + 1], beyond, np.asarray(sigmas))[0]
    return alike


def _pose_row(truth: TruePoses, reference: Record | None, answer: Record | None) -> FoundRow:
    """What both sides found in one picture; a side that holds no poses found nothing.

    Raises:
        DataError: EDGE-DATA-024, the true poses have another number of points than the model's.
    """
    wanted = sum(not pose.crowd for pose in truth.poses)
    sides = (_matched(truth, reference), _matched(truth, answer))
    return FoundRow({"pose": wanted} if wanted else {}, sides)


def _matched(truth: TruePoses, record: Record | None) -> dict[str, ClassMatches]:
    if not isinstance(record, Keypoints):
        return {}
    count = record.points.shape[1]
    if any(len(pose.points) != 3 * count for pose in truth.poses):
        got = f"{len(truth.poses[0].points) // 3} points a pose"
        raise _bad_pose("true poses", f"{count} points a pose, as the model's", got)
    indexes = visible_things(record.scores, record.floor, SCHEMA.sure)
    alike = likeness(truth.poses, record.points[indexes], record.sigmas or COCO_SIGMAS)
    crowd = np.array([pose.crowd for pose in truth.poses], bool)
    return {"pose": match_class(alike, record.scores[indexes].astype(np.float64), crowd, _MOST)}


def _against(rule: DecisionRule, reference: Keypoints, answer: Keypoints | None) -> FoundRow:
    """The reference's own poses as the truth."""
    kept = np.flatnonzero(reference.scores >= rule.threshold).tolist()
    return _pose_row(TruePoses(tuple(_as_true(reference, i) for i in kept)), answer, None)


def _as_true(record: Keypoints, i: int) -> TruePose:
    counted = record.point_scores[i] > 0
    flags = counted if counted.any() else np.ones_like(counted)
    points = np.concatenate([record.points[i], flags[:, None]], axis=1).astype(np.float64)
    x0, y0, x1, y1 = (float(edge) for edge in record.boxes[i])
    area = AREA_SHARE * max(0.0, x1 - x0) * max(0.0, y1 - y0)
    return TruePose(tuple(points.ravel().tolist()), area, (x0, y0, x1, y1))


METRICS = TaskMetrics(
    figures=lambda rule: MatchedFigures("oks", partial(match_poses, rule), partial(_against, rule)),
    titles={"map50": "mAP at OKS 0.5", "oks": "mean OKS of matched poses"},
    row=lambda truth, place, reference, answer: _pose_row(truth, reference, answer),
    read=average_precisions,
)


_FORM = (
    "points [n, k, 2] (x and y in pixels of the upright photo), scores [n] and, optionally,"
    " point_scores [n, k] and boxes [n, 4]"
)


def _from_fields(fields: Fields, labels: Sequence[str]) -> Keypoints:
    points, scores = np.asarray(fields["points"]), np.asarray(fields["scores"])
    sure = np.asarray(fields.get("point_scores", np.ones(points.shape[:2])))
    boxes = fields.get("boxes")
    if boxes is None:
        boxes = np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)
    return Keypoints(
        points=points,
        point_scores=sure,
        boxes=np.asarray(boxes),
        scores=scores,
        labels=tuple(labels),
        sigmas=tuple(float(each) for each in fields.get("sigmas", ())),
    )


def _check(record: Keypoints, labels: Sequence[str], thing: str) -> None:
    if labels and record.points.shape[1] != len(labels):
        got = f"{record.points.shape[1]} points of a model with {len(labels)}"
        raise unreadable_record(Keypoints, _FORM, thing, got)


def _complete(rule: DecisionRule, record: Keypoints, near: Keypoints) -> Keypoints:
    """Add what the program nearly found: poses below the threshold that are not the record's own.

    So no invention is excused as a close call.
    """
    given = TruePoses(tuple(_as_true(record, i) for i in range(len(record.scores))))
    sigmas = record.sigmas or near.sigmas
    own = likeness(given.poses, near.points, sigmas or COCO_SIGMAS).max(axis=1, initial=0)
    new = np.flatnonzero((near.scores < rule.threshold) & (own < OVERLAP))
    joined = {
        name: np.concatenate([getattr(record, name), getattr(near, name)[new]])
        for name in ("points", "point_scores", "boxes", "scores")
    }
    return msgspec.structs.replace(
        record, **joined, sigmas=sigmas, floor=rule.threshold - rule.sure
    )


ANSWERS = field_answers(
    Keypoints,
    _FORM,
    _from_fields,
    finite=lambda r: (r.points, r.point_scores, r.boxes, r.scores),
    shares=lambda r: (r.point_scores, r.scores),
    check=_check,
    complete=_complete,
)


_bad_pose = partial(
    truth_error,
    "EDGE-DATA-024",
    "poses are [x, y, v, ...], three numbers a point, in pixels of the upright photo; v is 0"
    " where a point is not labelled",
)


def _true_pose(
    numbers: Sequence[float],
    where: str,
    size: Size | None,
    area: float | None = None,
    xywh: Sequence[float] | None = None,
    *,
    crowd: bool = False,
) -> TruePose:
    """A checked pose; without labelled points it counts for nothing."""
    if not numbers or len(numbers) % 3 or not np.isfinite(numbers).all():
        raise _bad_pose(where, "three numbers a point: x, y, v", f"{len(numbers)} numbers")
    points = np.reshape(np.asarray(numbers, np.float64), (-1, 3))
    points[:, 2] = points[:, 2] > 0
    labelled = points[points[:, 2] > 0, :2]
    if len(labelled):
        low, high = labelled.min(axis=0), labelled.max(axis=0)
        check_within("a pose", low, high, size, where, _bad_pose)
        corners = (*low.tolist(), *high.tolist())
    if xywh is not None and len(xywh) == 4:
        corners = (xywh[0], xywh[1], xywh[0] + xywh[2], xywh[1] + xywh[3])
    elif not len(labelled):
        raise _bad_pose(where, "a labelled point, or a box", "neither")
    x0, y0, x1, y1 = (float(edge) for edge in corners)
    covered = AREA_SHARE * max(0.0, x1 - x0) * max(0.0, y1 - y0) if area is None else area
    flat = tuple(points.ravel().tolist())
    return TruePose(flat, covered, (x0, y0, x1, y1), crowd or not len(labelled))


def _from_line(given: list[list[float]], line: LineInput) -> TruePoses:
    poses = enumerate(given, 1)
    return TruePoses(
        tuple(_true_pose(pose, f"{line.where}, pose {i}", line.size) for i, pose in poses)
    )


def _from_coco(image: CocoImage) -> TruePoses:
    found = []
    corners: Any = list[float] | None
    number: Any = float | None
    for where, note in image.notes:
        numbers = read_raw(note.keypoints, list[float], where, "[x, y, v, ...]", _bad_pose)
        box = read_raw(note.bbox, corners, where, "[left, top, width, height]", bad_box)
        area = read_raw(note.area, number, where, "an area", _bad_pose)
        crowd = is_crowd(note)
        found.append(_true_pose(numbers, where, image.size, area, box, crowd=crowd))
    return TruePoses(tuple(found))


TRUTH = TruthReader(
    key="poses",
    type=list[list[float]],
    from_line=_from_line,
    coco=("keypoints", "bbox", "area", "iscrowd"),
    from_coco=_from_coco,
    classes=False,
)
