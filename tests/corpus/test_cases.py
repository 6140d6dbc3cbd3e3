"""A few cases of each task from end to end: trained, converted, damaged, measured, judged."""

from __future__ import annotations

import pytest

from dev.corpus.cases import Case, nets
from dev.corpus.judging import run_case
from dev.corpus.scoring import class_of
from dev.corpus.tasks import NAMES


def _first(task: str) -> str:
    return nets([task])[0].name


#: Half of the time; their gate has tests of its own (tests/validate/test_judge_*.py).
LONG = ("boxes", "segments")


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [pytest.param(n, marks=[pytest.mark.zoo] * (n in LONG)) for n in NAMES]
)
def test_an_honest_artifact_does_no_harm_and_a_spoiled_one_does(task: str) -> None:
    honest = run_case(Case(_first(task), "onnx", "fp32"))
    spoiled = run_case(Case(_first(task), "onnx", "fp32", "signs-flipped", 0))
    assert honest["harm"]["raw"] < 0.01
    assert honest["harm"]["strays"] < 1e-4
    assert honest["harm"]["n"] > 500
    assert (class_of(honest), honest["verdict"]) == ("good", "pass")
    assert spoiled["harm"]["lower"] > 0.03
    assert class_of(spoiled) != "bad" or spoiled["verdict"] == "fail"
    assert spoiled["verdict"] != "pass"
