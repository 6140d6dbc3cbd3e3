"""Masks, depths, frames and tokens through the gate: a good file passes, one that is off fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from edgeserve import tasks
from edgeserve.golden_compare import compare_records
from edgeserve.processing import normalize_from
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.depth import Depths
from edgeserve.tasks.segmentation import Segment, Segmentation
from edgeserve.tasks.text_generation import Picks
from edgeserve.tasks.voice_activity import Frames
from edgeserve.types.artifact import Artifact
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.reports import Report
from edgeserve.types.steps import TaskOutput
from edgeserve.types.vocabulary import Task
from edgeserve.validate.golden.make import make_golden
from edgeserve.validate.judge import judge
from edgeserve.validate.reference_store import read_answers
from edgeserve.validate.requests import GoldenRequest, JudgeRequest
from edgeserve.wrapper.engine import read_arrays

PHOTOS = 24
LABELS = ("ground", "red", "green")


class Colours(nn.Module):
    """[1, 3, 32, 32] to scores of three classes; ``turn`` exchanges them."""

    def __init__(self, turn: int = 0) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 3, 3, padding=1)
        weight = torch.tensor([[0.0, 0, 0], [2.0, -2, -1], [-2.0, 2, -1]]).roll(turn, 0)
        with torch.no_grad():
            self.look.weight.copy_(weight[:, :, None, None].expand(3, 3, 3, 3) / 3)
            self.look.bias.copy_(torch.tensor([1.0, 0.0, 0.0]).roll(turn))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.look(image) * 2.0


PICTURES = Processing(
    inputs=(
        InputProcessing(
            name="image",
            steps=(
                Decode(),
                Resize(height=32, width=32),
                normalize_from(1 / 255, (0,) * 3, (1,) * 3),
                Layout(order="CHW"),
            ),
        ),
    ),
    outputs=(Segment("scores"),),
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(PHOTOS):
        rng = np.random.default_rng((5, i))
        image = np.full((60, 80, 3), 60, np.uint8)
        for kind in (0, 1):
            top, left = int(rng.integers(0, 30)), int(rng.integers(0, 25)) + 40 * kind
            image[top : top + 25, left : left + 15, kind] = 240
        Image.fromarray(image).save(folder / f"{i}.png")
    return folder


def judged(good: Any, other: Any, precision: str = "fp16") -> Report:
    """The verdict on a file by decisions alone, by the good model's answers."""
    artifact = Artifact(
        format="onnx",
        precision=precision,
        entry=other.artifact.entry,
        files=other.artifact.files,
        io=other.artifact.io,
    )
    return judge(
        JudgeRequest(
            artifact=artifact,
            root=str(other.root / "candidate"),
            source_folder=str(good.source),
            samples=str(good.root / "samples"),
        )
    )


def masks(build: Any, turn: int = 0) -> Any:
    return build(
        Colours(turn),
        torch.rand(1, 3, 32, 32),
        input_names=("image",),
        output_names=("scores",),
        task="image-segmentation",
        processing=PICTURES,
        labels=LABELS,
    )


def test_masks(build: Any, pictures: Path, tmp_path: Path) -> None:
    good = masks(build)
    good.answers(data=str(pictures), golden=2)
    stored = read_answers(good.root / "samples")
    assert stored is not None
    assert stored.vectors is not None, "masks lie in a file of their own"
    assert (good.root / "samples" / "answers.json").stat().st_size < 100_000
    stats = judged(good, good).decisions
    assert stats is not None
    assert (stats.unit, stats.raw.n, stats.decided.count) == ("pixels", PHOTOS // 2 * 1024, 0)
    figures = {name: float(value) for name, value in stats.figures.items()}
    assert 0 <= figures.pop("kl") <= figures.pop("kl_worst") < 1e-9
    assert figures == {"miou": 1.0, "agreement": 1.0}
    assert judged(good, good, "fp32").judgement.verdict == "pass"
    report = judged(good, masks(build, turn=1))
    assert report.judgement.verdict == "fail"
    assert report.decisions is not None
    assert float(report.decisions.figures["agreement"]) < 0.2
    assert "ground" in report.worst[0].reference

    golden = make_golden(
        GoldenRequest(
            source_folder=str(good.source), out=str(tmp_path), given=str(pictures), error=0.001
        )
    )
    case = golden.cases[0]
    assert case.record is not None
    assert case.outputs is not None
    held = read_arrays((tmp_path / case.outputs.path).read_bytes())
    record = tasks.attach_arrays(case.record, held)
    assert isinstance(record, Segmentation)
    assert record.mask.shape == (32, 32)
    rule = tasks.decision_rule("image-segmentation", PICTURES)
    [same] = compare_records([record], [record], [case.tolerance], rule)
    assert same.wrong == ""


def test_true_masks_say_who_is_right(build: Any, pictures: Path, tmp_path: Path) -> None:
    """What was drawn is known: it stands at full size in a mask file and in outlines alike."""
    lines, images, notes = [], [], []
    for i in range(PHOTOS):
        with Image.open(pictures / f"{i}.png") as image:
            pixels = np.asarray(image)
        mask = (pixels[..., 0] > 200) + 2 * (pixels[..., 1] > 200).astype(np.uint8)
        Image.fromarray(mask.astype(np.uint8)).save(tmp_path / f"{i}.mask.png")
        name = str(pictures / f"{i}.png")
        lines.append(json.dumps({"input": name, "mask": f"{i}.mask.png"}))
        images.append({"id": i, "file_name": name})
        for kind in (0, 1, 2):
            inner = (mask == kind).T.ravel()
            edges = np.flatnonzero(np.diff(np.concatenate([[False], inner]))).tolist()
            runs = {"counts": np.diff([0, *edges, inner.size]).tolist(), "size": [60, 80]}
            notes.append({"image_id": i, "category_id": kind, "segmentation": runs})
    categories = [{"id": i, "name": name} for i, name in enumerate(LABELS)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    coco = {"images": images, "annotations": notes, "categories": categories}
    (tmp_path / "coco.json").write_text(json.dumps(coco))

    good, turned = masks(build), masks(build, turn=1)
    good.answers(data=str(tmp_path / "data.jsonl"))
    [known] = judged(good, good).metrics
    assert (known.metric, known.inputs, known.groups) == ("miou", PHOTOS // 2, PHOTOS // 2)
    assert known.reference == known.artifact
    assert 0.7 < float(known.reference) < 1.0
    [lost] = judged(good, turned).metrics
    assert float(lost.artifact) < 0.3
    assert float(lost.upper) < -0.3
    assert (lost.lost, lost.won) == (PHOTOS // 2, 0)
    good.answers(data=str(tmp_path / "coco.json"))
    [drawn] = judged(good, good).metrics
    assert drawn.metric == "miou"
    assert float(drawn.reference) == pytest.approx(float(known.reference))


class Rows(nn.Module):
    """A layer over rows of numbers [1, 20, 8]; ``off`` makes another layer of it."""

    def __init__(self, width: int, off: float = 0.0, depth: bool = False) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.layer, self.depth = nn.Linear(8, width), depth
        noise = torch.randn(width, 8)
        with torch.no_grad():
            self.layer.weight.mul_(6.0)
            self.layer.weight.add_(off * noise)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.layer(rows)
        return torch.exp(found / 4) if self.depth else found


TASKS: dict[Task, tuple[TaskOutput, int, tuple[str, ...], str]] = {
    "depth-estimation": (Depths("y"), 6, (), "abs_rel"),
    "voice-activity": (Frames("y", 0.1, activation="sigmoid"), 1, (), ""),
    "automatic-speech-recognition": (Picks("y", blank=0), 5, ("-", "a", "b", "c", "|"), "wer"),
    "text-generation": (Picks("y"), 5, (), ""),
}


@pytest.mark.parametrize("task", TASKS)
def test_tensors_of_every_task(build: Any, task: Task, tmp_path: Path) -> None:
    step, width, labels, figure = TASKS[task]
    rows = np.random.default_rng(9).normal(0, 1, (120, 20, 8)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", rows=rows)

    def made(off: float = 0.0) -> Any:
        network = Rows(width, off, task == "depth-estimation")
        return build(
            network,
            torch.randn(1, 20, 8),
            input_names=("rows",),
            output_names=("y",),
            task=task,
            labels=labels,
            processing=Processing(outputs=(step,)),
        )

    good = made()
    good.answers(data=str(tmp_path / "rows.npz"), golden=4)
    report = judged(good, good)
    stats = report.decisions
    assert stats is not None
    assert (stats.inputs, stats.groups) == (60, 60)
    assert stats.decided.n > 60
    assert (stats.raw.count, stats.decided.count) == (0, 0)
    assert report.judgement.verdict == "degraded", "60 groups without a flip: at most 4.9 %"
    assert judged(good, good, "fp32").judgement.verdict == "pass"
    if figure:
        assert float(stats.figures[figure]) == pytest.approx(0.0, abs=1e-6)
    bad = judged(good, made(3.0))
    assert bad.judgement.verdict == "fail"
    assert bad.decisions is not None
    assert bad.decisions.decided.count > 0.1 * bad.decisions.decided.n
    if figure:
        assert float(bad.decisions.figures[figure]) > 0.1
    golden = make_golden(
        GoldenRequest(source_folder=str(good.source), out=str(good.root), error=0.001, count=4)
    )
    assert golden.cases
    assert all(case.medium == "tensors" and case.record is not None for case in golden.cases)
