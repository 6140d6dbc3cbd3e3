"""`Processor` as a whole: what it refuses when it is made, and what it does with its input."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgeserve.errors import InputError, ProcessingError
from edgeserve.processing import Processor, normalize_from
from edgeserve.processing.steps.cast import Cast
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.tasks.classification import Classification
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.records import Tensors
from edgeserve.types.steps import InputStep, OutputStep
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Task

PHOTO = np.random.default_rng(5).integers(0, 256, (48, 64, 3), np.uint8)
SCALED = normalize_from(1 / 255, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
STEPS: tuple[InputStep, ...] = (
    Decode(),
    Resize(height=20, width=20, fit="shortest-edge", filter="bicubic"),
    CenterCrop(height=16, width=16),
    SCALED,
    Layout(order="CHW"),
)


def spec(name: str, shape: Shape, dtype: Any = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


IMAGE = spec("image", ("batch", 3, 16, 16))
LOGITS = spec("logits", ("batch", 4))


def make(
    steps: tuple[InputStep, ...] = STEPS,
    outputs: tuple[OutputStep, ...] = (Softmax(output="logits"), TopK(output="logits")),
    inputs: tuple[TensorSpec, ...] = (IMAGE,),
    gives: tuple[TensorSpec, ...] = (LOGITS,),
    task: Task = "image-classification",
    labels: tuple[str, ...] = ("a", "b", "c", "d"),
    names: tuple[str, ...] = ("image",),
) -> Processor:
    processing = Processing(
        inputs=tuple(InputProcessing(name=name, steps=steps) for name in names), outputs=outputs
    )
    dims = {"batch": (1, 8), "side": (8, 32)}
    return Processor(processing, Signature(inputs=inputs, outputs=gives, dims=dims), task, labels)


def by_hand(rgb: np.ndarray) -> np.ndarray:
    """The steps with Pillow and numpy."""
    image = Image.fromarray(rgb).resize((26, 20), Image.Resampling.BICUBIC)
    cut = np.asarray(image.crop((5, 2, 21, 18)))
    scaled = cut.astype(np.float32) * np.float32(SCALED.scale) + np.float32(SCALED.bias)
    return scaled.transpose(2, 0, 1)


def test_photo_to_decision() -> None:
    processor = make()
    assert processor.medium == "image"
    sample = processor.prepare(PHOTO)
    assert list(sample) == ["image"]
    assert np.array_equal(sample["image"], by_hand(PHOTO))
    batch = processor.batch([sample, sample])
    assert batch["image"].shape == (2, 3, 16, 16)
    assert processor.check_feed(batch)["image"] is batch["image"]
    first, second = processor.finish({"logits": np.float32([[0, 3, 1, 2], [9, 0, 0, 0]])})
    assert isinstance(first, Classification)
    assert isinstance(second, Classification)
    assert [label for label, _ in first.top] == ["b", "d", "c", "a"]
    assert (second.label, second.index) == ("a", 0)


def test_steps_are_told_with_their_time() -> None:
    told: list[tuple[str, float]] = []
    make().prepare(PHOTO, lambda name, seconds: told.append((name, seconds)))
    assert [name for name, _ in told] == ["decode", "resize", "center_crop", "normalize+layout"]
    assert all(seconds >= 0 for _, seconds in told)
    told.clear()
    steps = (Decode(), CenterCrop(height=16, width=16))
    levels = make(steps=steps, inputs=(spec("image", (1, 16, 16, 3), "uint8"),))
    levels.prepare(PHOTO, lambda name, seconds: told.append((name, seconds)))
    assert [name for name, _ in told] == ["decode", "center_crop", "array"]


def test_inputs_that_decode_alike_share_the_picture() -> None:
    told: list[str] = []
    other = spec("other", ("batch", 3, 16, 16))
    processor = make(inputs=(IMAGE, other), names=("image", "other"))
    sample = processor.prepare(PHOTO, lambda name, _: told.append(name))
    assert told.count("decode") == 1
    assert told.count("resize") == 2
    assert np.array_equal(sample["image"], sample["other"])
    assert not np.shares_memory(sample["image"], sample["other"])


def test_one_processor_serves_many_threads() -> None:
    processor = make()
    photos = [np.roll(PHOTO, n, axis=1) for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        tensors = list(pool.map(lambda photo: processor.prepare(photo)["image"], photos))
    for photo, tensor in zip(photos, tensors, strict=True):
        assert np.array_equal(tensor, by_hand(photo))


def test_a_batch_of_one_is_a_view() -> None:
    processor = make()
    sample = processor.prepare(PHOTO)
    assert np.shares_memory(processor.batch([sample])["image"], sample["image"])


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [{"x": np.zeros((3, 4))}, {"x": np.zeros((3, 5))}],
        [{"x": np.zeros((3, 4))}, {"y": np.zeros((3, 4))}],
    ],
)
def test_samples_that_are_no_batch(samples: list[dict[str, np.ndarray]]) -> None:
    with pytest.raises(InputError) as refused:
        make().batch(samples)
    assert refused.value.code == "EDGE-INPUT-016"


def test_a_size_that_depends_on_the_picture() -> None:
    wide = spec("image", ("batch", 3, "side", "side"))
    free = (Decode(), SCALED, Layout(order="CHW"))
    processor = make(steps=free, inputs=(wide,))
    assert processor.prepare(PHOTO[:20, :20])["image"].shape == (3, 20, 20)
    for rgb in (PHOTO, PHOTO[:20, :21], PHOTO[:7, :7]):  # too large, not square, too small
        with pytest.raises(InputError, match="input 'image'") as refused:
            processor.prepare(rgb)
        assert refused.value.code == "EDGE-INPUT-017"


def test_without_steps_callers_bring_tensors() -> None:
    processor = make(names=())
    assert processor.medium == "tensors"
    with pytest.raises(InputError, match=r"named tensors \['image'\]") as refused:
        processor.prepare(b"bytes")
    assert refused.value.code == "EDGE-INPUT-007"


def test_plain_tensors_come_back_by_sample() -> None:
    gives = (spec("y", ("batch", 2, 3)), spec("z", ("batch",)))
    processor = make(names=(), gives=gives, task="tensors", outputs=(Softmax(output="y", axis=0),))
    y = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    results = processor.finish({"y": y, "z": np.arange(4.0), "unknown": y})
    assert len(results) == 4
    for row, result in enumerate(results):
        assert isinstance(result, Tensors)
        assert sorted(result) == ["y", "z"]
        np.testing.assert_allclose(result["y"].sum(axis=0), 1, rtol=1e-6)  # axis 0 of the sample
        assert result["z"] == row


def test_classification_may_lack_output_steps_and_labels() -> None:
    processor = make(outputs=(), labels=())
    [record] = processor.finish({"logits": np.float32([[0.1, 0.2, 0.3, 0.4]])})
    assert isinstance(record, Classification)
    assert (record.label, len(record.top)) == ("3", 4)


def test_half_precision_scores_are_scores() -> None:
    [record] = make(outputs=()).finish({"logits": np.float16([[0.125, 0.25, 0.5, 0.125]])})
    assert isinstance(record, Classification)
    assert record.score == 0.5


WRONG_OUTPUTS = {
    "missing": {"other": np.zeros((1, 4), np.float32)},
    "three dimensions": {"logits": np.zeros((1, 4, 1), np.float32)},
    "no batch": {"logits": np.zeros((), np.float32)},
    "no classes": {"logits": np.zeros((1, 0), np.float32)},
    "integers": {"logits": np.zeros((1, 4), np.int64)},
}


@pytest.mark.parametrize("name", WRONG_OUTPUTS)
def test_outputs_of_another_form(name: str) -> None:
    processor = make(outputs=())
    with pytest.raises(ProcessingError) as refused:
        processor.finish(WRONG_OUTPUTS[name])
    assert refused.value.code == "EDGE-PROCESS-008"


def test_outputs_that_disagree_on_the_batch() -> None:
    processor = make(gives=(LOGITS, spec("z", ("batch", 1))), task="tensors", outputs=())
    with pytest.raises(ProcessingError, match="share a batch axis"):
        processor.finish({"logits": np.zeros((2, 4)), "z": np.zeros((3, 1))})


def test_softmax_over_an_axis_that_is_not_there() -> None:
    processor = make(outputs=(Softmax(output="logits", axis=1),))
    with pytest.raises(ProcessingError, match="axis 1"):
        processor.finish({"logits": np.zeros((2, 4), np.float32)})
    backwards = make(outputs=(Softmax(output="logits", axis=-2),))
    with pytest.raises(ProcessingError, match="axis -2"):  # the batch is not the sample's
        backwards.finish({"logits": np.zeros((2, 4), np.float32)})


def test_labels_are_counted_when_the_classes_are_known_late() -> None:
    late = make(gives=(spec("logits", ("batch", "side")),))
    with pytest.raises(ProcessingError) as refused:
        late.finish({"logits": np.zeros((1, 9), np.float32)})
    assert refused.value.code == "EDGE-PROCESS-007"


FIXED = (Decode(), Resize(height=16, width=16), SCALED, Layout(order="CHW"))
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "task without its step": ("030", {"task": "object-detection"}),
    "text from pictures": ("005", {"task": "text-classification"}),
    "no steps for an input": ("002", {"inputs": (IMAGE, spec("other", ("batch", 2)))}),
    "steps for no input": ("002", {"names": ("image", "imagee")}),
    "dtype": ("003", {"steps": FIXED[:2]}),
    "layout": ("003", {"steps": FIXED[:3]}),
    "size": ("003", {"steps": (Decode(), Resize(height=16, width=17), *FIXED[2:])}),
    "no batch axis": ("003", {"inputs": (spec("image", (3, 16, 16)),)}),
    "size out of range": (
        "003",
        {
            "inputs": (spec("image", ("batch", 3, "side", "side")),),
            "steps": (Decode(), Resize(height=64, width=64), SCALED, Layout(order="CHW")),
        },
    ),
    "a gigantic target": ("004", {"steps": (Decode(), Resize(height=65_535, width=65_535))}),
    "a crop of the same": ("004", {"steps": (Decode(), CenterCrop(height=65_535, width=65_535))}),
    "two channels": ("004", {"steps": (Decode(), Normalize(scale=(1.0,) * 2, bias=(0.0,) * 2))}),
    "order": ("001", {"steps": (Decode(), Cast(dtype="float32"), SCALED)}),
    "output name": ("006", {"outputs": (Softmax(output="scores"),)}),
    "ranked tensors": ("006", {"task": "tensors", "outputs": (TopK(output="logits"),)}),
    "which output": ("006", {"gives": (LOGITS, spec("z", ("batch", 4))), "outputs": ()}),
    "ranked twice": ("006", {"outputs": (TopK(output="logits"), TopK(output="logits"))}),
    "labels": ("007", {"labels": ("a", "b", "c")}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_the_first_picture(name: str) -> None:
    code, changes = REFUSED[name]
    with pytest.raises(ProcessingError) as refused:
        make(**changes)
    assert refused.value.code == f"EDGE-PROCESS-{code}"


def test_a_shortest_edge_after_a_fixed_size_is_fixed_too() -> None:
    steps = (
        Decode(),
        Resize(height=32, width=64),
        Resize(height=16, width=16, fit="shortest-edge"),
    )
    with pytest.raises(ProcessingError, match=r"got \[batch, 3, 16, 32\]"):
        make(steps=(*steps, SCALED, Layout(order="CHW")))


def test_softmax_names_the_scores_among_several_outputs() -> None:
    processor = make(gives=(spec("z", ("batch", 7)), LOGITS), outputs=(Softmax(output="logits"),))
    scores, other = np.float32([[0, 0, 5, 0]]), np.zeros((1, 7), np.float32)
    [record] = processor.finish({"logits": scores, "z": other})
    assert isinstance(record, Classification)
    assert record.label == "c"


def test_pillow_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ProcessingError, match="wanted Pillow") as refused:
        make().prepare(b"bytes")
    assert refused.value.code == "EDGE-PROCESS-011"


def test_importing_processing_loads_no_pillow() -> None:
    import subprocess

    code = "import sys, edgeserve.processing, edgeserve.tasks; print('PIL' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
