"""A detector through the gate: a good file, one whose scores are all zero, one whose boxes shift.

The detector looks for red and green squares with a joined head of boxes and scores on a grid. Its
weights are set by hand, so that what it must find in each drawn photo is known.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from edgeserve import backends, tasks
from edgeserve.errors import DataError, ValidateError
from edgeserve.golden_compare import compare_records
from edgeserve.processing import normalize_from
from edgeserve.processing.processor import load_processor
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.types.artifact import Artifact
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import Slice
from edgeserve.validate.golden.make import make_golden
from edgeserve.validate.requests import GoldenRequest, LocatedArtifact

SIDE, CELL = 96, 8
LABELS = ("red", "green")
PHOTOS = 80


class Squares(nn.Module):
    """[1, 3, 96, 96] in 0..1 to [1, 4 + 2, 12, 12]: centre and size in pixels, two scores.

    Squares are 24 pixels wide and as high; a cell's score is high where the square around its
    centre is full of one colour.
    """

    def __init__(
        self, zero: bool = False, shift: float = 0.0, least: float = 0.0, most: float = 1.0
    ) -> None:
        super().__init__()
        self.most = most
        self.look = nn.Conv2d(3, 2, 3, padding=1)
        weight = torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]])
        with torch.no_grad():
            self.look.weight.copy_(weight[:, :, None, None].expand(2, 3, 3, 3) * 2.0)
            self.look.bias.fill_(-9.0)
        self.size = nn.Conv2d(3, 2, 1)
        with torch.no_grad():
            self.size.weight.fill_(1.0)
            self.size.bias.fill_(22.5)
        places = torch.arange(SIDE // CELL) * CELL + CELL / 2
        self.register_buffer("x", places[None, None, None].expand(1, 1, 12, 12).clone())
        self.register_buffer("y", places[None, None, :, None].expand(1, 1, 12, 12).clone())
        self.zero, self.shift, self.least = zero, shift, least

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        cells = nn.functional.avg_pool2d(image, CELL)
        size = self.size(cells)
        # A square's colour pulls its centre by less than a pixel: no output stands still.
        x = self.x + self.shift + size[:, :1] - 24
        scores = self.most * torch.sigmoid(self.look(cells) * 2).clamp(self.least)
        return torch.cat([x, self.y + size[:, 1:] - 24, size, scores * (not self.zero)], 1)


def photo(number: int) -> tuple[np.ndarray, list[tuple[str, list[int]]]]:
    """A photo three times as wide as the model takes, letterboxed, and the squares in it (xyxy)."""
    rng = np.random.default_rng((11, number))
    image = rng.integers(90, 110, (192, 288, 3)).astype(np.uint8)
    squares = []
    for place in range(int(rng.integers(1, 3))):
        kind = int(rng.integers(0, 2))
        left, top = 24 * int(rng.integers(0, 3)) + 144 * place, 24 * int(rng.integers(0, 5))
        image[top : top + 72, left : left + 72] = (20, 20, 20)
        image[top : top + 72, left : left + 72, kind] = 250
        squares.append((LABELS[kind], [left, top, left + 72, top + 72]))
    return image, squares


PROCESSING = Processing(
    inputs=(
        InputProcessing(
            name="image",
            steps=(
                Decode(),
                Resize(height=SIDE, width=SIDE, fit="letterbox"),
                normalize_from(1 / 255, (0, 0, 0), (1, 1, 1)),
                Layout(order="CHW"),
            ),
        ),
    ),
    outputs=(
        Detect(
            boxes=Slice("head", 0, 0, 4),
            scores=Slice("head", 0, 4, 6),
            form="cxcywh",
            nms=0.3,
            threshold=0.5,
        ),
    ),
)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squares")
    for i in range(PHOTOS):
        Image.fromarray(photo(i)[0]).save(folder / f"photo-{i}.png", compress_level=1)
    return folder


def _built(build: Any, processing: Processing = PROCESSING, **broken: Any) -> Any:
    example = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return build(
        Squares(**broken),
        example,
        input_names=("image",),
        output_names=("head",),
        task="object-detection",
        processing=processing,
        labels=LABELS,
    )


@pytest.fixture(scope="module")
def detector(build: Any, squares: Path) -> Any:
    made = _built(build)
    made.answers(data=str(squares), golden=4)
    return made


def test_the_reference_finds_what_was_drawn(detector: Any, squares: Path) -> None:
    processor = load_processor(detector.exported, detector.source)
    network = Squares()
    for i in range(10):
        _, wanted = photo(i)
        feed = processor.batch([processor.prepare(squares / f"photo-{i}.png")])
        with torch.no_grad():
            head = network(torch.from_numpy(feed["image"])).numpy()
        [record] = processor.finish({"head": head}, feed)
        assert isinstance(record, Detection)
        assert sorted(record.labels) == sorted(label for label, _ in wanted)
        for label, box in wanted:
            near = [
                np.abs(np.subtract(got, box)).max()
                for got, named in zip(record.boxes, record.labels, strict=True)
                if named == label
            ]
            assert min(near) < 8, (box, record)


def test_the_good_file_passes(detector: Any) -> None:
    report = detector.judged_as(detector.artifact, detector.root / "candidate")
    assert report.judgement.verdict == "pass", report.judgement
    stats = report.decisions
    assert stats is not None
    assert (stats.unit, stats.inputs) == ("boxes", PHOTOS // 2)
    assert stats.decided.n > PHOTOS // 2
    assert (stats.raw.count, stats.decided.count, stats.decided.n_eff) == (0, 0, PHOTOS // 2)
    assert stats.figures["map50"] == 1.0
    assert float(stats.figures["iou"]) > 0.999
    assert "surest: " in report.worst[0].reference


@pytest.mark.parametrize("broken", [{"zero": True}, {"shift": 20.0}], ids=["zero", "shifted"])
def test_a_broken_file_fails(detector: Any, build: Any, broken: Any) -> None:
    other = _built(build, **broken)
    for precision in ("fp32", "fp16"):
        artifact = Artifact(
            format="onnx",
            precision=precision,
            entry=other.artifact.entry,
            files=other.artifact.files,
            io=other.artifact.io,
        )
        report = detector.judged_as(artifact, other.root / "candidate")
        assert report.judgement.verdict == "fail", broken
        stats = report.decisions
        assert stats is not None
        assert stats.decided.count == stats.decided.n > 0
        assert float(stats.figures["map50"]) == 0.0
        assert report.worst[0].flipped


def test_boxes_invented_just_above_the_threshold_are_no_close_calls(
    detector: Any, build: Any
) -> None:
    """Each hardly a box, and everywhere: the reference sees nothing there."""
    other = _built(build, least=0.52)
    artifact = Artifact(
        format="onnx",
        precision="w8a8",
        entry=other.artifact.entry,
        files=other.artifact.files,
        io=other.artifact.io,
    )
    report = detector.judged_as(artifact, other.root / "candidate")
    assert report.judgement.verdict == "fail", report.judgement
    assert report.decisions is not None
    assert float(report.decisions.raw.rate) > 0.5


def test_boxes_that_match_badly_are_said(detector: Any, build: Any) -> None:
    other = _built(build, shift=5.0)  # of 24 pixels: an overlap of about two thirds
    artifact = Artifact(
        format="onnx",
        precision="fp16",
        entry=other.artifact.entry,
        files=other.artifact.files,
        io=other.artifact.io,
    )
    report = detector.judged_as(artifact, other.root / "candidate")
    assert "EDGE-CHECK-071" in {reason.code for reason in report.judgement.reasons}


def _true_boxes(folder: Path, squares: Path) -> Path:
    """Each photo with the squares that were drawn into it; two photos a group."""
    lines = []
    for i in range(PHOTOS):
        boxes = [[a, b, c - a, d - b, label] for label, (a, b, c, d) in photo(i)[1]]
        name = str(squares / f"photo-{i}.png")
        lines.append(json.dumps({"input": name, "group": str(i // 2), "boxes": boxes}))
    path = folder / "data.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_true_boxes_say_who_is_right(
    detector: Any, build: Any, squares: Path, tmp_path: Path
) -> None:
    data = _true_boxes(tmp_path, squares)
    detector.answers(data=str(data), out="true")
    root = detector.root / "candidate"
    report = detector.judged_as(detector.artifact, root, out="true")
    at_half, over_all = report.metrics
    assert (at_half.metric, over_all.metric) == ("map50", "map")
    assert (at_half.inputs, at_half.groups) == (PHOTOS // 2, PHOTOS // 4)
    assert (at_half.reference, at_half.artifact) == (1.0, 1.0), "each square is found"
    assert (at_half.lost, at_half.won, at_half.lower, at_half.upper) == (0, 0, 0.0, 0.0)
    assert 0.5 < float(over_all.reference) < 1.0, "boxes are off by some pixels"
    assert report.judgement.verdict == detector.judged_as(detector.artifact, root).judgement.verdict
    assert detector.judged_as(detector.artifact, root).metrics == ()

    other = _built(build, shift=5.0)  # of 24 pixels: an overlap of about two thirds
    artifact = msgspec.structs.replace(other.artifact, precision="fp16")
    at_half, over_all = detector.judged_as(artifact, other.root / "candidate", out="true").metrics
    assert float(at_half.artifact) > 0.9, "still found"
    assert float(over_all.upper) < 0, "and worse"
    assert (over_all.lost, over_all.won) == (PHOTOS // 4, 0)
    other = _built(build, zero=True)
    artifact = msgspec.structs.replace(other.artifact, precision="fp16")
    metrics = detector.judged_as(artifact, other.root / "candidate", out="true").metrics
    assert [float(each.artifact) for each in metrics] == [0.0, 0.0]


def test_bad_true_boxes_are_refused_before_the_reference_is_asked(
    detector: Any, squares: Path, tmp_path: Path
) -> None:
    path = _true_boxes(tmp_path, squares)
    path.write_text(path.read_text().replace('"red"', '"purple"'))
    with pytest.raises(DataError, match="purple") as refused:
        detector.answers(data=str(path), out="refused", reference="no_such_module:server")
    assert refused.value.code == "EDGE-DATA-023"
    assert not (detector.root / "refused").exists()


def _from(threshold: float) -> Processing:
    (detect,) = PROCESSING.outputs
    return msgspec.structs.replace(
        PROCESSING, outputs=(msgspec.structs.replace(detect, threshold=threshold),)
    )


def _server(good: Any) -> types.ModuleType:
    """The user's server: the same network, whose boxes count from 0.5 on."""
    processor, network = load_processor(good.exported, good.source), Squares(most=0.8)

    def find(raw: bytes) -> Detection:
        feed = processor.batch([processor.prepare(raw)])
        with torch.no_grad():
            head = network(torch.from_numpy(feed["image"])).numpy()
        [record] = processor.finish({"head": head}, feed)
        assert isinstance(record, Detection)
        return record

    module = types.ModuleType("squares_server")
    module.find = find  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(("packaged", "verdict"), [(0.5, "degraded"), (0.9, "fail")])
def test_a_threshold_that_is_not_the_servers(
    detector: Any,
    build: Any,
    squares: Path,
    monkeypatch: pytest.MonkeyPatch,
    packaged: float,
    verdict: str,
) -> None:
    """What lies between the thresholds is lost on the device; 40 photos prove no more."""
    monkeypatch.setitem(sys.modules, "squares_server", _server(detector))
    other = _built(build, _from(packaged), most=0.8)
    answers = other.answers(data=str(squares), reference="squares_server:find")
    assert 0.5 <= answers.least_score <= 0.8
    artifact = msgspec.structs.replace(other.artifact, precision="w8a8")
    report = other.judged_as(artifact, other.root / "candidate")
    assert report.judgement.verdict == verdict, report.judgement
    assert any("detect/1, threshold" in note for note in report.notes) == (verdict == "fail")


@pytest.mark.slow
def test_tflite_is_judged_alike(detector: Any, build: Any, tmp_path: Path) -> None:
    backend = backends.get("tflite")
    if why := backend.missing():
        pytest.skip(why)
    for verdict, other in (("pass", detector), ("fail", _built(build, zero=True))):
        root = tmp_path / verdict
        artifact = backend.export(other.exported, other.source, root)
        report = detector.judged_as(artifact, root)
        assert report.judgement.verdict == verdict, report.judgement


def test_golden_cases_prove_a_detector(detector: Any, squares: Path, tmp_path: Path) -> None:
    """Cases of given photos; a device that shifts its boxes, or finds nothing, does not hold."""
    some = tmp_path / "some"
    some.mkdir()
    for i in range(4):
        (some / f"{i}.png").write_bytes((squares / f"photo-{i}.png").read_bytes())
    golden = make_golden(
        GoldenRequest(
            source_folder=str(detector.source), out=str(tmp_path), given=str(some), error=0.001
        )
    )
    assert len(golden.cases) == 4
    rule = tasks.decision_rule(detector.exported.task, detector.exported.processing)
    records = [case.record for case in golden.cases]
    tolerances = [case.tolerance for case in golden.cases]
    for shift, holds in ((0.0, True), (4.0, True), (60.0, False)):
        answers = [
            Detection(boxes=record.boxes + shift, scores=record.scores, labels=record.labels)
            for record in records
            if isinstance(record, Detection)
        ]
        found = compare_records(records, answers, tolerances, rule)  # type: ignore[arg-type]
        assert all((each.wrong == "") == holds for each in found), (shift, found)
    nothing = [Detection(boxes=[], scores=[], labels=())] * 4  # type: ignore[arg-type]
    found = compare_records(records, nothing, tolerances, rule)  # type: ignore[arg-type]
    assert all("clear boxes are others" in each.wrong for each in found)


def test_golden_cases_hold_for_what_is_three_times_as_far_off(
    detector: Any, build: Any, squares: Path, tmp_path: Path
) -> None:
    """Boxes of 24 pixels shifted by 4 overlap by 0.71 and decide alike; shifted by 12, by 0.33."""
    some = tmp_path / "some"
    some.mkdir()
    for i in range(3):
        (some / f"{i}.png").write_bytes((squares / f"photo-{i}.png").read_bytes())

    def cases(shift: float) -> int:
        other = _built(build, shift=shift)
        placed = LocatedArtifact(artifact=other.artifact, root=str(other.root / "candidate"))
        asked = GoldenRequest(
            source_folder=str(detector.source),
            out=str(tmp_path),
            given=str(some),
            artifacts=(placed,),
        )
        return len(make_golden(asked).cases)

    assert cases(1.0) == 3
    with pytest.raises(ValidateError) as refused:
        cases(4.0)
    assert refused.value.code == "EDGE-VALIDATE-009"
