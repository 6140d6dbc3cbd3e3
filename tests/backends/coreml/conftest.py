"""Packages of the zoo's nets, each made once for the folder, and an independent reader of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edgeserve import backends
from edgeserve.backends import Backend
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.artifact import Artifact, FileEntry, Recipe
from edgeserve.types.processing import InputProcessing, Processing

Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Package:
    """A package and what it was made of."""

    artifact: Artifact
    root: Path
    net: Any

    @property
    def folder(self) -> Path:
        """The ``.mlpackage``."""
        return self.root / self.artifact.entry

    @property
    def spec(self) -> Any:
        """The message, read by coremltools."""
        return coremltools().utils.load_spec(str(self.folder))

    def answer(self, feed: Feed, **options: Any) -> Feed:
        """What the package answers to a feed of the source's signature."""
        exported = self.net.exported
        with backends.get("coreml").load(self.artifact, self.root, **options) as session:
            return Adapter(session, exported.signature, exported.processing.padding).run(feed)

    def error(self, feed: Feed | None = None) -> float:
        """Largest difference from eager PyTorch, relative to each output's scale."""
        feed = self.net.feed if feed is None else feed
        got, right = self.answer(feed), self.net.oracle(feed)
        assert list(got) == list(right)
        return max(relative(got[name], right[name]) for name in right)


def relative(got: np.ndarray, right: np.ndarray) -> float:
    """Largest difference, relative to the largest right value."""
    assert got.shape == right.shape
    scale = max(float(np.abs(right.astype(np.float64)).max(initial=0.0)), 1e-6)
    off = np.abs(got.astype(np.float64) - right.astype(np.float64))
    return float(off.max(initial=0.0)) / scale


class Factory:
    """Makes packages, each once."""

    def __init__(self, zoo: Any, folder: Path) -> None:
        self.zoo, self._folder = zoo, folder
        self._made: dict[tuple[str, ...], Package] = {}
        self.backend: Backend = backends.get("coreml")

    def __call__(
        self, name: str, precision: str = "fp32", route: str = "whole", **options: str
    ) -> Package:
        """The package of a net of the zoo."""
        key = (name, precision, route, *sorted(options.items()))
        if key not in self._made:
            self._made[key] = self.make(self.zoo.net(name), precision, route, **options)
        return self._made[key]

    def make(
        self, net: Any, precision: str = "fp32", route: str = "whole", **options: str
    ) -> Package:
        """The package of any exported net."""
        out = self._fresh()
        artifact = self.backend.export(net.exported, net.root, out, route, precision, options)
        return Package(artifact, out, net)

    def export(
        self, module: torch.nn.Module, examples: Any, shapes: Any = None, **changes: Any
    ) -> Any:
        """Export any module, with other values for fields of its `Exported`."""
        wishes = ExportOptions(shapes)
        net = self.zoo.export(self._fresh().name, module.eval(), examples, wishes)
        net.exported = msgspec.structs.replace(net.exported, **changes)
        return net

    def quantize(self, package: Package, recipe: Recipe, samples: Any = ()) -> Package:
        """Another precision of a package."""
        out = self._fresh()
        artifact = self.backend.quantize(package.artifact, package.root, recipe, samples, out)
        return Package(artifact, out, package.net)

    def _fresh(self) -> Path:
        self._count = getattr(self, "_count", 0) + 1
        return self._folder / f"made-{self._count}"


@pytest.fixture(scope="session")
def packages(zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> Factory:
    """All packages, each made on first use."""
    return Factory(zoo, tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="session")
def worst() -> Callable[[np.ndarray, np.ndarray], float]:
    """Largest difference, relative to the largest right value."""
    return relative


class Reader(torch.nn.Module):
    """A text encoder in small: ids and mask in, one masked mean of token vectors out for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(40, 16)
        self.block = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        states = self.block(self.embed(ids), src_key_padding_mask=mask == 0)
        weights = mask[..., None].float()
        return {"states": states, "mean": (states * weights).sum(1) / weights.sum(1)}


@contextmanager
def without_fastpath() -> Iterator[None]:
    """Attention as an export traces it; the fast path answers zeros at places that are masked."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@pytest.fixture(scope="session")
def text(packages: Factory) -> Any:
    """The reader, exported with a length of 1 to 40 that its tokenizer pads."""
    torch.manual_seed(0)
    dims = {0: ("batch", 1, 8), 1: ("length", 1, 40)}
    ids = torch.randint(1, 40, (2, 7))
    entry = FileEntry("assets/tokenizer.json", 0, "0" * 64)
    processing = Processing(
        inputs=(
            InputProcessing("ids", (Tokenize(entry, "ids", 40),)),
            InputProcessing("mask", (Tokenize(entry, "attention_mask", 40),)),
        )
    )
    with without_fastpath():
        net = packages.export(
            Reader(),
            (ids, torch.ones_like(ids)),
            {"ids": dims, "mask": dims},
            processing=processing,
        )

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        with without_fastpath():
            return list(net.module(*tensors).values())

    net.call = call
    return net


@pytest.fixture(scope="session")
def text_package(packages: Factory, text: Any) -> Package:
    """The reader as a package of three functions."""
    return packages.make(text)
