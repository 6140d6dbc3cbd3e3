"""Decisions: the language-neutral cases, and laws that hold for any pair of classifications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.decisions import DECIDED_MARGIN, decided, describe, margin, same, same_top
from edgeserve.errors import ProcessingError
from edgeserve.types.base import decode, encode
from edgeserve.types.records import Classification, Detection, Record

LISTING = json.loads(
    (Path(__file__).parent / "conformance" / "decisions" / "cases.json").read_text()
)


def record(value: dict[str, Any]) -> Record:
    return decode(json.dumps(value), Record)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", LISTING["cases"], ids=lambda case: case["id"])
def test_conformance(case: dict[str, Any]) -> None:
    reference, answer = record(case["reference"]), record(case["answer"])
    if "error" in case:
        with pytest.raises(ProcessingError) as refused:
            same(reference, answer)
        assert refused.value.code == case["error"]
        return
    assert same(reference, answer) is case["same"]
    assert same_top(reference, answer, case["k"]) is case["same_top"]
    assert margin(reference) == case["margin"]
    assert decided(reference) is case["decided"]
    assert describe(reference) == case["describe"]


def test_the_cases_use_the_margin_in_force() -> None:
    assert set(DECIDED_MARGIN.values()) == {LISTING["decided_margin"]}


@st.composite
def classifications(draw: st.DrawFn) -> Classification:
    """Whatever a classifier of a few classes can answer, probabilities in exact 1/1024."""
    classes = draw(st.integers(1, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 1024), min_size=classes - 1, max_size=classes - 1)))
    scores = np.diff([0, *cuts, 1024]) / 1024
    order = np.argsort(-scores, kind="stable").tolist()
    known = draw(st.booleans())
    return Classification(
        label=f"c{order[0] % 4}",
        score=float(scores[order[0]]),
        top=tuple((f"c{index % 4}", float(scores[index])) for index in order),
        index=order[0] if known else -1,
        indexes=tuple(order) if known else (),
    )


@given(classifications(), classifications(), st.integers(1, 6))
def test_laws(first: Classification, second: Classification, k: int) -> None:
    assert same(first, first)
    assert same_top(first, first, k)
    assert same(first, second) == same(second, first)
    assert same_top(first, second, k) == same_top(second, first, k)
    sure = margin(first)
    assert sure is not None
    assert 0 <= sure <= 1
    # Keeping the best class only can make a decision look less sure, never surer.
    alone = msgspec.structs.replace(first, top=first.top[:1], indexes=first.indexes[:1])
    bound = margin(alone)
    assert bound is not None
    assert bound <= sure


@given(classifications())
def test_json_keeps_every_answer(first: Classification) -> None:
    again = decode(encode(first), Record)  # type: ignore[arg-type]
    assert same(first, again)
    assert margin(first) == margin(again)


@pytest.mark.parametrize("act", [margin, decided, describe])
def test_other_records_are_refused(act: Any) -> None:
    boxes = Detection(boxes=np.zeros((1, 4)), scores=np.ones(1), labels=("cat",))
    with pytest.raises(ProcessingError, match="Detection, which is not handled"):
        act(boxes)


def test_as_many_indexes_as_entries() -> None:
    with pytest.raises(ValueError, match="1 indexes for 2 entries"):
        Classification(label="a", score=1.0, top=(("a", 1.0), ("b", 0.0)), index=0, indexes=(0,))
