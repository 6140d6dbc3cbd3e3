"""The reference session: stateless, out of the caller's way, honest about what it cannot give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.errors import BackendError


class Counter(nn.Module):
    """Counts its calls in a buffer that enters no answer; changes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        return x.add_(1), x.sum(0, keepdim=True)


def load(net: Any, **options: Any) -> Any:
    return backends.get("torch").load(reference_artifact(net.exported), net.root, **options)


def test_one_run_knows_nothing_of_another(zoo: Any) -> None:
    """As in every other format: a buffer that a run changes is put back."""
    net = zoo.export("counter", Counter().eval(), (torch.ones(2),), ExportOptions())
    feed = {"x": np.full(2, 5, np.float32)}
    with load(net) as session:
        for _ in range(3):
            got = session.run(feed)
            assert got["output_0"].tolist() == [6, 6]
            assert got["output_1"].tolist() == [12]
            assert session._module.calls.tolist() == [0]
    assert feed["x"].tolist() == [5, 5], "the input is the caller's"
    artifact = backends.get("onnx").export(net.exported, net.root, net.root / "onnx")
    with backends.get("onnx").load(artifact, net.root / "onnx") as session:
        for _ in range(2):
            assert session.run(feed)["output_0"].tolist() == [6, 6]


def test_torchs_own_number_of_threads_is_put_back(zoo: Any) -> None:
    net = zoo.net("conv")
    before = torch.get_num_threads()
    seen: list[int] = []
    with load(net, threads=1 if before != 1 else 2) as session:
        session._module.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
        session.run(net.feed)
    assert seen == [session.threads]
    assert torch.get_num_threads() == before


def test_no_gradients_are_kept(zoo: Any) -> None:
    net = zoo.net("conv")
    with load(net) as session:
        assert not any(p.requires_grad for p in session._module.parameters())


def test_an_output_that_numpy_does_not_have_is_refused(zoo: Any) -> None:
    class Small(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.bfloat16()

    net = zoo.export("small", Small(), (torch.ones(2),), ExportOptions())
    with pytest.raises(BackendError) as error:
        load(net)
    assert error.value.code == "EDGE-BACKEND-017"
    assert "'output'" in error.value.message


def test_sizes_outside_the_range_fail_in_the_engine(zoo: Any) -> None:
    net = zoo.net("conv")
    feed = {"image": np.zeros((9, 3, 12, 10), np.float32)}
    with load(net) as session, pytest.raises(BackendError) as error:
        session.run(feed)
    assert error.value.code == "EDGE-BACKEND-013"


def test_inspection_names_the_modules(zoo: Any) -> None:
    net = zoo.net("conv")
    graph = backends.get("torch").inspect(reference_artifact(net.exported), net.root)
    assert [(op.type, op.module) for op in graph.ops] == [
        ("aten.conv2d.default", "features.0"),
        ("aten.batch_norm.default", "features.1"),
        ("aten.relu.default", "features.2"),
        ("aten.mean.dim", None),
        ("aten.linear.default", "head"),
    ]
    assert {w.name: w.shape for w in graph.weights}["features.0.weight"] == (8, 3, 3, 3)
    wanted = sum(t.numel() * t.element_size() for t in net.module.state_dict().values())
    assert graph.weight_bytes == wanted
