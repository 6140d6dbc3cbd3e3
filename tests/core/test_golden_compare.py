"""When an answer is the reference's: worked out by hand on vectors in the plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgeserve.golden_compare import GoldenComparison, compare_arrays, compare_records
from edgeserve.tasks import decision_rule
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.types.records import Tensors
from edgeserve.types.samples import GoldenField


def at(*degrees: float, length: float = 1.0) -> list[Embedding]:
    """Vectors of the plane at these angles."""
    return [
        Embedding(vector=np.float32([length * math.cos(a), length * math.sin(a)]))
        for a in map(math.radians, degrees)
    ]


def compared(
    references: Sequence[Any], answers: Sequence[object], tolerance: float
) -> list[GoldenComparison]:
    return compare_records(references, answers, [tolerance] * len(references))


def test_vectors_may_turn_as_far_as_the_tolerance() -> None:
    turn = 1 - math.cos(math.radians(2))
    found = compared(at(0, 90, 100), at(2, 92, 102, length=7.0), 1.01 * turn)
    assert [each.wrong for each in found] == ["", "", ""]
    assert [each.difference for each in found] == pytest.approx([turn] * 3, rel=1e-3)
    leads = [math.cos(math.radians(90)) - math.cos(math.radians(100))]
    leads += [math.cos(math.radians(10)) - math.cos(math.radians(a)) for a in (90, 100)]
    assert [each.margin for each in found] == pytest.approx(leads, abs=1e-5)
    strict = compared(at(0, 90, 100), at(2, 92, 102), 0.99 * turn)
    assert all(each.wrong.startswith("wanted a cosine distance within") for each in strict)


def test_a_neighbour_that_changes_is_a_fault_though_every_vector_is_near() -> None:
    """45 leans to 90 by little, and to 0 in the answers; all turn by at most three degrees."""
    wanted, got = at(0, 46, 90), at(1, 45, 93)
    lead = math.cos(math.radians(44)) - math.cos(math.radians(46))
    turned = 1 - math.cos(math.radians(3))
    assert turned < lead
    middle = compared(wanted, got, 1.1 * turned)[1]
    assert middle.wrong == "wanted case 2 as its nearest neighbour, got case 0"
    forgiven = compared(wanted, got, 1.1 * lead)
    assert [each.wrong for each in forgiven] == ["", "", ""], "the reference barely prefers one"


def test_two_that_say_the_same_may_be_each_others_neighbour_in_either_order() -> None:
    wanted, got = at(10, 20, 20, 80), at(10, 20.01, 19.99, 80)
    assert [each.wrong for each in compared(wanted, got, 1e-6)] == ["", "", "", ""]


def test_two_cases_have_no_lead_and_one_has_no_neighbour() -> None:
    assert [each.wrong for each in compared(at(0, 90), at(0, 90), 1e-6)] == ["", ""]
    [alone] = compared(at(0), at(0), 1e-6)
    assert (alone.wrong, alone.margin) == ("", None)


def test_vectors_of_another_kind_never_hold() -> None:
    longer = Embedding(vector=np.ones(3, np.float32))
    nan = Embedding(vector=np.float32([np.nan, 1]))
    zero = Embedding(vector=np.zeros(2, np.float32))
    for answer in (longer, nan, zero, Tensors(), None):
        found = compared(at(0, 50, 90), [*at(0, 50), answer], 0.5)
        assert found[2].wrong, answer
    assert "vector of 3" in compared(at(0), [longer], 0.5)[0].wrong


def test_classifications_are_compared_one_by_one() -> None:
    def record(label: str, score: float) -> Classification:
        return Classification(label=label, score=score, top=((label, score), ("z", 1 - score)))

    cat = record("cat", 0.9)
    right, softer, other = compared([cat] * 3, [cat, record("cat", 0.8), record("dog", 0.9)], 0.05)
    assert (right.wrong, right.difference, right.margin) == ("", 0.0, pytest.approx(0.8))
    assert softer.wrong == "wanted cat 0.90, got cat 0.80 (scores may differ by 0.05)"
    assert other.wrong == "wanted cat 0.90, got dog 0.90"


def test_arrays_are_compared_on_their_own_scale() -> None:
    wanted = {"y": np.float32([[100, -1]]), "z": np.float32([1e-3])}
    near = {"y": np.float32([[100.05, -1]]), "z": np.float32([1.0005e-3])}
    assert compare_arrays(wanted, near, 1e-3).wrong == ""
    assert compare_arrays(wanted, near, 1e-3).difference == pytest.approx(5e-4, rel=1e-2)
    assert compare_arrays(wanted, near, 1e-4).wrong.startswith("output y: wanted within 0.0001")
    assert "got nothing" in compare_arrays(wanted, {"y": wanted["y"]}, 1).wrong
    assert "got shape [2]" in compare_arrays(wanted, wanted | {"z": np.zeros(2)}, 1).wrong


def many(task: Any, reference: Any, answer: Any, tolerance: float) -> GoldenComparison:
    from edgeserve.tasks.detection import Detect
    from edgeserve.types.processing import Processing
    from edgeserve.types.steps import Slice

    step = Detect(boxes=Slice("y", 0, 0, 4), scores=Slice("y", 0, 4), threshold=0.5)
    rule = decision_rule(task, Processing(outputs=(step,) if task == "object-detection" else ()))
    [found] = compare_records([reference], [answer], [tolerance], rule)
    return found


def test_boxes_hold_where_the_sure_ones_do() -> None:
    two = np.float32([[0, 0, 10, 10], [20, 20, 30, 30]])
    wanted = Detection(boxes=two, scores=np.float32([0.9, 0.62]), labels=("cat", "dog"))
    without = Detection(boxes=two[:1] + 1, scores=np.float32([0.8]), labels=("cat",))
    strict, loose = (many("object-detection", wanted, without, t) for t in (0.01, 0.3))
    assert strict.wrong.endswith("1 of 2 clear boxes are others")
    assert loose.wrong == "", "0.62 is no surer than the tolerance"
    assert loose.difference == pytest.approx(0.1)
    assert loose.margin == pytest.approx(0.3)
    for answer in (
        Detection(boxes=two[:1] + 9, scores=np.float32([0.9]), labels=("cat",)),
        Detection(boxes=two[:1], scores=np.float32([0.9]), labels=("dog",)),
        Detection(boxes=two[:0], scores=two[0, :0], labels=()),
    ):
        assert "are others" in many("object-detection", wanted, answer, 0.3).wrong
    assert "0 of 0" in many("object-detection", wanted, wanted, 0.45).wrong, "proves nothing"
    assert "got NoneType" in many("object-detection", wanted, None, 0.1).wrong


def test_pixels_hold_where_the_sure_ones_do() -> None:
    margin = np.float32([[0.9, 0.2]])
    wanted = Segmentation(mask=np.int32([[1, 0]]), labels=(), margin=margin)
    unsure, sure = (Segmentation(mask=np.int32(m), labels=()) for m in ([[1, 1]], [[0, 0]]))
    assert many("image-segmentation", wanted, unsure, 0.3).wrong == ""
    assert "1 of 2 clear pixels" in many("image-segmentation", wanted, unsure, 0.1).wrong
    assert "1 of 1 clear pixels" in many("image-segmentation", wanted, sure, 0.3).wrong


BOXES = GoldenField(output="y", word="boxes", scale=640.0, axis=1, runs=((0, 4),))
SCORES = GoldenField(output="y", word="scores", scale=0.9, axis=1, runs=((4, 7),))


def head() -> np.ndarray:
    """Boxes in hundreds of pixels beside scores below one: [1, 7, 10]."""
    rng = np.random.default_rng(1)
    boxes, scores = rng.uniform(0, 640, (1, 4, 10)), rng.uniform(0, 0.9, (1, 3, 10))
    return np.concatenate([boxes, scores], 1).astype(np.float32)


def test_a_device_that_is_wrong_on_a_small_field_is_seen() -> None:
    """Every score is zero: 0.9 of 640 is a thousandth, and all of a score."""
    wanted, broken = head(), head()
    broken[:, 4:] = 0
    lost = wanted[:, 4:].max()
    whole = compare_arrays({"y": wanted}, {"y": broken}, 2e-3)
    assert whole.wrong == "", "on one scale for all nothing is seen"
    found = compare_arrays({"y": wanted}, {"y": broken}, 2e-3, (BOXES, SCORES))
    assert found.wrong.startswith("scores field of output y: wanted within 0.002 of its scale")
    assert found.difference == pytest.approx(lost / 0.9, rel=1e-6)
    assert compare_arrays({"y": wanted}, {"y": wanted + 1e-3}, 2e-3, (BOXES, SCORES)).wrong == ""


def test_a_case_beyond_what_its_field_usually_shows_is_weighed_by_itself() -> None:
    wanted = head()
    wanted[:, 4:] *= 100
    near = wanted.copy()
    near[:, 4] += 0.05
    found = compare_arrays({"y": wanted}, {"y": near}, 1e-3, (BOXES, SCORES))
    assert found.wrong == ""
    assert found.difference == pytest.approx(0.05 / wanted[:, 4:].max(), rel=1e-3)


def test_whole_numbers_are_compared_as_such() -> None:
    classes = np.array([[901, 17, 3]])
    field = GoldenField(output="c", word="classes", scale=1.0)
    off = compare_arrays({"c": classes}, {"c": classes + np.array([0, 0, 1])}, 2e-3, (field,))
    assert "got 1" in off.wrong
    assert compare_arrays({"c": classes}, {"c": classes}, 2e-3, (field,)).wrong == ""


def test_fields_that_do_not_fit_an_output_hide_nothing() -> None:
    """A manifest's word is no reason to look at less."""
    wanted = head()
    beyond = GoldenField(output="y", word="scores", scale=1.0, axis=1, runs=((4, 900),))
    assert compare_arrays({"y": wanted}, {"y": wanted * 2}, 1e-3, (beyond,)).wrong
    other = GoldenField(output="z", word="scores", scale=1.0)
    assert compare_arrays({"y": wanted}, {"y": wanted * 2}, 1e-3, (other,)).wrong


def test_equal_infinities_are_equal_and_the_rest_is_compared() -> None:
    inf, nan = np.inf, np.nan
    wanted = {"y": np.float32([[inf, -inf, 2.0, 1.0]])}
    near = {"y": np.float32([[inf, -inf, 2.0, 1.001]])}
    found = compare_arrays(wanted, near, 1e-3)
    assert found.wrong == ""
    assert found.difference == pytest.approx(0.0005, rel=1e-3), "of the largest finite number"
    fields = [GoldenField(output="y", word="values", scale=0.5, axis=None)]
    assert compare_arrays(wanted, near, 1e-3, fields).wrong == ""
    for other in ([inf, inf, 2, 1], [inf, 3, 2, 1], [inf, nan, 2, 1], [inf, -inf, inf, 1]):
        assert compare_arrays(wanted, {"y": np.float32([other])}, 1e-3).difference == inf
    far = {"y": np.float32([[inf, -inf, 2.0, 1.1]])}
    assert compare_arrays(wanted, far, 1e-3).difference == pytest.approx(0.05, rel=1e-3)


def test_the_largest_float_stands_for_infinity() -> None:
    least = np.finfo(np.float32).min
    wanted, masked = np.float32([least, 1.0]), np.float32([-np.inf, 1.0])
    assert compare_arrays({"y": wanted}, {"y": masked}, 1e-3).wrong == ""
    off = np.float32([least, 1.5])
    assert compare_arrays({"y": wanted}, {"y": off}, 1e-3).difference == pytest.approx(0.5)


def test_outputs_of_no_numbers_and_of_one() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert compare_arrays({"y": empty}, {"y": empty}, 1e-3).wrong == ""
    assert compare_arrays({"y": np.float32(2)}, {"y": np.float32(3)}, 1e-3).difference == 0.5
