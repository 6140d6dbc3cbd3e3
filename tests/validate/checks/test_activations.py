"""Inner tensors: what a file's layers do beside the reference's, and what its weights may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from testkit.nets import Hot
from torch import nn

from edgeserve import backends
from edgeserve.backends.graph import ActivationRange
from edgeserve.backends.onnx.cpu_int8 import largest_pair_sum
from edgeserve.backends.reference import reference
from edgeserve.types.artifact import Recipe
from edgeserve.types.reports import Report
from edgeserve.validate.checks.activations import (
    FileActivations,
    Tap,
    check_activations,
    read_activations,
)
from edgeserve.validate.checks.invariants import CheckLog
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import JudgeRequest


def remarks(report: Report) -> dict[str, str]:
    return {reason.code: reason.message for reason in report.judgement.reasons}


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
        nn.init.uniform_(self.norm.weight, 0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return self.head(torch.sigmoid(self.second(y)).mean((2, 3)))


@pytest.fixture(scope="module")
def small(build: Any) -> Any:
    made = build(Small(), torch.randn(1, 3, 8, 8), input_names=("x",))
    made.answers()
    return made


def test_ranges_of_the_program_are_pytorchs(small: Any) -> None:
    """By node, with what is fused into it: the convolution's outcome is behind norm and ReLU."""
    backend, program = reference(small.exported)
    torch.manual_seed(5)
    x = torch.randn(1, 3, 8, 8)
    with backend.load(program, small.source) as session:
        found = session.inner({"x": x.numpy()})
    net = Small().eval()
    with torch.no_grad():
        y = torch.relu(net.norm(net.first(x)))
        z = net.second(y)  # a sigmoid behind it stays an op of its own
    first = next(each for name, each in found.items() if name.startswith("conv2d"))
    np.testing.assert_allclose(first.low, y.amin((0, 2, 3)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first.high, y.amax((0, 2, 3)), rtol=1e-4, atol=1e-5)
    second = [each for name, each in found.items() if name.startswith("conv2d")][1]
    np.testing.assert_allclose(second.high, z.amax((0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert first.numel == 8 * 64
    assert first.finite


def test_ranges_lie_with_the_answers(small: Any) -> None:
    found = read_activations(small.root / "samples")
    assert sum(name.startswith("conv2d") for name in found) == 2
    assert all(each.low.shape == each.high.shape for each in found.values())
    assert read_activations(small.root) == {}


def test_a_good_file_is_looked_into_and_nothing_said(small: Any) -> None:
    report = small.judged()
    assert report.judgement.verdict == "pass"
    assert report.judgement.reasons == ()
    (check,) = [check for check in report.checks if check.name == "inner"]
    assert int(check.detail.split()[0]) >= 3


def test_dead_channels_are_named(small: Any, sabotaged: Any) -> None:
    def dead(graph: Any) -> None:
        name, array = next((n, a) for n, a in graph.weights().items() if a.shape == (8, 8, 3, 3))
        array[2:5] = 0
        graph.put({name: array})

    said = remarks(small.judged(sabotaged(small, dead)))["EDGE-CHECK-066"]
    assert "3 of 8 channels" in said
    assert "second" in said


def test_a_layer_that_stands_still_is_named(small: Any, sabotaged: Any) -> None:
    def still(graph: Any) -> None:
        name, array = next((n, a) for n, a in graph.weights().items() if a.shape == (8, 8, 3, 3))
        graph.put({name: np.zeros_like(array)})

    assert "EDGE-CHECK-066" in remarks(small.judged(sabotaged(small, still)))


def ranged(low: float, high: float, numel: int = 100) -> ActivationRange:
    return ActivationRange(numel, np.array([float(low)]), np.array([float(high)]))


def said_of(wanted: ActivationRange, got: ActivationRange, dtype: str, precision: Any) -> list[str]:
    findings = CheckLog()
    taps = [Tap("t", "exp", "layers.3", "Exp")]
    found = FileActivations({"exp": got}, {"exp": dtype})
    check_activations(taps, found, {"exp": wanted}, precision, findings)
    return [f"{reason.code}: {reason.message}" for reason in findings.remarks]


@pytest.mark.parametrize(
    ("wanted", "got", "dtype", "precision", "code"),
    [
        (ranged(0, 70000), ranged(0, 65504), "float16", "fp16", "067"),
        (ranged(0, 60000), ranged(0, 60000), "float16", "fp16", ""),
        (ranged(0, 70000), ranged(0, 70000), "float32", "fp16", ""),
        (ranged(0, 1e-6), ranged(0, 1e-6), "float16", "fp16", "067"),
        (ranged(-6, 6), ranged(-6, 3), "float32", "w8a8", "070"),
        (ranged(-6, 6), ranged(-6, 5.9), "float32", "w8a8", ""),
        (ranged(-6, 6), ranged(-6, 3), "float32", "fp32", ""),
        (ranged(-0.1, 6), ranged(0, 6), "float32", "w8a8", ""),
        (ranged(-6, 6), ranged(2, 2), "float32", "w8a8", "066"),
        (ranged(0, 0), ranged(0, 0), "float32", "w8a8", ""),
        (ranged(-6, 6), ranged(2, 2, numel=3), "float32", "w8a8", ""),  # another tensor
    ],
)
def test_rules(
    wanted: ActivationRange, got: ActivationRange, dtype: str, precision: Any, code: str
) -> None:
    found = said_of(wanted, got, dtype, precision)
    assert all("exp (module layers.3)" in each for each in found)
    assert any(code in each for each in found) if code else not found, found


def test_infinity_inside_is_said() -> None:
    lost = ActivationRange(100, np.array([0.0]), np.array([3.0]), finite=False)
    (said,) = said_of(ranged(0, 5), lost, "float32", "fp16")
    assert "infinite" in said


def test_values_beyond_half_precision_are_named(build: Any, tmp_path: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = build(Hot(), torch.randn(1, 6), input_names=("x",))
    made.answers()
    half = convert_float_to_float16(onnx.load(made.onnx), keep_io_types=True)
    onnx.save(half, tmp_path / "model.onnx")
    report = made.judged(tmp_path / "model.onnx", precision="fp16")
    assert "EDGE-CHECK-067" in remarks(report), report


def test_pairs_of_weights() -> None:
    weight = np.zeros((2, 3, 1, 2), np.int8)
    weight[0, 1, 0, 0], weight[0, 2, 0, 0] = 100, 29
    assert largest_pair_sum(weight, True) == 129
    weight[0, 1, 0, 1] = 127
    assert largest_pair_sum(weight, True) == 227
    assert largest_pair_sum(np.int8([[100, -128], [1, -1]]), False) == 129


@pytest.mark.parametrize(("reduce_range", "said"), [("false", True), ("true", False)])
def test_sums_that_may_saturate(small: Any, tmp_path: Path, reduce_range: str, said: bool) -> None:
    samples = [
        {"x": x[None]}
        for x in np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
    ]
    recipe = Recipe(precision="w8a8", options={"activation": "u8", "reduce_range": reduce_range})
    artifact = backends.get("onnx").quantize(
        small.artifact, small.root / "candidate", recipe, samples, tmp_path
    )
    report = judge(
        JudgeRequest(
            artifact=artifact,
            root=str(tmp_path),
            source_folder=str(small.source),
            samples=str(small.root / "samples"),
        )
    )
    assert ("EDGE-CHECK-069" in remarks(report)) == said
