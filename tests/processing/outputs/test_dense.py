"""segment/1, depth/1 and frames/1 against scipy and numpy written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from edgeserve.errors import ProcessingError
from edgeserve.processing import Processor
from edgeserve.tasks.depth import Depth, Depths
from edgeserve.tasks.segmentation import Segment, Segmentation
from edgeserve.tasks.voice_activity import Frames, Voice
from edgeserve.types.processing import Processing
from edgeserve.types.steps import OutputStep
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task

RNG = np.random.default_rng(3)


def finish(task: Task, step: OutputStep, y: np.ndarray, labels: tuple[str, ...] = ()) -> list[Any]:
    shape = ("batch", *y.shape[1:])
    spec = TensorSpec(name="y", dtype=y.dtype.name, shape=shape)  # type: ignore[arg-type]
    signature = Signature(inputs=(), outputs=(spec,), dims={"batch": (1, 8)})
    return Processor(Processing(outputs=(step,)), signature, task, labels).finish({"y": y})


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_the_best_class_of_each_pixel(axis: int) -> None:
    scores = RNG.normal(0, 3, (2, 4, 5, 6)).astype(np.float32)
    y = np.moveaxis(scores, 1, axis + 1 if axis >= 0 else axis)
    found = finish("image-segmentation", Segment("y", axis=axis), y, tuple("abcd"))
    for record, each in zip(found, scores.astype(np.float64), strict=True):
        assert isinstance(record, Segmentation)
        np.testing.assert_array_equal(record.mask, each.argmax(0))
        shares = np.sort(softmax(each, 0), axis=0)
        assert record.margin is not None
        np.testing.assert_allclose(record.margin, shares[-1] - shares[-2], atol=1e-6)
        assert (record.mask.dtype, record.mask.shape) == (np.int32, (5, 6))


def test_ties_go_to_the_lower_class() -> None:
    [record] = finish("image-segmentation", Segment("y"), np.zeros((1, 3, 2, 2), np.float32))
    assert record.mask.tolist() == [[0, 0], [0, 0]]
    assert not record.margin.any()


def test_one_score_a_pixel() -> None:
    y = RNG.normal(0, 2, (1, 1, 3, 4)).astype(np.float32)
    step = Segment("y", activation="sigmoid")
    [record] = finish("image-segmentation", step, y, ("ground", "thing"))
    share = expit(y[0, 0].astype(np.float64))
    np.testing.assert_array_equal(record.mask, share >= 0.5)
    np.testing.assert_allclose(record.margin, np.abs(2 * share - 1), atol=1e-6)


def test_classes_that_the_model_has_chosen_itself() -> None:
    y = RNG.integers(0, 3, (1, 1, 4, 5)).astype(np.int64)
    [record] = finish("image-segmentation", Segment("y"), y, ("a", "b", "c"))
    np.testing.assert_array_equal(record.mask, y[0, 0])
    assert record.margin is None


def test_depth_is_passed_on() -> None:
    for shape in ((2, 3, 4), (2, 1, 3, 4), (2, 3, 4, 1)):
        y = RNG.uniform(0, 9, shape).astype(np.float32)
        for record, row in zip(finish("depth-estimation", Depths("y"), y), y, strict=True):
            assert isinstance(record, Depth)
            np.testing.assert_array_equal(record.map, row.reshape(3, 4))


def test_frames() -> None:
    y = RNG.normal(0, 2, (2, 7)).astype(np.float32)
    step = Frames("y", 0.032, activation="sigmoid")
    for record, row in zip(finish("voice-activity", step, y[..., None]), y, strict=True):
        assert isinstance(record, Voice)
        np.testing.assert_allclose(record.prob, expit(row.astype(np.float64)), rtol=1e-6)
        assert record.step_s == 0.032
    logits = RNG.normal(0, 2, (1, 7, 3)).astype(np.float32)
    step = Frames("y", 0.01, activation="softmax", index=1)
    [record] = finish("voice-activity", step, logits)
    np.testing.assert_allclose(record.prob, softmax(logits[0], -1)[:, 1], rtol=1e-5)


REFUSED: dict[str, tuple[str, Task, OutputStep, np.ndarray]] = {
    "no classes": ("008", "image-segmentation", Segment("y"), np.zeros((1, 2, 2), np.float32)),
    "two for sigmoid": (
        "008",
        "image-segmentation",
        Segment("y", activation="sigmoid"),
        np.zeros((1, 2, 2, 2), np.float32),
    ),
    "NaN in a mask": (
        "009",
        "image-segmentation",
        Segment("y"),
        np.full((1, 2, 2, 2), np.nan, np.float32),
    ),
    "logits as they are": (
        "010",
        "image-segmentation",
        Segment("y", activation="none"),
        np.full((1, 2, 2, 2), 7, np.float32),
    ),
    "labels of another model": (
        "007",
        "image-segmentation",
        Segment("y"),
        np.zeros((1, 3, 2, 2), np.float32),
    ),
    "a class beyond the labels": (
        "007",
        "image-segmentation",
        Segment("y"),
        np.full((1, 2, 2), 2, np.int32),
    ),
    "two depths a pixel": (
        "008",
        "depth-estimation",
        Depths("y"),
        np.zeros((1, 2, 3, 4), np.float32),
    ),
    "NaN in depth": (
        "009",
        "depth-estimation",
        Depths("y"),
        np.full((1, 3, 4), np.nan, np.float32),
    ),
    "two numbers a frame": (
        "008",
        "voice-activity",
        Frames("y", 1.0),
        np.zeros((1, 5, 2), np.float32),
    ),
    "no such class": (
        "008",
        "voice-activity",
        Frames("y", 1.0, index=2),
        np.zeros((1, 5, 2), np.float32),
    ),
    "scores of frames": ("010", "voice-activity", Frames("y", 1.0), np.full((1, 5), 9, np.float32)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    code, task, step, y = REFUSED[what]
    labels = ("a", "b") if task == "image-segmentation" else ()
    with pytest.raises(ProcessingError) as refused:
        finish(task, step, y, labels)
    assert refused.value.code == f"EDGE-PROCESS-{code}"
