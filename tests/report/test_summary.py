"""The sentences: each follows from the figures, and none says more than they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgeserve.report.load import load_workspace
from edgeserve.report.summary import (
    agreement_phrase,
    evidence_facts,
    headline,
    limitation_facts,
    reference_words,
)
from edgeserve.types.artifact import Reason
from edgeserve.types.reports import LabelStats, MetricStats


@pytest.fixture
def told(desk: Any) -> Callable[..., Any]:
    """Write the workspace and tell its headline."""
    return lambda **fields: headline(load_workspace(desk.write(**fields)))


def test_an_empty_workspace_says_what_to_do(told: Callable[..., Any]) -> None:
    said = told()
    assert said.tone == "unproven"
    assert "Nothing has been converted" in said.sentence
    assert "edgeserve convert" in said.then


@pytest.mark.parametrize(("count", "words"), [(1, "only conversion was"), (2, "All 2 conversions")])
def test_all_refused(count: int, words: str, desk: Any, told: Callable[..., Any]) -> None:
    for precision in ("w8", "fp16")[:count]:
        desk.refuse(precision)
    said = told()
    assert said.tone == "fail"
    assert said.sentence == "No artifact passed."
    assert words in said.evidence


def test_a_pass_with_decisions(desk: Any, told: Callable[..., Any]) -> None:
    desk.report(desk.artifact())
    said = told()
    assert (said.tone, said.word) == ("pass", "Ready")
    assert said.sentence == "ONNX fp32 matches its PyTorch source."
    assert "412 of 412 inputs (330 of them independent). The largest" in said.evidence
    assert "3.1\u00a0\u00d7\u00a010⁻⁶ of the output's scale (limit 10⁻³)" in said.evidence
    assert (
        "detectable flip rate of 0.96\u00a0%" in said.evidence
    )  # 1 - 0.05 ** (1 / (0.94 * 330)), by hand: 0.00961
    assert said.then == ""


def test_a_pass_by_tensors_does_not_speak_of_decisions(desk: Any, told: Callable[..., Any]) -> None:
    desk.report(desk.artifact(), decisions=None)
    said = told()
    assert said.sentence == "ONNX fp32 matches the tensors of its PyTorch source."
    assert "Decisions were not compared" in said.evidence


def test_a_pass_without_its_report_says_so(desk: Any, told: Callable[..., Any]) -> None:
    desk.artifact()
    assert "not in this workspace" in told().evidence


def test_numbers_beyond_the_limit_are_not_called_close(
    desk: Any, told: Callable[..., Any], figures: Any
) -> None:
    desk.report(desk.artifact(), outputs=figures.outputs(0.03))
    assert "largest output difference" not in told().evidence
    desk.report(desk.artifacts[0], outputs=figures.outputs("nan"))
    assert "largest output difference" not in told().evidence


def test_only_fp32_is_judged_by_its_numbers(desk: Any, told: Callable[..., Any]) -> None:
    desk.report(desk.artifact(precision="w8"))
    assert "detectable flip rate 0.96\u00a0%" in told().evidence


def test_of_several_that_pass_the_weakest_evidence_speaks(
    desk: Any, told: Callable[..., Any], figures: Any
) -> None:
    desk.report(desk.artifact())
    desk.report(desk.artifact(precision="fp16"), decisions=figures.decisions(2))
    said = told()
    assert said.sentence.startswith("ONNX fp32 and ONNX fp16 match ")
    assert "Each gives the same answer on at least 409 of 412" in said.evidence


def test_what_else_there_is(full: Any) -> None:
    said = headline(load_workspace(full.root))
    assert said.tone == "pass"
    assert said.then == ("ONNX w8a8 is degraded, ONNX fp16 is unproven and 1 was rejected.")


def test_degraded_gives_the_upper_bound_and_leaves_the_choice(
    desk: Any, told: Callable[..., Any], figures: Any
) -> None:
    desk.report(desk.artifact("degraded", precision="w8a8"), decisions=figures.decisions(8))
    said = told()
    assert said.tone == "degraded"
    assert "ONNX w8a8 is degraded" in said.sentence
    assert "At most 3.7" in said.evidence  # 8/388 + 1.96 * sqrt(p (1 - p) / 310.2), by hand: 3.64 %
    assert "Decide whether this flip rate is acceptable" in said.then


def test_unproven_says_why_and_how_much_more(
    desk: Any, told: Callable[..., Any], figures: Any
) -> None:
    reason = Reason("EDGE-CHECK-012", "the evidence allows a flip rate up to 5 %")
    made = desk.artifact("unproven", reasons=(reason,))
    desk.report(made, decisions=figures.decisions(0, 97, 60, more_groups=90))
    said = told()
    assert said.tone == "unproven"
    assert said.evidence == "The evidence allows a flip rate up to 5 %."
    assert "about 90 more independent inputs" in said.then


@pytest.mark.parametrize(
    ("reported", "recorded", "words"),
    [
        ("pt2", "pt2", "its PyTorch source"),
        ("stored", "pt2", "its PyTorch source"),
        ("stored", None, "the stored answers of its reference"),
        ("stored", "shop.server:predict", "your server (shop.server:predict)"),
        ("shop.server:predict", None, "your server (shop.server:predict)"),
        ("https://gpu.example.com", None, "your server (https://gpu.example.com)"),
    ],
)
def test_only_a_server_is_called_your_server(
    reported: str, recorded: str | None, words: str, desk: Any
) -> None:
    report = desk.report(desk.artifact(), reference=reported)
    assert reference_words(load_workspace(desk.write(reference=recorded)), report) == words


def test_what_was_compared_and_what_was_not(desk: Any) -> None:
    desk.report(desk.artifact())
    loaded = load_workspace(desk.write())
    facts = {f.name: f.value for f in evidence_facts(loaded)}
    assert facts["preprocessing"] == "declared, not compared"
    assert facts["inputs"] == "412 crops of 23 photos; 8 fillers"
    assert facts["answers"].startswith("0 of 412 flipped; of the 388 decided ones, 0")
    assert facts["evidence"].startswith("310 independent inputs")
    missing = {f.name: f.value for f in limitation_facts(loaded)}
    assert "is not detected" in missing["Preprocessing"]
    assert missing["Accuracy against ground truth"] == "not evaluated"
    assert "onnxruntime 1.32.0 (cpu), x86_64" in missing["Other devices"]
    assert missing["Time and memory"] == "not measured: ONNX fp32"


def test_compared_preprocessing_is_not_listed_as_missing(desk: Any) -> None:
    desk.report(desk.artifact(), preprocessing="compared")
    assert "Preprocessing" not in {f.name for f in limitation_facts(load_workspace(desk.write()))}


LABELS = LabelStats("top-1", 400, 23, 0.915, 0.912, 5, 2, -0.012, 0.006, 0.2)
METRIC = MetricStats(
    metric="miou",
    inputs=40,
    groups=20,
    reference=0.8,
    artifact=0.79,
    lower=-0.02,
    upper=0.01,
    lost=9,
    won=1,
    p=0.01,
)


@pytest.mark.parametrize(
    ("found", "inputs"), [({"labels": LABELS}, 400), ({"metrics": (METRIC,)}, 40)]
)
def test_true_labels_that_were_compared_are_not_called_missing(
    desk: Any, found: dict[str, Any], inputs: int
) -> None:
    desk.report(desk.artifact(), **found)
    loaded = load_workspace(desk.write())
    assert "Accuracy against ground truth" not in {f.name for f in limitation_facts(loaded)}
    facts = {f.name: f.value for f in evidence_facts(loaded)}
    assert facts["accuracy against ground truth"].startswith(f"evaluated on {inputs} labelled")


def test_artifacts_without_true_labels_are_named(desk: Any) -> None:
    desk.report(desk.artifact(), labels=LABELS)
    desk.report(desk.artifact(precision="w8"))
    missing = {f.name: f.value for f in limitation_facts(load_workspace(desk.write()))}
    assert missing["Accuracy against ground truth"] == "not evaluated for ONNX w8"


@pytest.mark.parametrize(
    ("precision", "fields", "phrase"),
    [
        ("w8", {}, "decided 388/388, flips \u2264 0.97 % (limit 2 %)"),
        (
            "fp32",
            {},
            "decided 388/388, outputs within 3.1 \u00d7 10\u207b\u2076 (limit 10\u207b\u00b3)",
        ),
        ("fp32", {"decisions": None}, "tensors only"),
    ],
)
def test_the_verdict_follows_from_the_agreement(
    desk: Any, precision: Any, fields: dict[str, Any], phrase: str
) -> None:
    """1 - 0.05 ** (1 / (0.94 * 330)) is 0.961 %, and a bound is rounded up."""
    report = desk.report(desk.artifact(precision=precision), **fields)
    assert agreement_phrase(report).replace("\u00a0", " ") == phrase
