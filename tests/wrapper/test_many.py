"""Boxes and masks through the Wrapper: proven by golden cases, and told in the photo's own pixels.

The models look at colours: a grid of 4 x 4 cells, one box a cell, red or green. What must come out
of a drawn photo is worked out with Pillow and by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from PIL import Image

from edgeserve import tasks
from edgeserve.bundle import open_model
from edgeserve.errors import EdgeError
from edgeserve.files import describe
from edgeserve.processing.steps.cast import Cast
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.tasks.segmentation import Segment, Segmentation
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.records import Record
from edgeserve.types.samples import Golden, GoldenCase
from edgeserve.types.steps import Slice
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper import Wrapper

SIDE, CELL = 32, 8
LABELS = ("red", "green")
READ = InputProcessing(
    name="image",
    steps=(
        Decode(),
        Resize(height=SIDE, width=SIDE, fit="letterbox", fill=(0, 0, 0)),
        Layout(order="CHW"),
        Cast(dtype="float32"),
    ),
)
DETECT = Detect(
    boxes=Slice("head", 0, 0, 4), scores=Slice("head", 0, 4), form="xywh", threshold=0.5, nms=0.5
)


def signature(*shape: int) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
        outputs=(TensorSpec(name="head", dtype="float32", shape=("batch", *shape)),),
        dims={"batch": (1, 8)},
    )


def grid(make: Any, scale: float = 1.0, shift: float = 0.0) -> bytes:
    """[batch, 4 + 2, 4, 4]: the cell's box, and the cell's mean red and green over 255."""
    places = np.arange(0, SIDE, CELL, dtype=np.float32)
    boxes = np.full((1, 4, 4, 4), CELL, np.float32)
    boxes[0, 0], boxes[0, 1] = places[None] + shift, places[:, None] + shift
    picks = np.zeros((2, 3, 1, 1), np.float32)
    picks[0, 0], picks[1, 1] = scale / 255, scale / 255
    nodes = [
        helper.make_node("AveragePool", ["image"], ["cells"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Conv", ["cells", "picks"], ["scores"]),
        helper.make_node("Shape", ["scores"], ["size"], start=0, end=1),
        helper.make_node("Concat", ["size", "rest"], ["whole"], axis=0),
        helper.make_node("Expand", ["boxes", "whole"], ["all"]),
        helper.make_node("Concat", ["all", "scores"], ["head"], axis=1),
    ]
    weights = {"picks": picks, "boxes": boxes, "rest": np.array([4, 4, 4])}
    data: bytes = make.model(nodes, signature(6, 4, 4), weights)
    return data


def photo(*squares: tuple[int, int, int]) -> np.ndarray:
    """64 x 128, of which the model sees 16 x 32 in the middle: (row, column, colour) in cells."""
    image = np.zeros((64, 128, 3), np.uint8)
    for row, column, colour in squares:
        image[32 * row : 32 * row + 32, 32 * column : 32 * column + 32, colour] = 250
    return image


PHOTOS = [
    photo((0, 0, 0)),
    photo((1, 3, 1), (0, 1, 0)),
    photo((0, 2, 1)),
    photo((1, 1, 0), (1, 2, 1)),
]


def wanted(*squares: tuple[int, int, int]) -> Detection:
    """The same squares as boxes of the photo."""
    boxes = [[32 * c, 32 * r, 32 * c + 32, 32 * r + 32] for r, c, _ in squares]
    return Detection(
        boxes=np.float32(boxes).reshape(-1, 4),
        scores=np.full(len(squares), 250 / 255),
        labels=tuple(LABELS[colour] for *_, colour in squares),
    )


RECORDS = [
    wanted((0, 0, 0)),
    wanted((1, 3, 1), (0, 1, 0)),
    wanted((0, 2, 1)),
    wanted((1, 1, 0), (1, 2, 1)),
]


def workspace(
    make: Any,
    data: bytes,
    shape: tuple[int, ...],
    processing: Processing,
    records: list[Record],
    labels: tuple[str, ...] = LABELS,
    task: str = "object-detection",
) -> Path:
    """A workspace with a golden case a photo."""
    given = make.folder / "given"
    (given / "golden").mkdir(parents=True)
    cases = []
    for i, (picture, record) in enumerate(zip(PHOTOS, records, strict=True)):
        name = f"golden/{i:03d}.png"
        (given / name).write_bytes(make.png(picture))
        outputs = None
        if arrays := tasks.sidecar_arrays(record):
            np.savez(given / f"golden/{i:03d}.out.npz", **arrays)
            outputs = describe(given, f"golden/{i:03d}.out.npz")
        cases.append(
            GoldenCase(
                input=describe(given, name),
                medium="image",
                record=tasks.detach_arrays(record),
                outputs=outputs,
                margin=0.3,
                tolerance=0.1,
            )
        )
    make.signature = signature(*shape)
    made = make.made("onnx-fp32", data)
    golden = Golden(origin="generated", cases=tuple(cases))
    root: Path = make.workspace(
        made, golden=golden, task=task, processing=processing, labels=labels
    )
    return root


def detector(make: Any, data: bytes) -> Path:
    processing = Processing(inputs=(READ,), outputs=(DETECT,))
    return workspace(make, data, (6, 4, 4), processing, list(RECORDS))


def test_boxes_in_the_photos_own_pixels(make: Any, tmp_path: Path) -> None:
    with Wrapper(detector(make, grid(make))) as wrapper:
        certificate = wrapper.verify()
        assert certificate.verdict == "pass"
        assert {(each.passed, each.total) for each in certificate.proofs} == {(4, 4)}
        path = tmp_path / "photo.png"
        Image.fromarray(PHOTOS[1]).save(path)
        one = wrapper.predict(str(path))
        many = wrapper.predict([*PHOTOS, np.asarray(Image.new("RGB", (40, 320), (250, 0, 0)))])
    assert isinstance(one, Detection)
    assert one.ran_on is not None
    order = np.argsort(one.boxes[:, 0])
    assert one.boxes[order].tolist() == [[32, 0, 64, 32], [96, 32, 128, 64]]
    assert [one.labels[i] for i in order] == ["red", "green"]
    for record, answer in zip(RECORDS, many[:4], strict=True):
        assert isinstance(answer, Detection)
        assert sorted(answer.boxes.tolist()) == sorted(record.boxes.tolist())
    tall = many[4]  # 4 x 32 in the middle, all of it red: half of two columns, which is not enough
    assert isinstance(tall, Detection)
    assert tall.labels == ()


@pytest.mark.parametrize("broken", [{"scale": 0.0}, {"shift": 5.0}], ids=["no scores", "shifted"])
def test_a_detector_that_is_wrong_is_not_used(make: Any, broken: Any) -> None:
    root = detector(make, grid(make, **broken))
    with open_model(root) as model:
        assert model.manifest.task == "object-detection"
    with pytest.raises(EdgeError) as refused, Wrapper(root, strict=True):
        pass
    assert refused.value.code.startswith("EDGE-WRAPPER-")


def test_masks_are_proven_by_their_clear_pixels(make: Any) -> None:
    """Class scores are the colours themselves; the reference is Pillow's picture."""
    nodes = [helper.make_node("Mul", ["image", "share"], ["head"])]
    data = make.model(nodes, signature(3, SIDE, SIDE), {"share": np.float32([1 / 64])})
    processing = Processing(inputs=(READ,), outputs=(Segment("head"),))
    records: list[Record] = []
    for picture in PHOTOS:
        seen = np.zeros((SIDE, SIDE, 3))
        small = Image.fromarray(picture).resize((32, 16), Image.Resampling.BILINEAR)
        seen[8:24] = np.asarray(small)
        powers = np.exp(seen / 64)
        shares = np.sort(powers / powers.sum(2, keepdims=True), axis=2)
        records.append(
            Segmentation(
                mask=seen.argmax(2), labels=("r", "g", "b"), margin=shares[..., 2] - shares[..., 1]
            )
        )
    root = workspace(
        make, data, (3, SIDE, SIDE), processing, records, ("r", "g", "b"), "image-segmentation"
    )
    bundle = make.bundle(root)
    with Wrapper(bundle) as wrapper:
        certificate = wrapper.verify()
        assert certificate.verdict == "pass", certificate.proofs
        answer = wrapper.predict(PHOTOS[3])
    assert isinstance(answer, Segmentation)
    np.testing.assert_array_equal(answer.mask, records[3].mask)  # type: ignore[union-attr]
