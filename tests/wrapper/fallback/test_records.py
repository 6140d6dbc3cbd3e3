"""Decisions that a model cannot make: fields of a right record of each task are changed one by one.

An endpoint's own records come this way; `test_replies` has the replies that carry them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper.fallback.replies import BadReply, check_record, longest_reply, sizes_of

MODEL_ID = "a" * 64


def manifest(task: Any, shape: Any, step: Any, labels: Any = (), dims: Any = None) -> Manifest:
    """A model whose only output [batch, *shape] is read by one step."""
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", *shape)),),
        dims={"batch": (1, 4)} | (dims or {}),
    )
    steps = [] if step is None else [step]
    processing = msgspec.convert({"outputs": steps}, Processing)
    return Manifest(
        edgeserve="1.0",
        name="m",
        version=1,
        min_wrapper="0.1.0",
        model_id=MODEL_ID,
        task=task,
        signature=signature,
        processing=processing,
        labels=labels,
    )


def at(first: int, last: int) -> dict[str, Any]:
    return {"output": "y", "start": first, "stop": last}


DETECTOR = manifest(
    "object-detection",
    (10, 6),
    {"step": "detect/1", "boxes": at(0, 4), "scores": at(4, 6), "most": 2},
    ("cat", "dog"),
)
MASKS = manifest("image-segmentation", (2, 2, 3), {"step": "segment/1", "output": "y"}, ("a", "b"))
DEPTHS = manifest(
    "depth-estimation", (1, 2, "w"), {"step": "depth/1", "output": "y"}, dims={"w": (1, 4)}
)
VOICE = manifest("voice-activity", (4,), {"step": "frames/1", "output": "y", "step_s": 0.5})
VECTORS = manifest("feature-extraction", (3,), None)
SPANS = manifest(
    "token-classification",
    ("n", 3),
    {"step": "spans/1", "output": "y"},
    ("O", "B-PER", "I-PER"),
    {"n": (1, 8)},
)
TEXTS = manifest(
    "text-generation", ("n", 9), {"step": "tokens/1", "output": "y"}, dims={"n": (1, 4)}
)
POSES = manifest(
    "keypoint-detection",
    (5, 6),
    {"step": "poses/1", "points": at(0, 6), "most": 1, "sigmas": [0.1, 0.1]},
    ("l", "r"),
)
BOX = {"record": "detection", "boxes": [[0, 0, 2, 2]], "scores": [0.9], "labels": ["cat"]}
MASK = {"record": "segmentation", "mask": [[0, 1, 0], [1, 1, 1]], "labels": ["a", "b"]}
SPAN = {"record": "tokens", "spans": [{"start": 0, "end": 3, "label": "PER", "score": 0.9}]}
TEXT = {"record": "text", "tokens": [1, 2], "text": "a\nb", "margins": [0.5, 0.5]}
POSE = {
    "record": "keypoints",
    "points": [[[0, 0], [1, 1]]],
    "point_scores": [[0.5, 0.5]],
    "boxes": [[0, 0, 1, 1]],
    "scores": [0.5],
    "labels": ["l", "r"],
    "sigmas": [0.1, 0.1],
}


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (
            DETECTOR,
            BOX,
            [
                {"labels": ["tea"]},
                {"scores": [1.5]},
                {"scores": ["nan"]},
                {"boxes": [["inf", 0, 2, 2]]},
                {"boxes": [[2, 2, 0, 0]]},
                {"boxes": [[0, 0, 1e12, 2]]},
                {"boxes": [[0, 0, 1, 1]] * 3, "scores": [0.9] * 3, "labels": ["cat"] * 3},
            ],
        ),
        (
            MASKS,
            MASK,
            [
                {"labels": ["a", "c"]},
                {"labels": []},
                {"mask": [[0, 2, 0], [1, 1, 1]]},
                {"mask": [[0, -1, 0], [1, 1, 1]]},
                {"mask": [[0, 1], [1, 1]]},
                {"margin": [[0.5, 0.5, 2.0], [0.5, 0.5, 0.5]]},
            ],
        ),
        (
            DEPTHS,
            {"record": "depth", "map": [[1.0], [2.0]]},
            [
                {"map": [[1.0]]},
                {"map": [["nan"], [2.0]]},
                {"map": [[1e35], [2.0]]},
                {"map": [[1.0] * 5] * 2},
            ],
        ),
        (
            VOICE,
            {"record": "voice", "prob": [0.5] * 4, "step_s": 0.5},
            [{"prob": [0.5] * 5}, {"prob": [2.0] * 4}, {"step_s": 0.1}, {"step_s": 1e300}],
        ),
        (
            VECTORS,
            {"record": "embedding", "vector": [1, 2, 3]},
            [{"vector": [1, 2]}, {"vector": ["nan", 1, 2]}],
        ),
        (
            SPANS,
            SPAN,
            [
                {"spans": [SPAN["spans"][0] | change]}  # type: ignore[index]
                for change in (
                    {"label": "B-PER"},
                    {"label": "LOC"},
                    {"end": 9},
                    {"start": 3},
                    {"start": -1},
                    {"score": 3.0},
                )
            ],
        ),
        (
            TEXTS,
            TEXT,
            [
                {"text": "\x1b[2J"},
                {"text": "\u202e"},
                {"tokens": [-1, 2]},
                {"tokens": [1] * 5, "margins": []},
                {"margins": [0.5, 7.0]},
            ],
        ),
        (
            POSES,
            POSE,
            [
                {"labels": ["l", "x"]},
                {"scores": [2.0]},
                {"point_scores": [[0.5, 2.0]]},
                {"points": [[["nan", 0], [1, 1]]]},
            ],
        ),
    ],
    ids=lambda value: value.task if isinstance(value, Manifest) else "",
)
def test_records_of_each_task(model: Manifest, good: Any, bad: list[Any]) -> None:
    """Fields of a right record are changed one by one."""
    check_record(decode(json.dumps(good), AnyRecord), model, 8)
    for other in (DETECTOR, MASKS, VECTORS):
        if other.task != model.task:
            with pytest.raises(BadReply, match="another task"):
                check_record(decode(json.dumps(good), AnyRecord), other, 8)
    for change in bad:
        with pytest.raises((BadReply, msgspec.ValidationError)):
            check_record(decode(json.dumps(good | change), AnyRecord), model, 8)


def test_a_reply_is_as_long_as_its_answer_can_be() -> None:
    """64 bytes a number, and a mebibyte: what is longer is cut off while it arrives."""
    two = {"x": np.zeros((2, 2), np.float32)}
    for model, feed, numbers in ((VOICE, two, 8), (VOICE, None, 4), (SPANS, None, 24)):
        sizes = sizes_of(model.signature, feed)
        assert longest_reply(model.signature, sizes) == (1 << 20) + 64 * numbers
    text = TensorSpec(name="y", dtype="string", shape=(1,))
    unknown = msgspec.structs.replace(VOICE.signature, outputs=(text,))
    assert longest_reply(unknown, sizes_of(unknown, two)) is None
