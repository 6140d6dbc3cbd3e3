"""Nets as ONNX files in other precisions, and a classifier whose true accuracy is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from edgeserve import backends
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.types.artifact import Artifact, Recipe

Feeds = Iterable[Mapping[str, np.ndarray]]


@dataclass
class Made:
    """A net, its fp32 ONNX artifact, and the folder for others."""

    module: nn.Module
    artifact: Artifact
    root: Path
    folder: Path

    def quantize(
        self,
        precision: str,
        feeds: Feeds = (),
        name: str = "",
        keep: Sequence[str] = (),
        **options: str,
    ) -> tuple[Artifact, Path]:
        """Another precision of it, in a folder of its own."""
        recipe = Recipe(precision=precision, keep_float=tuple(keep), options=options)  # type: ignore[arg-type]
        out = self.folder / (name or precision)
        return backends.get("onnx").quantize(self.artifact, self.root, recipe, feeds, out), out


def run(artifact: Artifact, root: Path, *arrays: np.ndarray, **wishes: Any) -> list[np.ndarray]:
    """The artifact's outputs, for inputs in order, one thread, default session options."""
    names = [spec.name for spec in artifact.io.inputs]
    with backends.get("onnx").load(artifact, root, threads=1, **wishes) as session:
        return list(session.run(dict(zip(names, arrays, strict=True))).values())


@pytest.fixture(scope="session")
def runs() -> Callable[..., list[np.ndarray]]:
    """`run`."""
    return run


@pytest.fixture(scope="session")
def make(zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Made]:
    """Export a module to ONNX: ``make(name, module, examples, wishes)``."""

    def make(
        name: str, module: nn.Module, examples: object, wishes: ExportOptions | None = None
    ) -> Made:
        net = zoo.export(f"quant-{name}", module.eval(), examples, wishes or ExportOptions())
        folder = tmp_path_factory.mktemp(name)
        artifact = backends.get("onnx").export(net.exported, net.root, folder / "fp32")
        return Made(net.module, artifact, folder / "fp32", folder)

    return make


class DigitsNet(nn.Module):
    """Convolution, depthwise and pointwise pair with a residual, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU6())
        self.deep = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.point = nn.Conv2d(24, 24, 1)
        self.norm = nn.BatchNorm2d(24)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(24 * 16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.relu(x + self.norm(self.point(torch.relu(self.deep(x)))))
        return self.head(self.pool(x).flatten(1))


@dataclass
class Digits:
    """A trained net and its data; the test half was never trained or calibrated on."""

    made: Made
    feeds: list[dict[str, np.ndarray]]
    images: np.ndarray
    labels: np.ndarray
    logits: np.ndarray  # PyTorch's, of the test half

    def answers(self, artifact: Artifact, root: Path) -> np.ndarray:
        """Logits of the test half, by the artifact."""
        return np.concatenate([run(artifact, root, part)[0] for part in np.split(self.images, 29)])


@pytest.fixture(scope="session")
def digits(make: Callable[..., Made]) -> Digits:
    """Trained on half of scikit-learn's digits; 64 samples of that half calibrate."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:898], order[898 : 898 + 899]
    net = _trained(torch.from_numpy(images[train]), torch.from_numpy(data.target[train]))
    batch = torch.export.Dim("batch", min=1, max=64)
    wishes = ExportOptions({"image": {0: batch}}, output_names=("logits",))
    made = make("digits", net, (torch.zeros(2, 1, 8, 8),), wishes)
    with torch.no_grad():
        logits = net(torch.from_numpy(images[test])).numpy()
    feeds = [{"image": images[i : i + 1]} for i in train[:64]]
    return Digits(made, feeds, images[test], data.target[test], logits)


def _trained(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    net = DigitsNet()
    steps = 14
    optimizer = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps * 29)
    for _ in range(steps):
        for rows in torch.randperm(len(images)).split(31):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()
