"""What public quantizers get wrong, made by these tools, and the gate that has to see it.

What is right comes from PyTorch each time; that the file is wrong is asserted with its own runtime.
Rows are those of ``docs/explanation/known-bad.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from testkit.judging import answers, codes, data
from torch import nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.reports import Report

Answer = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def scenes(count: int, channels: int = 3, side: int = 16, seed: int = 0) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(count, channels, 5, 5, generator=generator)
    return functional.interpolate(small, size=(side, side), mode="bilinear").numpy()


class Reader(CalibrationDataReader):
    """Calibration samples for ONNX Runtime's quantizer."""

    def __init__(self, name: str, samples: np.ndarray) -> None:
        self._left: Iterator[dict[str, np.ndarray]] = iter([{name: s[None]} for s in samples])

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return next(self._left, None)


def by_onnxruntime(model: Any, folder: Path, samples: np.ndarray, signed: bool = False) -> Path:
    """Static 8 bits as ONNX Runtime's own tool makes them, all at their defaults."""
    path = folder / "model.onnx"
    kind = QuantType.QInt8 if signed else QuantType.QUInt8
    quantize_static(
        model.onnx,
        path,
        Reader(model.exported.signature.inputs[0].name, samples),
        quant_format=QuantFormat.QDQ,
        activation_type=kind,
        weight_type=QuantType.QInt8,
    )
    return path


def by_ai_edge(model: Any, folder: Path, samples: np.ndarray) -> Artifact:
    """Static 8 bits as ai-edge-quantizer makes them, from our fp32 file."""
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    float_file = backends.get("tflite").export(model.exported, model.source, folder / "float")
    quantizer = Quantizer((folder / "float" / float_file.entry).read_bytes())
    quantizer.add_static_config(".*", TFLOperationName.ALL_SUPPORTED, 8, 8)
    for edge in (TFLOperationName.INPUT, TFLOperationName.OUTPUT):
        quantizer.update_quantization_recipe(".*", edge, algorithm_key="no_quantize")
    name = model.exported.signature.inputs[0].name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tool's own
        ranges = quantizer.calibrate({"serving_default": [{name: s[None]} for s in samples]})
        result = quantizer.quantize(ranges)
    (folder / "model.tflite").write_bytes(bytes(result.quantized_model))
    return msgspec.structs.replace(
        float_file,
        precision="w8a8",
        entry="model.tflite",
        files=(describe(folder, "model.tflite"),),
    )


class Detector(nn.Module):
    """Row 1: boxes in pixels and scores below one in one output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        return torch.cat([self.boxes(y) * 200 + 320, (3 * self.scores(y)).sigmoid()], 1)


@pytest.fixture(scope="module")
def detector(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = build(
        Detector(), torch.from_numpy(scenes(1)), input_names=("image",), output_names=("found",)
    )
    made.answers(data=data(tmp_path_factory.mktemp("scenes"), image=scenes(60)))
    return made


def wrong_scores(found: np.ndarray, scene: np.ndarray) -> None:
    """As a whole the file is nearly perfect, and has no score at all."""
    with torch.no_grad():
        wanted = Detector().eval()(torch.from_numpy(scene)).numpy()
    noise = np.square(found - wanted).mean()
    assert 10 * np.log10(np.square(wanted).mean() / noise) > 40
    cosine = (found * wanted).sum() / np.linalg.norm(found) / np.linalg.norm(wanted)
    assert cosine > 0.9999
    assert wanted[:, 4:].max() > 0.5
    assert len(np.unique(found[:, 4:])) <= 2, "the scores are gone"


def on_the_field(report: Report) -> None:
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == "EDGE-CHECK-060", report.judgement
    assert "scores field of output 'found' (channels 4-6)" in report.judgement.reasons[0].message
    boxes, scores = report.outputs
    assert (boxes.field, scores.field) == ("boxes", "scores")
    assert float(boxes.snr or 0) > 20 > 5 > float(scores.snr or 0)


def test_row_1_onnx_scores_of_zero(detector: Any, tmp_path: Path) -> None:
    path = by_onnxruntime(detector, tmp_path, scenes(16, seed=1))
    scene = scenes(1, seed=2)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"image": scene})
    wrong_scores(found, scene)
    on_the_field(detector.judged(path, precision="w8a8"))


def test_row_1_litert_scores_of_zero(detector: Any, tmp_path: Path) -> None:
    artifact = by_ai_edge(detector, tmp_path, scenes(16, seed=1))
    scene = scenes(1, seed=2)
    wrong_scores(answers(artifact, tmp_path, {"image": scene}), scene)
    on_the_field(detector.judged_as(artifact, tmp_path))


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_row_1_with_its_tail_in_float_passes(detector: Any, tmp_path: Path, format: str) -> None:
    backend = backends.get(format)
    made = backend.export(detector.exported, detector.source, tmp_path / "float")
    samples = [{"image": s[None]} for s in scenes(16, seed=1)]
    tail = [op.source for op in backend.inspect(made, tmp_path / "float").ops if op.source]
    keep = tuple(s for s in dict.fromkeys(tail) if s.startswith(("cat", "mul", "add", "sigmoid")))
    recipe = Recipe(precision="w8a8", keep_float=keep)
    less = backend.quantize(made, tmp_path / "float", recipe, samples, tmp_path / "w8a8")
    report = detector.judged_as(less, tmp_path / "w8a8")
    assert report.judgement.verdict in ("pass", "degraded"), report.judgement


class Lost(nn.Module):
    """Row 2: a layer without weights and a negative bias, then ReLU: always 0.0."""

    def __init__(self, alone: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dead, self.live = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        nn.init.zeros_(self.dead.weight)
        nn.init.constant_(self.dead.bias, -5.0)
        self.alone = alone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zero = functional.relu(self.dead(x))
        return zero if self.alone else torch.cat([zero, self.live(x)], 1)


@pytest.mark.parametrize("alone", [True, False])
def test_row_2_a_relu_that_was_dropped(build: Any, tmp_path: Path, alone: bool) -> None:
    made = build(Lost(alone), torch.from_numpy(scenes(1)), input_names=("image",))
    made.answers(data=data(tmp_path, image=scenes(40)))
    with torch.no_grad():
        assert Lost(alone)(torch.from_numpy(scenes(1)))[:, :4].abs().max() == 0
    path = by_onnxruntime(made, tmp_path, scenes(16, seed=1), signed=True)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"image": scenes(1)})
    assert found[:, :4].min() < -1, "cut off at what the layer beside it gives"
    assert found[:, :4].min() == pytest.approx(-5, abs=0.1) or not alone
    report = made.judged(path, precision="w8a8")
    assert report.judgement.verdict == "fail"
    assert "EDGE-CHECK-061" in codes(report)
    assert "where the reference is 0" in report.judgement.reasons[0].message
