"""Operators on structure through the real runtimes, many in one program; eager PyTorch is right.

Scatters in every mode, sequences of tensors, attention without a batch, numbers read from tensors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from testkit.nets import Calling
from torch import Tensor, nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.types.artifact import Recipe

#: Converters warn of much that is no concern of theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

FORMATS = ("onnx", "tflite", "coreml")
ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Folders that a converter left to the collector go here, not in a later test."""
    yield
    gc.collect()


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y = seeded(4, 3), seeded(4, 3, seed=1)
TWICE = torch.tensor([0, 1, 0, 1])
PLACES = torch.tensor([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]])
ALL = torch.arange(4)

Rule = Callable[[Tensor, Tensor], Tensor]


def whole(x: Tensor) -> Tensor:
    """Integers of a float tensor."""
    return (x * 4).to(torch.int64)


def chosen(x: Tensor) -> Tensor:
    """Indices that the input decides."""
    return (x[:, 0] > 0).to(torch.int64)


def assigned(x: Tensor, key: Any, values: Tensor) -> Tensor:
    x = x.clone()
    x[key] = values
    return x


REDUCED: dict[str, Rule] = {
    f"{mode} {own}": lambda x, y, mode=mode, own=own: x.scatter_reduce(  # type: ignore[misc]
        0, PLACES, y, mode, include_self=own
    )
    for mode in ("sum", "prod", "mean", "amax", "amin")
    for own in (True, False)
}
REDUCED |= {
    "rows": lambda x, y: x.index_reduce(0, TWICE, y, "mean", include_self=False),
    "products of rows": lambda x, y: x.index_reduce(0, TWICE, y, "prod"),
    "chosen": lambda x, y: x.index_reduce(0, chosen(x), y, "amax"),
    "integers": lambda x, y: whole(x).scatter_reduce(0, PLACES, whole(y), "amin"),
    "integers rounded down": lambda x, y: whole(x).scatter_reduce(0, PLACES, whole(y), "mean"),
    "smaller index": lambda x, y: x.scatter_reduce(1, PLACES[:2, :2], y, "mean"),
    "last axis": lambda x, y: x.scatter_reduce(-1, PLACES, y, "prod"),
}
ADDED: dict[str, Rule] = {
    "all rows": lambda x, y: x.index_add(0, ALL, y),
    "all places": lambda x, y: x.index_put((ALL,), y, accumulate=True),
    "all columns": lambda x, y: x.index_add(1, torch.arange(3), y, alpha=0.5),
    "scattered rows": lambda x, y: x.scatter_add(0, ALL.unsqueeze(1).expand(4, 3), y),
    "twice": lambda x, y: x.index_put((TWICE,), y, accumulate=True),
    "from the end": lambda x, y: x.index_put((torch.tensor([-1, 0, -1, 1]),), y, accumulate=True),
    "second axis": lambda x, y: ATEN.index_put(x, [None, torch.tensor([2, 2])], y[:, :2], True),
    "two axes": lambda x, y: x.index_put((TWICE, TWICE), y[:, 0], accumulate=True),
    "integers": lambda x, y: whole(x).index_add(0, TWICE, whole(y)),
    "chosen": lambda x, y: x.index_put((chosen(x),), y, accumulate=True),
    "by mode": lambda x, y: x.scatter(0, PLACES, y, reduce="add"),
    "products by mode": lambda x, y: x.scatter(0, PLACES, 2.0, reduce="multiply"),
    "flat": lambda x, y: x.put(torch.tensor([1, 5, 1]), y[0], accumulate=True),
}
SET: dict[str, Rule] = {
    "all rows": lambda x, y: x.index_put((ALL,), y),
    "columns": lambda x, y: assigned(x, (slice(None), torch.tensor([2, 0])), y[:, :2]),
    "smaller index": lambda x, y: x.scatter(0, torch.tensor([[0, 1, 2], [1, 2, 3]]), y),
    "flat": lambda x, y: x.put(torch.tensor([1, 5, 2]), y[0]),
    "diagonal": lambda x, y: x.diagonal_scatter(y[0, :2], 1),
    "truth": lambda x, y: (x > 0).scatter(0, PLACES, True),
    "truth of rows": lambda x, y: assigned(x > 0, TWICE, y[:, :1] > 0),
    "masked": lambda x, y: x.masked_scatter(x > 0, y),
    "masked rows": lambda x, y: x.masked_scatter(x[:, :1] > 0, y),
}
SHAPED: dict[str, Rule] = {
    "hstack": lambda x, y: torch.hstack([x, y]),
    "hstack of vectors": lambda x, y: torch.hstack([x[0], y[0]]),
    "vstack": lambda x, y: torch.vstack([x[0], y]),
    "dstack": lambda x, y: torch.dstack([x, y]),
    "column_stack": lambda x, y: torch.column_stack([x[0], y[0]]),
    "atleast": lambda x, y: torch.cat(torch.atleast_2d(x[0], y[0])),
    "bags": lambda x, y: functional.embedding_bag(PLACES, x, mode="mean"),
    "attention without a batch": lambda x, y: functional.scaled_dot_product_attention(x, y, y),
    "attention without heads": lambda x, y: functional.scaled_dot_product_attention(
        x[None], y[None], y[None], attn_mask=torch.eye(4, dtype=torch.bool).flip(0)[None]
    ),
}
TABLES = {"reduced": REDUCED, "added": ADDED, "set": SET, "shaped": SHAPED}


class Program(nn.Module):
    """All functions of a table at once."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        super().__init__()
        self.rules = rules

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return tuple(rule(x, y) for rule in self.rules.values())


@pytest.fixture(scope="module", params=TABLES)
def exported(zoo: Any, request: Any) -> Any:
    return zoo.export(f"structure-{request.param}", Program(TABLES[request.param]), (X, Y), ONE)


ONE = ExportOptions(input_names=("x", "y"))


@pytest.mark.parametrize("format", FORMATS)
def test_each_answer_is_pytorchs(exported: Any, tmp_path: Path, format: str) -> None:
    backend = backends.get(format)
    artifact = backend.export(exported.exported, exported.root, tmp_path)
    with backend.load(artifact, tmp_path) as session:
        for feed in (exported.feed, {"x": Y.numpy(), "y": X.numpy()}):
            got = list(session.run(feed).values())
            right = exported.module(*(torch.from_numpy(feed[name]) for name in ("x", "y")))
            for name, wanted, found in zip(exported.module.rules, right, got, strict=True):
                assert found.shape == wanted.shape, name
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_no_sequence_is_left_for_other_precisions(zoo: Any, tmp_path: Path) -> None:
    net = zoo.export("sequences", Program(SHAPED), (X, Y), ONE)
    backend = backends.get("onnx")
    artifact = backend.export(net.exported, net.root, tmp_path / "fp32")
    nodes = onnx.load(tmp_path / "fp32" / artifact.entry).graph.node
    assert not [node.op_type for node in nodes if "Sequence" in node.op_type]
    small = backend.quantize(
        artifact, tmp_path / "fp32", Recipe(precision="fp16"), [], tmp_path / "fp16"
    )
    with backend.load(small, tmp_path / "fp16") as session:
        got = list(session.run(net.feed).values())
    for name, wanted, found in zip(SHAPED, net.module(X, Y), got, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.02, err_msg=name)


def clipped(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Several clips of one value, and clips that exclude each other."""
    size = torch.relu(x)
    return (
        x.clamp(0, 1).clamp(min=0.2) + y,
        x.clamp(-1, 1).clamp(min=-0.3) * y,
        size.clamp(max=0.5) + size.clamp(max=0.7),
        x.clamp(0, 1).clamp(2, 3) + torch.relu(y.clamp(-2, -1)),
    )


def test_clips_of_one_value_keep_their_bounds(zoo: Any, tmp_path: Path) -> None:
    net = zoo.export("clipped", Calling(clipped), (X, Y), ExportOptions())
    artifact = backends.get("onnx").export(net.exported, net.root, tmp_path)
    with backends.get("onnx").load(artifact, tmp_path) as session:
        got = list(session.run(net.feed).values())
    for wanted, found in zip(clipped(X, Y), got, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


class Strides(nn.Module):
    """Numbers from a constant, a parameter and a buffer, as heads of detectors read them."""

    def __init__(self) -> None:
        super().__init__()
        self.strides = torch.tensor([8.0, 16.0])
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("count", torch.tensor(2))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        boxes = torch.cat([x * torch.full((1, 1), each.item()) for each in self.strides], 1)
        scaled = x * self.scale[0].item() / (self.scale.sum().item() + 1)
        return boxes, scaled, x * self.count.item()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dims", [None, {"x": {0: ("batch", 1, 8)}}], ids=["fixed", "batch"])
def test_numbers_are_read_from_tensors(zoo: Any, tmp_path: Path, format: str, dims: Any) -> None:
    x = seeded(1, 3)
    net = zoo.export(f"strides-{bool(dims)}", Strides(), {"x": x}, ExportOptions(dims))
    artifact = backends.get(format).export(net.exported, net.root, tmp_path)
    with backends.get(format).load(artifact, tmp_path) as session:
        got = list(session.run(net.feed).values())
    for wanted, found in zip(net.module(x), got, strict=True):
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-5, atol=1e-6)
