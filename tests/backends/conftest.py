"""Small nets of every kind, each exported once for the folder; eager PyTorch is their oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
from edgeserve.backends.torch.program.io import write_program
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported, Source

HERE = Path(__file__).parent


class ConvNet(nn.Module):
    """conv, batch norm with real statistics, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)
        with torch.no_grad():
            self.features[1].running_mean.uniform_(-1, 1)
            self.features[1].running_var.uniform_(0.5, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).mean((2, 3)))


class Difference(nn.Module):
    """Two inputs of equal shape; in the wrong order the answer changes its sign."""

    def forward(self, after: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return after - before


class Nested(nn.Module):
    """Takes a nested input and a constant; returns a dict with a tuple, a scalar and None in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(
        self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], *, scale: float = 1.0
    ) -> dict[str, Any]:
        y = self.linear(x) * scale + pair[0] - pair[1]
        return {"logits": y, "parts": (y.sum(), y > 0), "cache": None}


class Tied(nn.Module):
    """int64 ids, an embedding whose weight is also the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(ids))


class Audio(nn.Module):
    """Dynamic batch and length; the output's length follows from the input's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, stride=2)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(audio))


class Edges(nn.Module):
    """Odd outputs: an input itself, one tensor twice, a constant, a buffer, other dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = x * 2
        return x, twice, twice, torch.ones(2), self.table, x.to(torch.int32), x.double()


class Tower(nn.Module):
    """Attention over a dynamic length: the block that transformers are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.block(states)


@dataclass
class Net:
    """A net, its examples and what came of exporting it."""

    module: nn.Module
    examples: object
    exported: Exported
    root: Path
    feed: dict[str, np.ndarray] = field(default_factory=dict)

    def oracle(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Eager PyTorch: fed by the order of the signature's inputs."""
        tensors = [torch.from_numpy(np.array(feed[s.name])) for s in self.exported.signature.inputs]
        with torch.no_grad():
            got = self.call(*tensors)
        names = [spec.name for spec in self.exported.signature.outputs]
        return {n: t.numpy() for n, t in zip(names, got, strict=True)}

    def call(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The module's answer as a flat list, by hand for the nested net."""
        if isinstance(self.module, Nested):
            answer = self.module(tensors[0], (tensors[1], tensors[2]), scale=2.0)
            return [answer["logits"], *answer["parts"]]
        answer = self.module(*tensors)
        return list(answer) if isinstance(answer, tuple) else [answer]


BATCH = ("batch", 1, 8)
NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], object], ExportOptions]] = {
    "conv": (
        ConvNet,
        lambda: (torch.randn(1, 3, 12, 10),),
        ExportOptions({"image": {0: BATCH}}, output_names=("logits",)),
    ),
    "difference": (
        Difference,
        lambda: {"before": torch.randn(2, 3), "after": torch.randn(2, 3)},
        ExportOptions({"after": {0: BATCH}, "before": {0: BATCH}}),
    ),
    "nested": (
        Nested,
        lambda: {"x": torch.randn(1, 3), "scale": 2.0, "pair": (torch.randn(4), torch.randn(4))},
        ExportOptions({"x": {0: "batch"}}),
    ),
    "tied": (
        Tied,
        lambda: (torch.randint(0, 50, (1, 5)),),
        ExportOptions(({0: "batch", 1: ("length", 1, 64)},)),
    ),
    "audio": (
        Audio,
        lambda: (torch.randn(1, 4, 16),),
        ExportOptions({"audio": {0: torch.export.Dim("batch", max=8), 2: ("length", 4, 64)}}),
    ),
    "edges": (Edges, lambda: (torch.randn(2, 3), torch.randn(1)), ExportOptions()),
    "tower": (
        Tower,
        lambda: (torch.randn(1, 5, 16),),
        ExportOptions({"states": {0: "batch", 1: ("length", 1, 32)}}),
    ),
}


class Zoo:
    """Exports nets on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nets: dict[str, Net] = {}
        self._onnx: dict[str, tuple[Artifact, Path]] = {}

    def net(self, name: str) -> Net:
        """The net of that name, exported."""
        if name not in self._nets:
            make, examples, wishes = NETS[name]
            torch.manual_seed(0)
            self._nets[name] = self.export(name, make().eval(), examples(), wishes)
        return self._nets[name]

    def export(self, name: str, module: nn.Module, examples: object, wishes: ExportOptions) -> Net:
        """Export any module into a folder of that name."""
        program = export_module(module, examples, wishes, HERE)
        root = self._folder / name
        entry, kept = write_program(program, root)
        exported = Exported(
            source=Source(kind="factory", location=f"conftest:{name}", folder=str(HERE)),
            program=entry,
            examples=kept,
            signature=program.signature,
            notes=program.notes,
            weights=weights_of(program.program),
            graph_sha256=graph_sha256(program.program),
        )
        return Net(module, examples, exported, root, program.examples)

    def onnx(self, name: str) -> tuple[Artifact, Path]:
        """The net of that name as ONNX, and the folder it lies in."""
        if name not in self._onnx:
            net, out = self.net(name), self._folder / f"{name}-onnx"
            self._onnx[name] = backends.get("onnx").export(net.exported, net.root, out), out
        return self._onnx[name]


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """All nets, exported once."""
    return Zoo(tmp_path_factory.mktemp("zoo"))
