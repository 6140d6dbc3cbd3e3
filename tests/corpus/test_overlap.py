"""Boxes compared, by hand: what counts as a unit, what as a flip."""

from __future__ import annotations

from typing import Any

import numpy as np

from dev.corpus.oracle.overlap import answered_boxes, box_flips, found_boxes


def boxes(*held: tuple[list[float], float, str]) -> dict[str, np.ndarray]:
    places = np.array([b for b, _, _ in held], float).reshape(-1, 4)
    answer = {"boxes": places, "scores": [s for _, s, _ in held], "labels": [k for _, _, k in held]}
    return answered_boxes([answer])


ONE = ([0, 0, 10, 10], 0.9, "disc")
FAR = ([30, 30, 40, 40], 0.9, "disc")


def shares(mine: Any, theirs: Any) -> tuple[float, float]:
    decided, raw = box_flips(mine, theirs)
    return float(decided[0]), float(raw[0])


def test_the_same_boxes_do_not_differ() -> None:
    assert shares(boxes(ONE, FAR), boxes(FAR, ONE)) == (0.0, 0.0)


def test_a_lost_box_is_one_unit_of_two() -> None:
    assert shares(boxes(ONE, FAR), boxes(ONE)) == (0.5, 0.5)


def test_a_box_of_another_kind_is_lost_and_one_more() -> None:
    assert shares(boxes(ONE), boxes(([0, 0, 10, 10], 0.9, "square"))) == (1.0, 1.0)


def test_half_overlap_is_enough_and_less_is_not() -> None:
    near, off = ([0, 0, 10, 6], 0.9, "disc"), ([0, 0, 10, 4], 0.9, "disc")
    assert shares(boxes(ONE), boxes(near)) == (0.0, 0.0)
    assert shares(boxes(ONE), boxes(off)) == (1.0, 1.0)


def test_unsure_boxes_are_not_decided() -> None:
    unsure = ([0, 0, 10, 10], 0.52, "disc")
    decided, raw = box_flips(boxes(unsure), boxes())
    assert np.isnan(decided[0])
    assert raw[0] == 1.0
    assert shares(boxes(FAR), boxes(FAR, unsure)) == (0.0, 0.0)


def test_suppression_is_within_a_kind() -> None:
    head = np.zeros((1, 6, 3))
    head[0, :4] = np.array([[5, 5, 10, 10], [5.5, 5, 10, 10], [5, 5, 10, 10]]).T
    head[0, 4:] = [[0.9, 0.8, 0.1], [0.1, 0.1, 0.7]]
    step = {
        "boxes": {"start": 0, "stop": 4},
        "scores": {"start": 4},
        "threshold": 0.5,
        "nms": 0.45,
        "form": "cxcywh",
    }
    found = found_boxes(head, step, ["disc", "square"])
    assert found["scores"][0, :3].tolist() == [0.9, 0.7, 0.0]
    assert found["kinds"][0, :2].tolist() == ["disc", "square"]
    assert found["boxes"][0, 0].tolist() == [0, 0, 10, 10]


def test_scores_that_are_no_probabilities_are_no_answer() -> None:
    head = np.zeros((2, 5, 1))
    head[:, :4, 0] = [5, 5, 10, 10]
    head[:, 4, 0] = [1.005, 1.06]
    step = {"boxes": {"start": 0, "stop": 4}, "scores": {"start": 4}, "form": "cxcywh"}
    found = found_boxes(head, step, ["disc"])
    assert (found["scores"] > 0).sum(1).tolist() == [1, 0]


def test_the_form_of_boxes_is_the_steps() -> None:
    head = np.array([2.0, 4.0, 6.0, 10.0, 0.9]).reshape(1, 5, 1)
    step = {"boxes": {"start": 0, "stop": 4}, "scores": {"start": 4}}
    for form, box in (("xyxy", [2, 4, 6, 10]), ("xywh", [2, 4, 8, 14]), ("cxcywh", [-1, -1, 5, 9])):
        found = found_boxes(head, step | {"form": form}, ["disc"])
        assert found["boxes"][0, 0].tolist() == box
