"""True boxes, poses, masks, spans, segments: read for the model that uses them, or refused."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage.measure import grid_points_in_poly

from edgeserve.data import LabelSchema, scan
from edgeserve.errors import DataError
from edgeserve.tasks.detection import TrueBox, TrueBoxes
from edgeserve.tasks.keypoints import TruePose, TruePoses
from edgeserve.tasks.segmentation import Area, DrawnMask, MaskFile
from edgeserve.tasks.segmentation.gate import inside, true_mask
from edgeserve.tasks.token_classification import TrueSpans
from edgeserve.tasks.voice_activity import TrueSegments

DETECTOR = LabelSchema("object-detection", ("cat", "dog"))
POSER = LabelSchema("keypoint-detection", ("nose", "tail"))
SEGMENTER = LabelSchema("image-segmentation", ("background", "cat", "dog"))
READER = LabelSchema("token-classification", ("PER", "LOC"))
LISTENER = LabelSchema("voice-activity")


def refused(code: str, *words: str) -> Any:
    """The coded error, whose message names each of ``words``."""

    def says(error: BaseException) -> bool:
        return getattr(error, "code", "") == code and all(w in str(error) for w in words)

    return pytest.RaisesExc(DataError, check=says)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photos of 40 x 30 pixels; the second one lies on its side, and is turned upright."""
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (30, 40)).save(tmp_path / "b.jpg", exif=turned)
    return tmp_path


def coco(folder: Path, *notes: dict[str, Any]) -> Path:
    data = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.jpg"}],
        "categories": [
            {"id": 7, "name": "cat"},
            {"id": 1, "name": "dog"},
            {"id": 5, "name": "emu"},
        ],
        "annotations": [{"image_id": 1, "category_id": 7} | note for note in notes],
    }
    (folder / "instances.json").write_text(json.dumps(data))
    return folder / "instances.json"


def table(folder: Path, *lines: dict[str, Any]) -> Path:
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "data.jsonl"


def truths(path: Path, known: LabelSchema | None, medium: Any = "image") -> list[Any]:
    return [sample.truth for sample in scan(path, None, medium, known).samples]


def test_boxes_of_a_coco_json(photos: Path) -> None:
    path = coco(
        photos,
        {"bbox": [1, 2, 10, 20]},
        {"bbox": [0, 0, 40.5, 30], "iscrowd": 1},
        {"bbox": [30, 5, 10, 25], "category_id": 1, "image_id": 2},
    )
    first, second = truths(path, DETECTOR)
    assert first == TrueBoxes(
        (TrueBox((1, 2, 11, 22), "cat"), TrueBox((0, 0, 40.5, 30), "cat", crowd=True))
    )
    assert second == TrueBoxes((TrueBox((30, 5, 40, 30), "dog"),)), "the photo is 40 wide, upright"
    assert truths(path, None) == [None, None]
    assert truths(path, SEGMENTER) == [None, None], "no annotation has an outline"
    assert truths(path, LabelSchema("image-classification", ("cat",))) == [None, None]
    by_number = truths(path, LabelSchema("object-detection"))
    assert [box.label for box in by_number[0].boxes + by_number[1].boxes] == ["7", "7", "1"]


def test_an_image_without_annotations_holds_nothing(photos: Path) -> None:
    assert truths(coco(photos, {"bbox": [1, 2, 3, 4]}), DETECTOR)[1] == TrueBoxes(())
    assert truths(coco(photos), DETECTOR) == [None, None], "a json without any says nothing"


@pytest.mark.parametrize(
    ("note", "code", "words"),
    [
        ({"bbox": [1, 2, -3, 4]}, "EDGE-DATA-024", ("annotations[1] (a.png)", "-3 x 4")),
        ({"bbox": [1, 2, 3, 0]}, "EDGE-DATA-024", ("annotations[1]", "3 x 0")),
        ({"bbox": [30, 2, 12, 4]}, "EDGE-DATA-024", ("40 x 30 pixels", "(42, 6)")),
        ({"bbox": [-2, 2, 12, 4]}, "EDGE-DATA-024", ("(-2, 2)",)),
        ({"bbox": [1, 2, 3]}, "EDGE-DATA-024", ("annotations[1]", "four numbers")),
        ({"bbox": "1 2 3 4"}, "EDGE-DATA-024", ("annotations[1]", "1 2 3 4")),
        ({}, "EDGE-DATA-024", ("annotations[1]", "null")),
        ({"bbox": [1, 2, 3, 4], "category_id": 5}, "EDGE-DATA-023", ("'emu'", "'cat', 'dog'")),
    ],
)
def test_bad_boxes_of_a_coco_json(
    photos: Path, note: dict[str, Any], code: str, words: tuple[str, ...]
) -> None:
    path = coco(photos, {"bbox": [0, 0, 5, 5]}, note)
    with refused(code, *words):
        truths(path, DETECTOR)
    assert truths(path, None) == [None, None], "who has no use for boxes does not stumble over them"


def test_boxes_of_a_table(photos: Path) -> None:
    path = table(
        photos,
        {"input": "a.png", "boxes": [[1, 2, 3, 4, "cat"], [0, 0, 5, 6, 1]]},
        {"input": "b.jpg", "group": "g"},
    )
    found = truths(path, DETECTOR)
    assert found == [TrueBoxes((TrueBox((1, 2, 4, 6), "cat"), TrueBox((0, 0, 5, 6), "dog"))), None]
    assert scan(path, None, "image", READER).unused == ("boxes",)
    assert scan(path, None, "image", DETECTOR).unused == ()
    for boxes, code, word in [
        ([[1, 2, -3, 4, "cat"]], "EDGE-DATA-024", "line 1, box 1"),
        ([[1, 2, 300, 4, "cat"]], "EDGE-DATA-024", "line 1, box 1"),
        ([[1, 2, 3, 4, "emu"]], "EDGE-DATA-023", "'emu'"),
        ([[1, 2, 3, 4, 2]], "EDGE-DATA-023", "'2'"),
        ([[1, 2, 3, "cat"]], "EDGE-DATA-007", "line 1"),
    ]:
        with refused(code, word):
            truths(table(photos, {"input": "a.png", "boxes": boxes}), DETECTOR)


def test_poses_of_a_coco_json(photos: Path) -> None:
    unlabelled = {"keypoints": [0, 0, 0, 0, 0, 0], "bbox": [5, 5, 4, 4], "area": 9}
    path = coco(
        photos,
        {"keypoints": [1, 2, 2, 11, 22, 1], "bbox": [0, 0, 20, 25], "area": 123.5},
        {"keypoints": [1, 2, 2, 0, 0, 0], "bbox": [0, 0, 10, 10]},
        {**unlabelled, "iscrowd": 0},
    )
    first, second = truths(path, POSER)
    assert first == TruePoses(
        (
            TruePose((1, 2, 1, 11, 22, 1), 123.5, (0, 0, 20, 25)),
            TruePose((1, 2, 1, 0, 0, 0), 0.53 * 10 * 10, (0, 0, 10, 10)),
            TruePose((0, 0, 0, 0, 0, 0), 9, (5, 5, 9, 9), crowd=True),
        )
    )
    assert second == TruePoses(()), "an image without annotations contains nothing"
    assert truths(path, SEGMENTER) == [None, None]
    for note in ({"keypoints": [1, 2, 2, 3]}, {"keypoints": [99, 2, 2]}, {"keypoints": [0, 0, 0]}):
        with refused("EDGE-DATA-024", "annotations[0]"):
            truths(coco(photos, note), POSER)


def test_poses_of_a_table(photos: Path) -> None:
    path = table(photos, {"input": "a.png", "poses": [[1, 2, 1, 11, 22, 1]]}, {"input": "b.jpg"})
    pose = TruePose((1, 2, 1, 11, 22, 1), 0.53 * 10 * 20, (1, 2, 11, 22))
    assert truths(path, POSER) == [TruePoses((pose,)), None]
    assert scan(path, None, "image", DETECTOR).unused == ("poses",)
    for poses in ([[1, 2]], [[1, 2, 0]], [[1, 200, 1]], [[]]):
        with refused("EDGE-DATA-024", "line 1, pose 1"):
            truths(table(photos, {"input": "a.png", "poses": poses}), POSER)


def test_a_mask_file(photos: Path) -> None:
    mask = np.random.default_rng(0).integers(0, 3, (30, 40)).astype(np.uint8)
    mask[:3] = 255
    grey = Image.fromarray(mask)
    grey.save(photos / "grey.png")
    palette = Image.fromarray(mask)
    palette.putpalette([i for i in range(256) for _ in range(3)])
    palette.save(photos / "palette.png")
    lines = [{"input": "a.png", "mask": "grey.png"}, {"input": "b.jpg", "mask": "palette.png"}]
    found = truths(table(photos, *lines), SEGMENTER)
    for each in found:
        assert isinstance(each, MaskFile)
        read = true_mask(each, (30, 40))
        assert (read[:3] == -1).all()
        np.testing.assert_array_equal(read[3:], mask[3:])
    grey.transpose(Image.Transpose.ROTATE_90).save(photos / "grey.png")
    with refused("EDGE-DATA-021", "grey.png"):
        true_mask(found[0], (30, 40))
    with refused("EDGE-DATA-025", "line 1, mask grey.png", "40 x 30", "30 x 40"):
        truths(table(photos, lines[0]), SEGMENTER)
    with refused("EDGE-DATA-025", "mode RGB"):
        truths(table(photos, {"input": "a.png", "mask": "a.png"}), SEGMENTER)
    with refused("EDGE-DATA-003", "line 1", "none.png"):
        truths(table(photos, {"input": "a.png", "mask": "none.png"}), SEGMENTER)
    with refused("EDGE-DATA-023", "'2'"):
        truths(table(photos, lines[1]), LabelSchema("image-segmentation", ("background", "cat")))


def test_outlines_of_a_coco_json(photos: Path) -> None:
    runs = [5 * 30, 2 * 30, 33 * 30]  # columns 5 and 6
    path = coco(
        photos,
        {"segmentation": [[0, 0, 10, 0, 10, 30, 0, 30]]},
        {"segmentation": {"counts": runs, "size": [30, 40]}, "category_id": 1, "iscrowd": 1},
        {"segmentation": [[20, 10, 22, 10, 22, 12, 20, 12], [30, 0, 31, 0, 31, 1, 30, 1]]},
    )
    first, second = truths(path, SEGMENTER)
    wanted = np.zeros((30, 40), int)
    wanted[:, :10] = 1
    wanted[:, 5:7] = -1  # two classes: nobody has said which lies on top
    wanted[10:12, 20:22] = wanted[0, 30] = 1
    np.testing.assert_array_equal(true_mask(first, (30, 40)), wanted)
    assert second == DrawnMask((), rest=0)
    without = LabelSchema("image-segmentation", ("cat", "dog"))
    assert truths(path, without)[1].rest == -1, "without a class for it, the rest is unlabelled"
    numbers = truths(path, LabelSchema("image-segmentation"))
    assert [area.index for area in numbers[0].areas] == [7, 1, 7]
    for outline, word in [
        ([[0, 0, 10, 0, 10]], "5 numbers"),
        ([[0, 0, 10, 0]], "4 numbers"),
        ([[0, 0, 50, 0, 50, 30]], "40 x 30"),
        ({"counts": [1], "size": [30, 40]}, "1200 pixels"),
        ({"counts": [1200], "size": [40, 30]}, "[40, 30]"),
        ({"counts": "abc", "size": [30, 40]}, "abc"),
        ([], "none, where"),
    ]:
        with refused("EDGE-DATA-025", "annotations[1] (a.png)", word):
            note = {"segmentation": [[0, 0, 10, 0, 10, 30]]}
            truths(coco(photos, note, {"segmentation": outline}), SEGMENTER)


@pytest.mark.parametrize("seed", range(6))
def test_polygons_hold_the_pixels_whose_centre_they_hold(seed: int) -> None:
    corners = np.random.default_rng(seed).uniform(-3, 33, (3 + 2 * seed, 2))
    found = inside(corners.ravel().tolist(), (24, 32))
    known = grid_points_in_poly((24, 32), corners[:, ::-1] - 0.5)
    np.testing.assert_array_equal(found, known)


def test_neighbours_share_no_pixel() -> None:
    left, right = [0, 0, 4.5, 0, 7.5, 9, 0, 9], [4.5, 0, 12, 0, 12, 9, 7.5, 9]
    one, other = inside(left, (9, 12)), inside(right, (9, 12))
    assert (one ^ other).all()
    drawn = DrawnMask((Area(1, (tuple(left),)), Area(2, (tuple(right),))))
    assert (true_mask(drawn, (9, 12)) > 0).all()


def test_spans_of_a_text(tmp_path: Path) -> None:
    line = {"input": "Ada of Rome", "spans": [[7, 11, "LOC"], [0, 3, "PER"]]}
    assert truths(table(tmp_path, line), READER, "text") == [
        TrueSpans(((0, 3, "PER"), (7, 11, "LOC")))
    ]
    (tmp_path / "note.txt").write_text("née", encoding="utf-8")
    with refused("EDGE-DATA-026", "line 1", "<= 3", "0 to 4"):
        truths(table(tmp_path, {"input": "note.txt", "spans": [[0, 4, "PER"]]}), READER, "text")
    for spans, code, word in [
        ([[7, 12, "LOC"]], "EDGE-DATA-026", "7 to 12"),
        ([[3, 3, "LOC"]], "EDGE-DATA-026", "3 to 3"),
        ([[-1, 3, "LOC"]], "EDGE-DATA-026", "-1 to 3"),
        ([[0, 3, "PER"], [0, 3, "PER"]], "EDGE-DATA-026", "twice"),
        ([[0, 3, "ORG"]], "EDGE-DATA-023", "'ORG'"),
    ]:
        with refused(code, "line 1", word):
            truths(table(tmp_path, line | {"spans": spans}), READER, "text")


def test_segments_of_a_sound(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(2 * 8000 * 2))
    line = {"input": "a.wav", "segments": [[1.5, 2], [0, 0.5]]}
    found = truths(table(tmp_path, line), LISTENER, "audio")
    assert found == [TrueSegments(((0, 0.5), (1.5, 2)))]
    for given in ([[1, 1]], [[0.5, 2.5]], [[-1, 1]], [[0, 2000]]):
        with refused("EDGE-DATA-026", "line 1"):
            truths(table(tmp_path, line | {"segments": given}), LISTENER, "audio")
