"""What happens to weights that are no plain ones: stacks of matrices, and one that is used twice.

What is right comes from PyTorch. Rows are those of ``docs/explanation/known-bad.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from testkit.judging import answers, codes, data
from torch import nn

from edgeserve import backends
from edgeserve.types.artifact import Recipe


class Product(nn.Module):
    """Row 3: a stack of matrices as the right side of a product."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("right", torch.randn(3, 8, 4))
        self.after = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(x @ self.right)


def products(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 5, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def product(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = build(Product(), torch.from_numpy(products(1)), input_names=("x",))
    made.answers(data=data(tmp_path_factory.mktemp("rows"), x=products(40)))
    return made


def test_row_3_a_file_that_fails_at_its_first_run(product: Any, tmp_path: Path) -> None:
    """As ONNX Runtime's tool makes it, without a word."""
    path = tmp_path / "model.onnx"
    quantize_dynamic(product.onnx, path, per_channel=True, weight_type=QuantType.QInt8)
    with pytest.raises(Exception, match="zero point"):
        onnxruntime.InferenceSession(path).run(None, {"x": products(1)})
    report = product.judged(path, precision="w8a8")
    assert report.judgement.verdict == "fail"
    assert codes(report)[0] == "EDGE-CHECK-003"


@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_row_3_ours_runs_and_is_right(product: Any, tmp_path: Path, format: str) -> None:
    backend = backends.get(format)
    made = backend.export(product.exported, product.source, tmp_path / "fp32")
    samples = [{"x": row[None]} for row in products(16, 1)]
    x = products(1, 2)
    with torch.no_grad():
        wanted = Product()(torch.from_numpy(x)).numpy()
    for precision, share in (("w8", 0.02), ("w8a8", 0.08)):  # steps of weights, and of inputs too
        recipe, out = Recipe(precision=precision), tmp_path / precision  # type: ignore[arg-type]
        small = backend.quantize(made, tmp_path / "fp32", recipe, samples, out)
        off = np.abs(answers(small, out, {"x": x}) - wanted).max()
        assert off < share * np.abs(wanted).max(), precision


class Tied(nn.Module):
    """Row 4: the embedding is the output layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.inner = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.inner(self.words(ids))))


def test_row_4_tied_weights_stored_twice(build: Any, tmp_path: Path) -> None:
    ids = torch.randint(0, 50, (1, 7))
    made = build(Tied(), ids, input_names=("ids",))
    made.answers()
    float_report = made.judged()
    assert float_report.judgement.verdict == "pass"
    backend = backends.get("onnx")
    small = backend.quantize(
        made.artifact, made.root / "candidate", Recipe(precision="w8"), [], tmp_path
    )
    held = [
        onnx.numpy_helper.to_array(w) for w in onnx.load(tmp_path / small.entry).graph.initializer
    ]
    copies = sum(array.size == 800 for array in held)
    report = made.judged_as(small, tmp_path)
    assert ("EDGE-CHECK-068" in codes(report)) == (copies > 1), (copies, report.judgement)
    assert any(check.name == "weights-size" for check in report.checks)


def test_row_4_is_said_of_a_file_with_two_copies(build: Any, sabotaged: Any) -> None:
    made = build(Tied(), torch.randint(0, 50, (1, 7)), input_names=("ids",))
    made.answers()

    def untie(graph: Any) -> None:
        (name,) = [n for n, a in graph.weights().items() if a.size == 800]
        graph.put({"copy": graph.weights()[name]})
        readers = [node for node in graph.proto.graph.node if name in node.input]
        readers[-1].input[:] = ["copy" if i == name else i for i in readers[-1].input]

    if (
        sum(
            a.size == 800
            for a in map(onnx.numpy_helper.to_array, onnx.load(made.onnx).graph.initializer)
        )
        > 1
    ):
        report = made.judged()  # the converter has done so itself
    else:
        report = made.judged(sabotaged(made, untie))
    assert report.judgement.verdict == "pass", "no answer is worse for it"
    assert "EDGE-CHECK-068" in codes(report)
