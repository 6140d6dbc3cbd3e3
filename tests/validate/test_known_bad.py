"""Conversions that public tools get wrong, made by these tools, and the gate that has to see them.

What is right comes from PyTorch each time; that the file is wrong is asserted with its own runtime.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.reports import Report
from edgeserve.validate.gate import judge
from edgeserve.validate.request import JudgeRequest

Answer = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def codes(report: Report) -> list[str]:
    return [reason.code for reason in report.judgement.reasons]


def scenes(count: int, channels: int = 3, side: int = 16, seed: int = 0) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(count, channels, 5, 5, generator=generator)
    return functional.interpolate(small, size=(side, side), mode="bilinear").numpy()


def data(folder: Path, **arrays: np.ndarray) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder / "data.npz")


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
        model.onnx, path, Reader(model.exported.signature.inputs[0].name, samples),
        quant_format=QuantFormat.QDQ, activation_type=kind, weight_type=QuantType.QInt8,
    )  # fmt: skip
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
        float_file, precision="w8a8", entry="model.tflite",
        files=(describe(folder, "model.tflite"),),
    )  # fmt: skip


def judged(model: Any, artifact: Artifact, root: Path) -> Report:
    return judge(
        JudgeRequest(
            artifact=artifact, root=str(root), source_folder=str(model.source),
            samples=str(model.root / "samples"),
        )
    )  # fmt: skip


def answers(artifact: Artifact, root: Path, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first output, by the format's own engine."""
    with backends.get(artifact.format).load(artifact, root) as session:
        return session.run(feed)[artifact.io.outputs[0].name]


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
    on_the_field(judged(detector, artifact, tmp_path))


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_row_1_with_its_tail_in_float_passes(detector: Any, tmp_path: Path, format: str) -> None:
    backend = backends.get(format)
    made = backend.export(detector.exported, detector.source, tmp_path / "float")
    samples = [{"image": s[None]} for s in scenes(16, seed=1)]
    tail = [op.source for op in backend.inspect(made, tmp_path / "float").ops if op.source]
    keep = tuple(s for s in dict.fromkeys(tail) if s.startswith(("cat", "mul", "add", "sigmoid")))
    recipe = Recipe(precision="w8a8", keep_float=keep)
    less = backend.quantize(made, tmp_path / "float", recipe, samples, tmp_path / "w8a8")
    report = judged(detector, less, tmp_path / "w8a8")
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


class Tied(nn.Module):
    """Row 4: the embedding is the output layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.inner = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.inner(self.words(ids))))


def test_row_4_tied_weights_stored_twice(build: Any, tmp_path: Path) -> None:
    ids = torch.randint(0, 50, (1, 7))
    made = build(Tied(), ids, input_names=("ids",))
    made.answers()
    float_report = made.judged()
    assert float_report.judgement.verdict == "pass"
    backend = backends.get("onnx")
    small = backend.quantize(
        made.artifact, made.root / "candidate", Recipe(precision="w8"), [], tmp_path
    )
    held = [
        onnx.numpy_helper.to_array(w) for w in onnx.load(tmp_path / small.entry).graph.initializer
    ]
    copies = sum(array.size == 800 for array in held)
    report = judged(made, small, tmp_path)
    assert ("EDGE-CHECK-068" in codes(report)) == (copies > 1), (copies, report.judgement)
    assert any(check.name == "weights-size" for check in report.checks)


def test_row_4_is_said_of_a_file_with_two_copies(build: Any, sabotaged: Any) -> None:
    made = build(Tied(), torch.randint(0, 50, (1, 7)), input_names=("ids",))
    made.answers()

    def untie(graph: Any) -> None:
        (name,) = [n for n, a in graph.weights().items() if a.size == 800]
        graph.put({"copy": graph.weights()[name]})
        readers = [node for node in graph.proto.graph.node if name in node.input]
        readers[-1].input[:] = ["copy" if i == name else i for i in readers[-1].input]

    if sum(a.size == 800 for a in map(onnx.numpy_helper.to_array,
                                      onnx.load(made.onnx).graph.initializer)) > 1:  # fmt: skip
        report = made.judged()  # the converter has done so itself
    else:
        report = made.judged(sabotaged(made, untie))
    assert report.judgement.verdict == "pass", "no answer is worse for it"
    assert "EDGE-CHECK-068" in codes(report)


class Attention(nn.Module):
    """Row 13: a mask of the smallest float under a softmax."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        least = torch.finfo(torch.float32).min
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        scores = scores + torch.where(mask, 0.0, least)[:, None]
        return scores.softmax(-1) @ self.value(x)


def plainly_cast(model: onnx.ModelProto) -> onnx.ModelProto:
    """fp16 as a cast of each number makes it: the smallest float becomes minus infinity."""
    half = convert_float_to_float16(model, keep_io_types=True, max_finite_val=65504.0)
    held = [*half.graph.initializer, *(a.t for n in half.graph.node for a in n.attribute)]
    for tensor in held:
        if tensor.data_type == onnx.TensorProto.FLOAT16:
            array = onnx.numpy_helper.to_array(tensor)
            lost = np.where(np.abs(array) > 65000, np.copysign(np.inf, array), array)
            tensor.CopyFrom(onnx.numpy_helper.from_array(lost.astype(np.float16), tensor.name))
    return half


def test_row_13_a_row_without_a_token_in_half_precision(build: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6, 8)).astype(np.float32)
    mask = rng.random((40, 6)) < 0.7
    mask[:, 0], mask[::4] = True, False
    made = build(
        Attention(), torch.from_numpy(x[:1]), torch.from_numpy(mask[:1]),
        input_names=("x", "mask"),
    )  # fmt: skip
    made.answers(data=data(tmp_path, x=x, mask=mask))
    assert made.judged().judgement.verdict == "pass"
    half = plainly_cast(onnx.load(made.onnx))
    path = tmp_path / "model.onnx"
    onnx.save(half, path)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": x[:1], "mask": mask[:1]})
    assert np.isnan(found).any()
    assert torch.isfinite(Attention()(torch.from_numpy(x[:1]), torch.from_numpy(mask[:1]))).all()
    report = made.judged(path, precision="fp16")
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == "EDGE-CHECK-005"
    ours = backends.get("onnx").quantize(
        made.artifact, made.root / "candidate", Recipe(precision="fp16"), [], tmp_path / "ours"
    )
    report = judged(made, ours, tmp_path / "ours")
    if report.judgement.verdict != "pass":  # engines may compute the masked sum in float32
        assert report.judgement.verdict == "fail"
        named = [r.message for r in report.judgement.reasons if r.code == "EDGE-CHECK-067"]
        assert "where" in named[0], report.judgement


def test_row_18_a_weight_shifted_by_one_byte(pair: Any, sabotaged: Any) -> None:
    def shifted(graph: Any) -> None:
        name, array = next((n, a) for n, a in graph.weights().items() if a.ndim == 2)
        data = array.tobytes()
        graph.put({name: np.frombuffer(data[1:] + data[:1], np.float32).reshape(array.shape)})

    assert pair.judged(sabotaged(pair, shifted)).judgement.verdict == "fail"


@pytest.mark.parametrize("place", range(0, 25, 6))
@pytest.mark.parametrize("byte", [2, 3])
def test_row_18_one_weight_byte_changed(pair: Any, sabotaged: Any, place: int, byte: int) -> None:
    """One bit of one weight that moves it by 1/32 at least; the file is whole and loads."""

    def changed(graph: Any) -> None:
        name, array = next((n, a) for n, a in graph.weights().items() if a.ndim == 2)
        raw = bytearray(array.tobytes())
        raw[4 * place + byte] ^= 0x04 if byte == 2 else 0x01
        graph.put({name: np.frombuffer(bytes(raw), np.float32).reshape(array.shape)})

    report = pair.judged(sabotaged(pair, changed))
    path = pair.onnx.parent
    feed = {n: np.ones((1, 5), np.float32) for n in ("left", "right")}
    assert path.exists()
    assert report.judgement.verdict == "fail", (feed, report.outputs)


def test_row_18_a_byte_changed_behind_the_hash(pair: Any, tmp_path: Path) -> None:
    raw = bytearray(pair.onnx.read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / pair.artifact.entry).write_bytes(bytes(raw))
    report = judged(pair, pair.artifact, tmp_path)
    assert report.judgement.verdict == "fail"
    assert codes(report) == ["EDGE-CHECK-001"]


def test_row_18_swapped_inputs(pair: Any, sabotaged: Any) -> None:
    report = pair.judged(sabotaged(pair, lambda g: g.rename({"left": "right", "right": "left"})))
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == "EDGE-CHECK-011"


class AtInitialisation(nn.Module):
    """Row 22: as batch norms with tiny weights leave a deep net, outputs of 1e-30."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(10):
            norm = nn.BatchNorm2d(3)
            nn.init.constant_(norm.weight, 1e-3)
            layers += [nn.Conv2d(3, 3, 3, padding=1), norm]
        self.layers = nn.Sequential(*layers)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean((2, 3))


def test_row_22_outputs_that_carry_no_evidence(build: Any) -> None:
    made = build(AtInitialisation(), torch.from_numpy(scenes(1)))
    made.answers()
    with torch.no_grad():
        assert 0 < AtInitialisation().eval()(torch.from_numpy(scenes(1))).abs().max() < 1e-25
    report = made.judged()
    assert report.judgement.verdict == "unproven"
    assert codes(report)[0] == "EDGE-CHECK-020"
