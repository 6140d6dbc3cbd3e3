"""detect/1 and the way back to the photo, against definitions written out and real pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from edgeserve.errors import ProcessingError
from edgeserve.processing import Processor
from edgeserve.processing.steps.cast import Cast
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.tasks.detection.device import iou, non_max_suppression, to_xyxy
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import InputStep, Slice
from edgeserve.types.tensors import Shape, Signature, TensorSpec

SIDE = 64


def overlap_by_hand(a: Any, b: Any) -> float:
    """Of whole pixels: counted one by one."""
    cells = [
        {(x, y) for x in range(int(r[0]), int(r[2])) for y in range(int(r[1]), int(r[3]))}
        for r in (a, b)
    ]
    union = len(cells[0] | cells[1])
    return len(cells[0] & cells[1]) / union if union else 0.0


def suppressed_by_hand(boxes: Any, kinds: Any, limit: float, most: int) -> list[int]:
    """The definition: take the best that is left, throw out what it overlaps by too much."""
    left, kept = list(range(len(boxes))), []
    while left and len(kept) < most:
        best = left.pop(0)
        kept.append(best)
        left = [
            i
            for i in left
            if kinds[i] != kinds[best] or overlap_by_hand(boxes[best], boxes[i]) <= limit
        ]
    return kept


BOX = st.tuples(*[st.integers(0, 7)] * 2, *[st.integers(0, 6)] * 2).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@given(
    st.lists(st.tuples(BOX, st.integers(0, 1)), max_size=8),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(1, 5),
    st.booleans(),
)
@settings(max_examples=60)
def test_suppression_is_the_greedy_definition(
    drawn: list[Any], limit: float, most: int, per_class: bool
) -> None:
    boxes = np.array([box for box, _ in drawn], float).reshape(-1, 4)
    kinds = np.array([kind for _, kind in drawn], int)
    for i, one in enumerate(boxes):
        for j, other in enumerate(boxes):
            assert iou(boxes, boxes)[i, j] == pytest.approx(overlap_by_hand(one, other))
    wanted = suppressed_by_hand(boxes, kinds if per_class else kinds * 0, limit, most)
    assert non_max_suppression(boxes, kinds if per_class else None, limit, most) == wanted


def test_forms_of_a_box() -> None:
    wanted = [[10.0, 20.0, 16.0, 24.0]]
    forms = {
        "xyxy": (10, 20, 16, 24),
        "yxyx": (20, 10, 24, 16),
        "cxcywh": (13, 22, 6, 4),
        "xywh": (10, 20, 6, 4),
    }
    for form, given_ in forms.items():
        assert to_xyxy(np.float32([given_]), form).tolist() == wanted, form


def spec(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=("batch", *shape))


def detector(
    step: Detect,
    *outputs: TensorSpec,
    steps: tuple[InputStep, ...] | None = None,
    labels: tuple[str, ...] = (),
    before: tuple[Any, ...] = (),
) -> Processor:
    made = (
        ()
        if steps is None
        else (
            InputProcessing(
                name="image", steps=(Decode(), *steps, Layout(order="CHW"), Cast(dtype="float32"))
            ),
        )
    )
    side: Shape = ("batch", 3, "h", "w")
    dims = {"batch": (1, 8), "h": (1, 999), "w": (1, 999), "n": (1, 999)}
    signature = Signature(
        inputs=(TensorSpec(name="image", dtype="float32", shape=side),), outputs=outputs, dims=dims
    )
    return Processor(
        Processing(inputs=made, outputs=(*before, step)), signature, "object-detection", labels
    )


JOINED = Detect(boxes=Slice("y", 0, 0, 4), scores=Slice("y", 0, 4))

WAYS: dict[str, tuple[InputStep, ...]] = {
    "letterbox": (Resize(height=SIDE, width=96, fit="letterbox"),),
    "stretched": (Resize(height=SIDE, width=96),),
    "shortest edge, then the middle": (
        Resize(height=SIDE, width=SIDE, fit="shortest-edge"),
        CenterCrop(height=SIDE, width=SIDE),
    ),
    "the middle of a larger frame": (CenterCrop(height=400, width=390),),
    "twice": (
        Resize(height=200, width=160, fit="letterbox"),
        CenterCrop(height=150, width=120),
        Resize(height=90, width=90),
    ),
    "as it is": (),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(310, 240), (200, 330)])
def test_what_is_found_in_the_tensor_lies_there_in_the_photo(
    way: str, size: tuple[int, int]
) -> None:
    """A rectangle is drawn, looked for in what the model sees, and its place told back."""
    photo = np.zeros((*size, 3), np.uint8)
    centre = (size[1] // 2, size[0] // 2)
    box = np.array([centre[0] - 44, centre[1] - 60, centre[0] + 36, centre[1] + 20])
    photo[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
    made = detector(JOINED, spec("y", 5, "n"), steps=WAYS[way])
    feed = made.batch([made.prepare(photo)])
    seen = feed["image"][0, 0] - feed["image"][0, 1]
    rows, columns = np.flatnonzero(seen.max(1) > 127), np.flatnonzero(seen.max(0) > 127)
    found = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    [record] = made.finish({"y": np.float32([*found, 0.9]).reshape(1, 5, 1)}, feed)
    assert isinstance(record, Detection)
    pixel = max(size) / min(feed["image"].shape[2:])  # one of the model's, in the photo
    np.testing.assert_allclose(record.boxes[0], box, atol=max(1.0, pixel))


def test_boxes_end_at_the_edge_of_the_photo() -> None:
    made = detector(JOINED, spec("y", 5, "n"), steps=WAYS["letterbox"])
    feed = made.batch([made.prepare(np.zeros((100, 50, 3), np.uint8))])
    # 64 x 32 in the middle of 64 x 96: the photo starts at column 32, two photo pixels a pixel.
    rows = [(0, 0, 96, 64, 0.9), (40, 10, 50, 20, 0.8), (0, 0, 31, 64, 0.7), (90, 0, 80, 9, 0.6)]
    [record] = made.finish({"y": np.float32(rows).T[None]}, feed)
    assert isinstance(record, Detection)
    scale = 100 / 64
    assert record.boxes.tolist() == [
        [0, 0, 50, 100],
        [8 * scale, 10 * scale, 18 * scale, 20 * scale],
    ]
    assert record.scores.tolist() == pytest.approx([0.9, 0.8])


def test_every_sample_of_a_batch_has_its_own_photo() -> None:
    made = detector(JOINED, spec("y", 5, "n"), steps=WAYS["stretched"])
    photos = [np.zeros((h, w, 3), np.uint8) for h, w in ((64, 96), (640, 192))]
    feed = made.batch([made.prepare(photo) for photo in photos])
    row = np.float32([48, 32, 96, 64, 0.9]).reshape(1, 5, 1)
    found = made.finish({"y": np.repeat(row, 2, axis=0)}, feed)
    boxes = [each.boxes[0].tolist() for each in found if isinstance(each, Detection)]
    assert boxes == [[48, 32, 96, 64], [96, 320, 192, 640]]


def test_tensors_without_a_photo_stay_in_the_models_unit() -> None:
    made = detector(JOINED, spec("y", 5, "n"))
    row = np.float32([-5, 0, 7, 8, 0.9]).reshape(1, 5, 1)
    [record] = made.finish({"y": row}, {"image": np.zeros((1, 3, 4, 4), np.float32)})
    assert isinstance(record, Detection)
    assert record.boxes.tolist() == [[-5, 0, 7, 8]]


def test_the_joined_map_of_a_grid() -> None:
    """[4 + 2, 3, 5] a sample, as convolutions give it: 15 boxes."""
    rng = np.random.default_rng(0)
    y = rng.uniform(0, 30, (1, 6, 3, 5)).astype(np.float32)
    y[:, 2:4] += 31
    y[:, 4:] = rng.normal(0, 2, (1, 2, 3, 5))
    step = Detect(
        boxes=Slice("y", 0, 0, 4), scores=Slice("y", 0, 4, 6), activation="sigmoid", threshold=0.4
    )
    [record] = detector(step, spec("y", 6, 3, 5), labels=("a", "b")).finish({"y": y})
    assert isinstance(record, Detection)
    flat = y[0].reshape(6, 15).T
    scores = expit(flat[:, 4:].astype(np.float64))
    chosen = [i for i in np.argsort(-scores.max(1), kind="stable") if scores[i].max() >= 0.4]
    np.testing.assert_array_equal(record.boxes, flat[chosen, :4])
    np.testing.assert_allclose(record.scores, scores.max(1)[chosen], rtol=1e-6)
    assert record.labels == tuple("ab"[scores[i].argmax()] for i in chosen)


def test_queries_with_a_class_for_nothing() -> None:
    """As DETR gives them: relative centres and sizes, a softmax over classes and "no object"."""
    logits = np.random.default_rng(1).normal(0, 3, (1, 20, 4)).astype(np.float32)
    boxes = np.random.default_rng(2).uniform(0.2, 0.4, (1, 20, 4)).astype(np.float32)
    step = Detect(
        boxes=Slice("boxes"),
        scores=Slice("logits"),
        form="cxcywh",
        unit="relative",
        activation="softmax",
        background=3,
        threshold=0.3,
    )
    made = detector(
        step,
        spec("logits", 20, 4),
        spec("boxes", 20, 4),
        steps=WAYS["stretched"],
        labels=("a", "b", "c"),
    )
    feed = made.batch([made.prepare(np.zeros((200, 400, 3), np.uint8))])
    [record] = made.finish({"logits": logits, "boxes": boxes}, feed)
    assert isinstance(record, Detection)
    shares = softmax(logits[0].astype(np.float64), -1)[:, :3]
    chosen = [i for i in np.argsort(-shares.max(1), kind="stable") if shares[i].max() >= 0.3]
    centre, size = boxes[0, chosen, :2], boxes[0, chosen, 2:]
    wanted = np.clip(np.concatenate([centre - size / 2, centre + size / 2], 1), 0, 1)
    np.testing.assert_allclose(record.boxes, wanted * (400, 200, 400, 200), rtol=1e-5, atol=1e-4)
    assert record.labels == tuple("abc"[shares[i].argmax()] for i in chosen)
    assert 2 < len(chosen) < 20


def test_objectness_and_ready_made_classes() -> None:
    step = Detect(
        boxes=Slice("y", -1, 0, 4),
        objectness=Slice("y", -1, 4, 5),
        scores=Slice("y", -1, 5),
        threshold=0.25,
        nms=0.5,
    )
    rows = [
        (0, 0, 9, 9, 0.5, 0.75, 0.25),
        (0, 0, 9, 9, 1, 0.125, 0.5),
        (20, 0, 29, 9, 0.5, 0.25, 0.25),
    ]
    [record] = detector(step, spec("y", "n", 7)).finish({"y": np.float32([rows])})
    assert isinstance(record, Detection)
    assert list(zip(record.labels, record.scores.tolist(), strict=True)) == [
        ("1", 0.5),
        ("0", 0.375),
    ]
    ready = Detect(
        boxes=Slice("boxes"),
        scores=Slice("scores"),
        classes=Slice("classes"),
        form="yxyx",
        unit="relative",
        most=1,
    )
    outputs = {
        "boxes": np.float32([[(0.5, 0, 1, 1), (0, 0.5, 1, 1)]]),
        "scores": np.float32([[0.75, 0.875]]),
        "classes": np.float32([[0, 1]]),
    }
    given_ = (spec("boxes", 2, 4), spec("scores", 2), spec("classes", 2))
    made = detector(ready, *given_, steps=WAYS["letterbox"], labels=("cat", "dog"))
    feed = made.batch([made.prepare(np.zeros((64, 96, 3), np.uint8))])
    [record] = made.finish(outputs, feed)
    assert isinstance(record, Detection)
    assert (record.boxes.tolist(), record.labels) == ([[48, 0, 96, 64]], ("dog",))


def test_classes_compete_only_where_that_is_asked_for() -> None:
    rows = np.float32([[(0, 0, 9, 9, 0.9, 0.1), (0, 0, 9, 9, 0.1, 0.8)]])
    for per_class, count in ((True, 2), (False, 1)):
        step = Detect(
            boxes=Slice("y", -1, 0, 4), scores=Slice("y", -1, 4), nms=0.5, per_class=per_class
        )
        [record] = detector(step, spec("y", "n", 6)).finish({"y": rows})
        assert isinstance(record, Detection)
        assert len(record.labels) == count


@pytest.mark.parametrize(
    ("code", "row"),
    [("009", (0, 0, 1, 1, np.nan)), ("009", (np.inf, 0, 1, 1, 0.9)), ("010", (0, 0, 1, 1, 4.0))],
)
def test_outputs_that_are_none(code: str, row: tuple[float, ...]) -> None:
    made = detector(JOINED, spec("y", 5, "n"))
    with pytest.raises(ProcessingError) as refused:
        made.finish({"y": np.float32(row).reshape(1, 5, 1)})
    assert refused.value.code == f"EDGE-PROCESS-{code}"


def test_an_odd_place_of_what_is_left_out_does_no_harm() -> None:
    made = detector(JOINED, spec("y", 5, "n"))
    [record] = made.finish({"y": np.float32([np.nan, 0, 1, 1, 0.1]).reshape(1, 5, 1)})
    assert isinstance(record, Detection)
    assert record.labels == ()


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "five numbers a box": ("006", {"boxes": Slice("y", 0, 0, 5)}),
    "beyond the output": ("006", {"boxes": Slice("y", 0, 3, 7)}),
    "no such axis": ("006", {"scores": Slice("y", 3, 0, 1)}),
    "no such output": ("006", {"scores": Slice("z")}),
    "no such input": ("002", {"input": "x"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_before_the_first_photo(what: str) -> None:
    code, changed = REFUSED[what]
    fields = {"boxes": Slice("y", 0, 0, 4), "scores": Slice("y", 0, 4)} | changed
    with pytest.raises(ProcessingError) as refused:
        detector(Detect(**fields), spec("y", 6, "n"))
    assert refused.value.code == f"EDGE-PROCESS-{code}"


def test_a_detector_needs_its_step_and_labels_that_fit() -> None:
    output = spec("y", 6, "n")
    signature = Signature(inputs=(), outputs=(output,), dims={"batch": (1, 8), "n": (1, 9)})
    for outputs in ((), (JOINED, JOINED), (JOINED, Softmax("y")), (TopK("y"),)):
        with pytest.raises(ProcessingError) as refused:
            Processor(Processing(outputs=outputs), signature, "object-detection")
        assert refused.value.code == "EDGE-PROCESS-030", outputs
    with pytest.raises(ProcessingError) as refused:
        Processor(Processing(outputs=(JOINED,)), signature, "image-segmentation")
    assert refused.value.code == "EDGE-PROCESS-030"
    with pytest.raises(ProcessingError) as refused:
        detector(JOINED, output, labels=("a",)).finish({"y": np.zeros((1, 6, 2), np.float32)})
    assert refused.value.code == "EDGE-PROCESS-007"


def test_as_many_photos_as_outputs() -> None:
    made = detector(JOINED, spec("y", 5, "n"), steps=())
    feed = made.batch([made.prepare(np.zeros((9, 9, 3), np.uint8))] * 2)
    with pytest.raises(ProcessingError, match="outputs for 2 samples"):
        made.finish({"y": np.zeros((3, 5, 1), np.float32)}, feed)
