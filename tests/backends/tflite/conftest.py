"""Nets as TFLite files: a text encoder with buckets, a trained classifier, and any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.artifact import Artifact, FileEntry, Recipe
from edgeserve.types.processing import InputProcessing, Processing

Feed = Mapping[str, np.ndarray]


@dataclass
class Tflite:
    """A net, what was exported of it, and its fp32 file."""

    net: Any
    artifact: Artifact
    root: Path
    folder: Path

    def run(self, feed: Feed, artifact: Artifact | None = None, **wishes: Any) -> dict[str, Any]:
        """The answer to a feed of the source's signature, by this or a derived artifact."""
        artifact, exported = artifact or self.artifact, self.net.exported
        root = self.root if artifact is self.artifact else self.folder / artifact.precision
        with backends.get("tflite").load(artifact, root, **wishes) as session:
            return Adapter(session, exported.signature, exported.processing.padding).run(feed)

    def quantize(
        self, precision: str, samples: Iterable[Feed] = (), keep: Sequence[str] = ()
    ) -> Artifact:
        """Another precision of it, in the folder of that name."""
        recipe = Recipe(precision=precision, keep_float=tuple(keep))  # type: ignore[arg-type]
        return backends.get("tflite").quantize(
            self.artifact, self.root, recipe, samples, self.folder / precision
        )


@pytest.fixture(scope="session")
def convert(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tflite]:
    """Convert a net of the zoo, once unless told otherwise."""
    made: dict[Path, Tflite] = {}

    def convert(net: Any, again: bool = False) -> Tflite:
        if again or net.root not in made:
            folder = tmp_path_factory.mktemp("tflite")
            artifact = backends.get("tflite").export(net.exported, net.root, folder / "fp32")
            made[net.root] = Tflite(net, artifact, folder / "fp32", folder)
        return made[net.root]

    return convert


@pytest.fixture(scope="session")
def made(zoo: Any, convert: Callable[..., Tflite]) -> Callable[..., Tflite]:
    """Export and convert a module: ``made(name, module, examples, wishes)``."""

    def made(
        name: str, module: nn.Module, examples: object, wishes: ExportOptions | None = None
    ) -> Tflite:
        return convert(
            zoo.export(f"tflite-{name}", module.eval(), examples, wishes or ExportOptions())
        )

    return made


class TextNet(nn.Module):
    """int64 ids and mask of any length; padding is masked in the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 16), nn.Embedding(24, 16)
        self.projections = nn.Linear(16, 48)
        self.out = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = self.projections(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, (mask > 0)[:, None, None])
        x = self.norm(x + seen.transpose(1, 2).flatten(2))
        return x + self.out(x)


@pytest.fixture(scope="session")
def text(zoo: Any) -> Any:
    """The text encoder, exported, with a processing that pads its inputs."""
    torch.manual_seed(3)
    dims = {0: ("batch", 1, 8), 1: ("length", 1, 24)}
    example = (torch.randint(0, 60, (2, 20)), torch.ones(2, 20, dtype=torch.int64))
    wishes = ExportOptions({"ids": dims, "mask": dims}, output_names=("hidden",))
    net = zoo.export("tflite-text", TextNet().eval(), example, wishes)
    tokenizer = FileEntry(path="assets/tokenizer.json", size=1, sha256="0" * 64)
    steps = tuple(
        InputProcessing(name=name, steps=(Tokenize(tokenizer=tokenizer, part=part, max_length=24),))
        for name, part in (("ids", "ids"), ("mask", "attention_mask"))
    )
    net.exported = msgspec.structs.replace(net.exported, processing=Processing(inputs=steps))
    return net


@pytest.fixture(scope="session")
def text_file(text: Any, convert: Callable[..., Tflite]) -> Tflite:
    """The text encoder as a file with two lengths."""
    return convert(text)


class DigitsNet(nn.Module):
    """Convolution, depthwise and pointwise pair with a residual, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU6())
        self.deep = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.point = nn.Sequential(nn.Conv2d(24, 24, 1), nn.BatchNorm2d(24))
        self.head = nn.Linear(24 * 16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.relu(x + self.point(torch.relu(self.deep(x))))
        return self.head(nn.functional.max_pool2d(x, 2).flatten(1))


@dataclass
class Digits:
    """A trained net as a file, samples to calibrate with, and a half never seen in training."""

    file: Tflite
    samples: list[dict[str, np.ndarray]]
    images: np.ndarray
    labels: np.ndarray
    logits: np.ndarray  # PyTorch's, of the test half


@pytest.fixture(scope="session")
def digits(made: Callable[..., Tflite]) -> Digits:
    """Trained on half of scikit-learn's digits; 64 samples of that half calibrate."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:898], order[898:]
    net = _trained(torch.from_numpy(images[train]), torch.from_numpy(data.target[train]))
    wishes = ExportOptions({"image": {0: ("batch", 1, 8)}}, output_names=("logits",))
    file = made("digits", net, (torch.zeros(2, 1, 8, 8),), wishes)
    with torch.no_grad():
        logits = net(torch.from_numpy(images[test])).numpy()
    samples = [{"image": images[i : i + 1]} for i in train[:64]]
    return Digits(file, samples, images[test], data.target[test], logits)


def _trained(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    net = DigitsNet()
    optimizer = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=14 * 29)
    for _ in range(14):
        for rows in torch.randperm(len(images)).split(31):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()
