"""A server that never changes its answer is told from one whose inputs are alike."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.types.records import Record
from edgeserve.types.samples import StoredAnswer
from edgeserve.validate.checks.reference_sanity import ConstantReferenceCheck


def classified(label: str, score: float) -> Classification:
    return Classification(label=label, score=score, top=((label, score),))


def found(*boxes: tuple[float, ...]) -> Detection:
    array = np.array(boxes, np.float32).reshape(-1, 4)
    return Detection(boxes=array, scores=np.full(len(array), 0.9), labels=("a",) * len(array))


def steady(said: list[Record], programs: list[Record], scored: bool = True) -> bool:
    watch = ConstantReferenceCheck()
    for record, program in zip(said, programs, strict=True):
        watch.add(
            StoredAnswer(input_sha256="0" * 64, record=record, margin=0.5, scored=scored), program
        )
    return watch.steady


MOVING: list[Record] = [classified("ab"[i % 2], 0.5 + i / 100) for i in range(20)]


@pytest.mark.parametrize("count", [3, 20])
def test_the_same_score_to_everything(count: int) -> None:
    assert steady([classified("b", 0.9)] * count, MOVING[:count])


def test_nothing_found_anywhere_where_the_program_finds_things() -> None:
    assert steady([found()] * 4, [found(), found((0, 0, 9, 9)), found(), found((1, 1, 5, 5))])


def test_what_a_sound_server_may_say() -> None:
    assert not steady(MOVING, MOVING)
    assert not steady([classified("b", 0.9)] * 2, MOVING[:2]), "two are no rule"
    scores: list[Record] = [classified("b", 0.9 + i / 1000) for i in range(20)]
    assert not steady(scores, MOVING), "one class, but each in its own way"
    assert not steady([found()] * 20, [found()] * 20), "scenes with nothing in them"
    assert not steady([classified("b", 0.9)] * 20, [classified("a", 0.5)] * 20), "a still model"


def test_bare_labels_need_more_and_a_program_that_says_others() -> None:
    bare: list[Record] = [classified("a", 0.0)] * 20
    cats: list[Record] = [classified("a", 0.9 + i / 1000) for i in range(20)]
    assert not steady(bare, cats, scored=False), "photos of cats alone"
    assert not steady(bare[:7], MOVING[:7], scored=False)
    assert steady(bare, MOVING, scored=False)
