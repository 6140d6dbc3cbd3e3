"""What a callable may answer in tasks of many decisions, and how answers are stored and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import tasks
from edgeserve.errors import ValidateError
from edgeserve.tasks import DecisionRule
from edgeserve.tasks.answers import check_size
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.keypoints import Keypoints
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.token_classification import Span, Tokens
from edgeserve.tasks.voice_activity import Voice
from edgeserve.types.base import encode
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task
from edgeserve.validate.reference.python_callable import parse_answer
from edgeserve.validate.reference_store import split_arrays
from edgeserve.validate.run_artifact import flip_counter
from edgeserve.validate.stats import binomial

SIGNATURE = Signature(
    inputs=(), outputs=(TensorSpec(name="y", dtype="float32", shape=("n", 3)),), dims={"n": (1, 4)}
)
LABELS = ("cat", "dog")

GOOD: dict[Task, tuple[Any, Any]] = {
    "object-detection": (
        Detection(boxes=[[0, 0, 2, 2]], scores=[0.5], labels=("dog",)),  # type: ignore[arg-type]
        {"boxes": [[0, 0, 2, 2]], "scores": [0.5], "labels": [1]},
    ),
    "keypoint-detection": (
        Keypoints(
            points=[[[1, 2], [3, 5]]],  # type: ignore[arg-type]
            point_scores=[[1, 1]],  # type: ignore[arg-type]
            boxes=[[1, 2, 3, 5]],  # type: ignore[arg-type]
            scores=[0.5],  # type: ignore[arg-type]
            labels=LABELS,
            sigmas=(0.5, 0.5),
        ),
        {"points": [[[1, 2], [3, 5]]], "scores": [0.5], "sigmas": [0.5, 0.5]},
    ),
    "image-segmentation": (
        Segmentation(mask=np.eye(2, dtype=int), labels=LABELS),
        {"mask": np.eye(2, dtype=np.int64)},
    ),
    "depth-estimation": (Depth(map=np.ones((2, 3))), {"map": np.ones((2, 3))}),
    "token-classification": (
        Tokens(spans=(Span(start=0, end=2, label="X", score=0.5),)),
        {"spans": [(0, 2, "X", 0.5)]},
    ),
    "text-generation": (
        Text(tokens=(1, 2), text="a b"),
        {"tokens": np.array([1, 2]), "text": "a b"},
    ),
    "voice-activity": (Voice(prob=[0.5], step_s=0.1), {"prob": [0.5], "step_s": 0.1}),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("task", GOOD)
def test_a_record_or_its_fields(task: Task) -> None:
    record, fields = GOOD[task]
    for answer in (record, fields):
        said = parse_answer(answer, task, SIGNATURE, LABELS, "it")
        assert said.scored
        assert encode(said.record) == encode(record)


BOX: dict[str, Any] = {"boxes": [[0, 0, 1, 1]], "scores": [1]}
BAD: dict[str, tuple[Task, Any, str]] = {
    "a label": ("object-detection", "cat", "006"),
    "no scores": ("object-detection", {"boxes": [], "labels": []}, "006"),
    "fewer labels": ("object-detection", {**BOX, "labels": []}, "006"),
    "three numbers": ("object-detection", {**BOX, "boxes": [[0, 0, 1]], "labels": [0]}, "006"),
    "half a class": ("object-detection", {**BOX, "labels": [0.5]}, "006"),
    "no such class": ("object-detection", {**BOX, "labels": [7]}, "006"),
    "no such label": ("object-detection", {**BOX, "labels": ["owl"]}, "007"),
    "three points of two": (
        "keypoint-detection",
        {"points": [[[0, 0]] * 3], "scores": [1], "sigmas": [1, 1, 1]},
        "006",
    ),
    "a score that is none": (
        "keypoint-detection",
        {"points": [[[0, 0]] * 2], "scores": [2], "sigmas": [1, 1]},
        "006",
    ),
    "NaN": ("depth-estimation", {"map": [[np.nan]]}, "006"),
    "another record": ("depth-estimation", GOOD["voice-activity"][0], "006"),
}


@pytest.mark.parametrize("what", BAD)
def test_not_understood(what: str) -> None:
    task, answer, code = BAD[what]
    with pytest.raises(ValidateError) as refused:
        parse_answer(answer, task, SIGNATURE, LABELS, "it")
    assert refused.value.code == f"EDGE-VALIDATE-{code}"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"boxes": [[50, 60, 20, 30]], "labels": ["a"]}, "x, y, width, height"),
        ({"boxes": [[0, 0, 1e12, 5]], "labels": ["a"]}, "beyond any picture"),
        ({"boxes": [[0, 0, 9, 9], [0, 0, 5, 5]], "labels": [True, False]}, "truth value"),
        ({"boxes": [[0, 0, 9, 9]], "labels": [5]}, "class 5 of a model with 2"),
    ],
)
def test_boxes_that_contradict_themselves(fields: dict[str, Any], told: str) -> None:
    answer = fields | {"scores": [0.9] * len(fields["boxes"])}
    with pytest.raises(ValidateError) as caught:
        parse_answer(answer, "object-detection", SIGNATURE, ("a", "b"), "answer")
    assert caught.value.code == "EDGE-VALIDATE-006"
    assert told in f"{caught.value.message} {caught.value.hint}"


def complete(record: Any, program: Any) -> Any:
    task = "image-segmentation" if isinstance(record, Segmentation) else "text-generation"
    answers = tasks.answers_of(task)
    assert answers is not None
    return answers.complete(DecisionRule(task, 0.05), record, program)


def test_the_programs_margins_stand_in() -> None:
    mask, margin = np.zeros((2, 2)), np.full((2, 2), 0.25)
    program = Segmentation(mask=mask, labels=LABELS, margin=margin)
    whole = complete(Segmentation(mask=mask, labels=()), program)
    assert isinstance(whole, Segmentation)
    assert whole.margin is not None
    assert (whole.margin.tolist(), whole.labels) == (margin.tolist(), LABELS)
    told = complete(Text(tokens=(1,), text=""), Text(tokens=(2,), text="", margins=(0.5,)))
    assert isinstance(told, Text)
    assert told.margins == (0.5,)
    with pytest.raises(ValidateError) as refused:
        check_size(Segmentation(mask=np.zeros((4, 4)), labels=()), program, "it")
    assert refused.value.code == "EDGE-VALIDATE-030"


def test_large_arrays_are_set_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    masks = [
        Segmentation(
            mask=rng.integers(0, 9, (64, 64)), labels=LABELS, margin=rng.uniform(0, 1, (64, 64))
        )
        for _ in range(3)
    ]
    stored = [StoredAnswer(input_sha256="0" * 64, record=mask, margin=1.0) for mask in masks]
    bare, file = split_arrays(tmp_path, stored)
    assert file is not None
    assert len(encode(bare)) < 1000
    with np.load(tmp_path / file.path) as arrays:
        again = [
            tasks.attach_arrays(
                each.record,
                {n: arrays[f"{i}.{n}"] for n in ("mask", "margin")},  # type: ignore[arg-type]
            )
            for i, each in enumerate(bare)
        ]
    assert [encode(each) for each in again] == [encode(mask) for mask in masks]
    boxes = [StoredAnswer(input_sha256="0", record=GOOD["object-detection"][0], margin=0.1)]
    assert split_arrays(tmp_path, boxes) == (tuple(boxes), None)


def test_a_groups_share_counts_once() -> None:
    """One photo of a hundred boxes, all lost, beside nineteen of one box each, all kept."""
    rule = DecisionRule("object-detection", 0.05, 0.5)
    tally = flip_counter(rule)
    nothing = Detection(boxes=[], scores=[], labels=())  # type: ignore[arg-type]

    def boxes(count: int) -> Detection:
        corner = np.arange(count)[:, None] * 10.0
        return Detection(
            boxes=np.concatenate([corner, corner, corner + 8, corner + 8], 1),
            scores=np.full(count, 0.9),
            labels=("cat",) * count,
        )

    for i in range(20):
        wanted = boxes(100 if i == 0 else 1)
        sample = Sample(id=str(i), group=str(i), path="x")
        stored = StoredAnswer(input_sha256="0", record=wanted, margin=0.4)
        tally.add(sample, stored, nothing if i == 0 else wanted)
    tally.add(  # nothing to find, nothing found: no observation
        Sample(id="empty", group="empty", path="x"),
        StoredAnswer(input_sha256="0", record=nothing, margin=0.0),
        nothing,
    )
    stats = tally.stats(Limits())
    assert (stats.inputs, stats.groups, stats.unit) == (21, 21, "boxes")
    assert (stats.decided.n, stats.decided.count, stats.decided.n_eff) == (119, 100, 20)
    assert stats.decided.lower == pytest.approx(binomial.lower_bound(1, 20))
    assert stats.decided.upper == pytest.approx(binomial.upper_bound(100 * 20 / 119, 20))
    assert stats.minimum_harm == pytest.approx(1 - 0.05 ** (1 / 20))
    worst = tally.worst({})
    assert (worst[0].id, worst[0].flipped, worst[1].flipped) == ("0", True, False)
    assert (worst[0].reference, worst[0].answer) == ("100 cat (surest: cat 0.90)", "no box")
    # Recall ends at 19 of 119: beyond 0.15 there is no precision, below it is 1.
    assert stats.figures["map50"] == pytest.approx(16 / 101)
