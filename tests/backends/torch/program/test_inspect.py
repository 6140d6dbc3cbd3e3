"""What enters the identity: bytes of weights as numpy sees them, and a text without metadata."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.program.inspect import graph_sha256, graph_text, weights_of

HERE = Path(__file__).parent


class Mixed(nn.Module):
    """A weight of each kind: parameter, buffer, hidden buffer, constant, scalar, tied, bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.again = nn.Linear(3, 3, bias=False)
        self.again.weight = self.linear.weight
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("hidden", torch.arange(6.0).reshape(2, 3).T, persistent=False)
        self.register_buffer("small", torch.tensor([1.5, -2.0], dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(self.linear(x)) @ self.hidden
        return y * self.count + self.small.float() + torch.tensor([0.25, 0.5])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_weights_are_hashed_as_little_endian_rows() -> None:
    """The oracle is numpy: its own little-endian conversion and C-order bytes."""
    module = Mixed().eval()
    # export_module would take the bfloat16 buffer to float32 first
    program = torch.export.export(module, (torch.ones(2, 3),))
    found = {w.name: w for w in weights_of(program)}
    tied = module.linear.weight.detach().numpy().astype("<f4").tobytes("C")
    assert found["linear.weight"].sha256 == found["again.weight"].sha256 == sha256(tied)
    assert found["count"].sha256 == sha256(np.array(7, "<i8").tobytes())
    assert (found["count"].dtype, found["count"].shape) == ("int64", ())
    hidden = np.array([[0, 3], [1, 4], [2, 5]], "<f4")
    assert found["hidden"].sha256 == sha256(hidden.tobytes("C"))
    assert found["hidden"].shape == (3, 2)
    # 1.5 and -2.0 in bfloat16: the upper half of their float32 bits
    assert found["small"].sha256 == sha256(bytes([0xC0, 0x3F, 0x00, 0xC0]))
    assert found["small"].dtype == "bfloat16"
    constant = [w for name, w in found.items() if "lifted" in name]
    assert [w.sha256 for w in constant] == [sha256(np.array([0.25, 0.5], "<f4").tobytes())]
    assert list(found) == sorted(found)


def test_any_changed_weight_changes_its_hash() -> None:
    module = Mixed().eval()
    before = weights_of(export_module(module, (torch.ones(2, 3),), ExportOptions(), HERE).program)
    module.hidden[2, 1] += 1e-6
    after = weights_of(export_module(module, (torch.ones(2, 3),), ExportOptions(), HERE).program)
    assert [a.name for a, b in zip(after, before, strict=True) if a != b] == ["hidden"]


def test_the_text_survives_saving(zoo: Any) -> None:
    for name in ("conv", "nested", "tower"):
        net = zoo.net(name)
        program = torch.export.load(net.root / "model.pt2")
        assert graph_sha256(program) == net.exported.graph_sha256
        assert weights_of(program) == net.exported.weights


def test_the_text_holds_no_place_and_no_address(zoo: Any) -> None:
    text = graph_text(torch.export.load(zoo.net("tower").root / "model.pt2"))
    assert "aten.scaled_dot_product_attention" in text
    for trace in (str(HERE), "conftest", ".py", "0x", "site-packages", sys.prefix):
        assert trace not in text


def _text(module: nn.Module, name: str = "x", batch: int = 2) -> str:
    shapes = {name: {0: ("n", 1, 9)}}
    wishes = ExportOptions(shapes, input_names=(name,))
    return graph_text(export_module(module.eval(), (torch.ones(batch, 3),), wishes, HERE).program)


def test_the_text_tells_models_apart_and_not_their_examples() -> None:
    plain = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert _text(plain) == _text(plain, batch=5) == _text(plain, "another_name")
    others = [
        nn.Sequential(nn.Linear(3, 3), nn.GELU()),
        nn.Sequential(nn.Linear(3, 3), nn.GELU(approximate="tanh")),
        nn.Sequential(nn.ReLU(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.LeakyReLU(0.01)),
        nn.Sequential(nn.Linear(3, 3), nn.LeakyReLU(0.02)),
        nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU()),
    ]
    assert len({_text(module) for module in [plain, *others]}) == 7


def test_inner_graphs_are_part_of_the_text() -> None:
    class Choice(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * self.factor, lambda x: x - 1, (x,))

    two, three = _text(Choice(2.0)), _text(Choice(3.0))
    assert "graph true_graph_0" in two
    assert two != three
