"""What comparisons themselves miss: half precision, swapped inputs, changed bytes, no evidence.

What is right comes from PyTorch. Rows are those of ``docs/explanation/known-bad.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
import pytest
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from testkit.judging import codes
from torch import nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.types.artifact import Recipe


def scenes(count: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(0)
    small = torch.randn(count, 3, 5, 5, generator=generator)
    return functional.interpolate(small, size=(16, 16), mode="bilinear").numpy()


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


ROWS = np.random.default_rng(0).standard_normal((40, 6, 8)).astype(np.float32)
MASKS = np.random.default_rng(1).random((40, 6)) < 0.7
MASKS[:, 0], MASKS[::4] = True, False


@pytest.fixture(scope="module")
def attention(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every fourth row has no token at all."""
    made = build(
        Attention(),
        torch.from_numpy(ROWS[:1]),
        torch.from_numpy(MASKS[:1]),
        input_names=("x", "mask"),
    )
    path = tmp_path_factory.mktemp("rows") / "data.npz"
    np.savez(path, x=ROWS, mask=MASKS)
    made.answers(data=str(path))
    return made


def test_row_13_a_row_without_a_token_in_half_precision(attention: Any, tmp_path: Path) -> None:
    """As a cast of each number makes it."""
    assert attention.judged().judgement.verdict == "pass"
    path = tmp_path / "model.onnx"
    onnx.save(plainly_cast(onnx.load(attention.onnx)), path)
    feed = {"x": ROWS[:1], "mask": MASKS[:1]}
    (found,) = onnxruntime.InferenceSession(path).run(None, feed)
    assert np.isnan(found).any()
    assert torch.isfinite(Attention()(*map(torch.from_numpy, feed.values()))).all()
    report = attention.judged(path, precision="fp16")
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == "EDGE-CHECK-005"


@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_row_13_ours_is_right_or_refused(attention: Any, tmp_path: Path, format: str) -> None:
    backend = backends.get(format)
    if "fp16" in backend.native:
        made = backend.export(
            attention.exported, attention.source, tmp_path / "half", precision="fp16"
        )
    else:
        float_file = backend.export(attention.exported, attention.source, tmp_path / "float")
        recipe = Recipe(precision="fp16")
        made = backend.quantize(float_file, tmp_path / "float", recipe, [], tmp_path / "half")
    report = attention.judged_as(made, tmp_path / "half")
    with backends.get(format).load(made, tmp_path / "half") as session:
        run = Adapter(session, attention.exported.signature).run
        found = [run({"x": x[None], "mask": m[None]}) for x, m in zip(ROWS, MASKS, strict=True)]
    got = np.concatenate([next(iter(each.values())) for each in found])
    with torch.no_grad():
        wanted = Attention()(torch.from_numpy(ROWS), torch.from_numpy(MASKS)).numpy()
    right = bool(np.abs(got - wanted).max() < 0.02)  # false of NaN
    assert report.judgement.verdict == ("pass" if right else "fail"), report.judgement
    assert right or codes(report)[0] == "EDGE-CHECK-005"


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
    report = pair.judged_as(pair.artifact, tmp_path)
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
