"""Scores of classifications: the largest difference, also where the decision flips."""

from __future__ import annotations

import pytest

from edgeserve.tasks.classification import Classification
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.validate.flips.counter import SingleDecisionCounter


def answer_of(label: str, score: float, *top: tuple[str, float]) -> Classification:
    return Classification(label=label, score=score, top=top)


CAT = answer_of("cat", 0.9, ("cat", 0.9), ("dog", 0.1))


@pytest.mark.parametrize(
    ("answer", "scored", "drift"),
    [
        (answer_of("cat", 0.7, ("cat", 0.7), ("dog", 0.3)), True, 0.2),
        (answer_of("dog", 0.8, ("dog", 0.8), ("cat", 0.2)), True, 0.7),
        (answer_of("dog", 0.8, ("dog", 0.8)), True, None),
        (answer_of("dog", 0.8, ("dog", 0.8), ("cat", 0.2)), False, None),
        (None, True, None),
    ],
    ids=["same label", "another label", "the label is not listed", "labels only", "no answer"],
)
def test_the_score_of_the_references_label_is_compared(
    answer: Classification | None, scored: bool, drift: float | None
) -> None:
    counter = SingleDecisionCounter("image-classification")
    stored = StoredAnswer(input_sha256="0" * 64, record=CAT, margin=0.8, scored=scored)
    counter.add(Sample(id="a", group="a"), stored, answer)
    found = counter.drift()
    assert found is None if drift is None else float(found or 0) == pytest.approx(drift)
