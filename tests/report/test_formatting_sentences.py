"""One sentence about an artifact, for people who know no statistics."""

from __future__ import annotations

from typing import Any

import pytest

from edgeserve.report.formatting import (
    accuracy_sentence,
    flip_sentence,
    metric_sentence,
    task_metrics,
)
from edgeserve.types.reports import DecisionStats, LabelStats, MetricStats, Rate, WorstInput


def flips(count: int, n: int) -> Rate:
    return Rate(count=count, n=n, rate=count / n, lower=0.0, upper=0.1, n_eff=float(n))


def said(desk: Any, raw: int, decided: int, margins: tuple[float, ...] = (), **fields: Any) -> str:
    task = fields.pop("task", "image-classification")
    stats = DecisionStats(
        task=task,
        inputs=1000,
        groups=330,
        raw=flips(raw, 1000),
        decided=flips(decided, 950),
        minimum_harm=0.009,
        unit="boxes" if task == "object-detection" else "inputs",
    )
    worst = tuple(
        WorstInput(
            id=str(i),
            path=None,
            reference="cat 0.4",
            answer="dog 0.4",
            margin=margin,
            difference=0.1,
            flipped=True,
        )
        for i, margin in enumerate(margins)
    )
    return flip_sentence(desk.report(desk.artifact(), decisions=stats, worst=worst))


def test_close_calls_say_how_close(desk: Any) -> None:
    assert said(desk, 3, 0, (0.04, 0.01, 0.02)) == (
        "3 of 1\u202f000 photos get another label; the reference's margin is at most 0.04 on each"
        " of them. Detectable flip rate: 0.9\u00a0% with 330 independent inputs."
    )


def test_decided_answers_that_flip_are_counted(desk: Any) -> None:
    assert "; 2 of them are decided answers." in said(desk, 5, 2, (0.3, 0.2, 0.01))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("image-classification", "None of 1\u202f000 photos gets another label."),
        ("feature-extraction", "None of 1\u202f000 inputs gets another nearest neighbour."),
        ("object-detection", "None of 1\u202f000 boxes gets another answer."),
    ],
)
def test_no_flip(desk: Any, task: str, words: str) -> None:
    assert said(desk, 0, 0, task=task).startswith(words)


def test_without_decisions_there_is_no_sentence(desk: Any) -> None:
    assert flip_sentence(desk.report(desk.artifact(), decisions=None)) == ""


def test_true_labels() -> None:
    stats = LabelStats("top-1", 1000, 330, 0.915, 0.912, 5, 2, -0.012, 0.006, 0.2)
    assert accuracy_sentence(stats) == (
        "correct on 91.2\u00a0% of 1\u202f000 labelled inputs, the reference on 91.5\u00a0%: -0.30"
        " points, one-sided 95\u00a0% bounds -1.20 and +0.60; 5 lost, 2 gained (p = 0.2)"
    )


def test_a_metric_against_true_labels_is_told_with_its_bounds() -> None:
    stats = MetricStats(
        metric="wer",
        inputs=40,
        groups=20,
        reference=0.1,
        artifact=0.15,
        lower=0.02,
        upper=0.08,
        lost=9,
        won=1,
        p=0.0107,
    )
    said = metric_sentence(stats).replace("\u00a0", " ")
    assert said == (
        "0.15 on 40 labelled inputs, the reference 0.1; one-sided 95 % bounds of the difference "
        "+0.02 and +0.08; 9 of 20 groups worse, 1 better (p = 0.011)"
    )


def test_figures_of_a_task_have_names_and_unknown_ones_their_own() -> None:
    stats = DecisionStats(
        task="object-detection",
        inputs=10,
        groups=10,
        raw=flips(0, 10),
        decided=flips(0, 10),
        minimum_harm=0.1,
        figures={"map50": 0.5, "kl_worst": 0.25, "odd": 2.0},
    )
    assert task_metrics(stats) == [
        ("mAP at IoU 0.5", "0.5"),
        ("largest KL divergence, nats", "0.25"),
        ("odd", "2"),
    ]
