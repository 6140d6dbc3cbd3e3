"""Inner tensors of Core ML programs through the interpreter: dead channels, float16's range."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from testkit.nets import Hot
from torch import nn

from edgeserve import backends
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.reports import Report
from edgeserve.types.source import Exported

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
RNG = np.random.default_rng(0)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.head(torch.sigmoid(self.second(y)).mean((2, 3)))


def package(exported: Exported, source: Path, out: Path, precision: str = "fp32") -> Artifact:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return backends.get("coreml").export(exported, source, out, precision=precision)


def remarks(report: Report) -> dict[str, str]:
    return {reason.code: reason.message for reason in report.judgement.reasons}


def compared(report: Report) -> int:
    (check,) = [check for check in report.checks if check.name == "inner"]
    return int(check.detail.split()[0])


@pytest.fixture(scope="module")
def small(build: Any) -> Any:
    made = build(Small(), torch.randn(1, 3, 8, 8), input_names=("x",))
    made.answers()
    return made


@pytest.fixture(scope="module")
def good(small: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Path]:
    root = tmp_path_factory.mktemp("good")
    return package(small.exported, small.source, root), root


def test_a_good_package_is_looked_into(small: Any, good: tuple[Artifact, Path]) -> None:
    report = small.judged_as(*good)
    assert report.judgement.verdict == "pass"
    assert report.judgement.reasons == ()
    assert compared(report) >= 4
    assert not any("inner" in note for note in report.notes)


def test_taps_are_the_networks_own(small: Any, good: tuple[Artifact, Path]) -> None:
    artifact, root = good
    backend = backends.get("coreml")
    graph = backend.inspect(artifact, root)
    (relu,) = [op for op in graph.ops if op.type == "relu"]
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    net = Small().eval()
    with torch.no_grad():
        wanted = torch.relu(net.first(torch.from_numpy(x))).numpy()
    with backend.load(artifact, root, taps=relu.outputs) as session:
        got = session.run({"x": x})[relu.outputs[0]]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_dead_channels_are_named(small: Any, build: Any, tmp_path: Path) -> None:
    """A package made of the same network with three filters at zero, in the good one's place."""
    net = Small()
    with torch.no_grad():
        net.second.weight[2:5] = 0
        net.second.bias[2:5] = 0  # type: ignore[index]
    dead = build(net, torch.randn(1, 3, 8, 8), input_names=("x",))
    artifact = package(dead.exported, dead.source, tmp_path)
    said = remarks(small.judged_as(artifact, tmp_path))["EDGE-CHECK-066"]
    assert "3 of 8 channels" in said
    assert "second" in said


def test_what_float16_has_no_room_for_is_named(build: Any, tmp_path: Path) -> None:
    made = build(Hot(), torch.randn(1, 6), input_names=("x",))
    made.answers()
    half = tmp_path / "half"
    found = package(made.exported, made.source, half, "fp16")
    feed = {"x": RNG.standard_normal((1, 6)).astype(np.float32)}
    graph = backends.get("coreml").inspect(found, half)
    with backends.get("coreml").load(
        found, half, taps=[op.outputs[0] for op in graph.ops[:-1]]
    ) as session:
        dtypes = {array.dtype for array in session.run(feed).values()}
    assert np.dtype(np.float16) in dtypes
    report = made.judged_as(found, half)
    assert compared(report) >= 1
    assert "EDGE-CHECK-067" in remarks(report), report.judgement


@pytest.mark.parametrize("precision", ["w8", "w8a8"])
def test_quantized_programs_are_looked_into(
    small: Any, good: tuple[Artifact, Path], tmp_path: Path, precision: Any
) -> None:
    samples = [{"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    found = backends.get("coreml").quantize(*good, Recipe(precision=precision), samples, tmp_path)
    report = small.judged_as(found, tmp_path)
    assert compared(report) >= 3
    assert "EDGE-CHECK-066" not in remarks(report)
