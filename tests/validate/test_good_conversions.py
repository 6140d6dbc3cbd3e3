"""Honest conversions of ordinary models, in every precision: none of the field rules may fail them.

Random weights, random smooth inputs, the ``tensors`` task: without decisions to go by, tensors are
all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.reports import Report
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import JudgeRequest

PRECISIONS = ("fp32", "fp16", "w8", "w8a8")


def scenes(count: int, seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(count, 3, 6, 6, generator=generator)
    return functional.interpolate(small, size=(32, 32), mode="bicubic").numpy()


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 12, 32)).astype(np.float32)


class Mobile(nn.Module):
    """Depthwise convolutions, batch norm, clipped and smooth activations, a squeeze."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6())
        self.deep = nn.Sequential(
            nn.Conv2d(16, 32, 1),
            nn.BatchNorm2d(32),
            nn.Hardswish(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.BatchNorm2d(32),
            nn.ReLU6(),
            nn.Conv2d(32, 16, 1),
            nn.BatchNorm2d(16),
        )
        self.gate, self.head = nn.Conv2d(16, 16, 1), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        y = y + self.deep(y)
        y = y * self.gate(y.mean((2, 3), keepdim=True)).sigmoid()
        return self.head(y.mean((2, 3)))


class TwoHeads(nn.Module):
    """A detector that keeps boxes and scores apart."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
        self.boxes, self.scores = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 5, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = functional.relu(self.body(x))
        boxes = self.boxes(y).flatten(2).transpose(1, 2)
        return boxes.sigmoid(), self.scores(y).flatten(2).transpose(1, 2).sigmoid()


class Masks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
        self.out = nn.Conv2d(16, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.out(functional.relu(self.down(x)))
        return functional.interpolate(y, scale_factor=4.0, mode="bilinear", align_corners=False)


class Encoder(nn.Module):
    """One block of a transformer, its vectors pooled and of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        x = x + self.out((q @ k.transpose(1, 2) / 6).softmax(-1) @ v)
        x = x + self.mlp(self.second(x))
        return functional.normalize(x.mean(1), dim=-1)


class Numbers(nn.Module):
    """Age in years beside two probabilities: two fields in three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.body(x.mean(1) * 3)
        return 45 + 20 * y[:, :1], y[:, 1:].softmax(-1)


@dataclass(frozen=True)
class Converted:
    """A model with its answers, and each of its files in one format."""

    model: Any
    files: dict[str, tuple[Artifact, Path]]

    def judged(self, precision: str) -> Report:
        artifact, root = self.files[precision]
        return judge(
            JudgeRequest(
                artifact=artifact,
                root=str(root),
                source_folder=str(self.model.source),
                samples=str(self.model.root / "samples"),
            )
        )


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], np.ndarray]]] = {
    "mobile": (Mobile, scenes),
    "two heads": (TwoHeads, scenes),
    "masks": (Masks, scenes),
    "encoder": (Encoder, rows),
    "numbers": (Numbers, rows),
}


@pytest.fixture(scope="module", params=NETS)
def asked(request: Any, build: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A model with its reference's answers, and samples to calibrate with."""
    net, draw = NETS[request.param]
    torch.manual_seed(3)
    data = tmp_path_factory.mktemp("data") / "data.npz"
    module = net()
    np.savez(data, x=draw(60, 1))
    model = build(module, torch.from_numpy(draw(1, 0)), input_names=("x",))
    model.answers(data=str(data))
    return model, [{"x": row[None]} for row in draw(24, 2)]


@pytest.fixture(scope="module", params=("onnx", "tflite"))
def converted(request: Any, asked: Any, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    model, samples = asked
    folder = tmp_path_factory.mktemp("honest")
    backend = backends.get(request.param)
    made = backend.export(model.exported, model.source, folder / "fp32")
    files = {"fp32": (made, folder / "fp32")}
    for precision in PRECISIONS[1:]:
        recipe = Recipe(precision=precision)  # type: ignore[arg-type]
        small = backend.quantize(made, folder / "fp32", recipe, samples, folder / precision)
        files[precision] = small, folder / precision
    return Converted(model, files)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_rule_fails_an_honest_file(converted: Converted, precision: str) -> None:
    report = converted.judged(precision)
    said = report.judgement.reasons
    wanted = ("pass",) if precision in ("fp32", "fp16") else ("pass", "degraded")
    assert report.judgement.verdict in wanted, said
    assert all(check.ok for check in report.checks)
    harmless = {"EDGE-CHECK-052", "EDGE-CHECK-064", "EDGE-CHECK-069"}
    assert {reason.code for reason in report.judgement.reasons} <= harmless, said
    assert float(report.invariant_seconds) > 0
    inner = [check for check in report.checks if check.name == "inner"]
    assert inner, report.notes
