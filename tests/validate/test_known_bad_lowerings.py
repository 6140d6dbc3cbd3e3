"""What public converters refuse or get wrong: converted here, run, and equal to PyTorch.

Rows are those of ``docs/explanation/known-bad.md``.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.errors import EdgeError
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import JudgeRequest

Feed = dict[str, np.ndarray]


class On(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def counted() -> nn.Module:
    """Convolution, normalisation with statistics of its own, pooling, linear."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 9, 5),
    )
    net.train()(torch.randn(8, 3, 8, 8))
    return net.eval()


def resized(**how: Any) -> nn.Module:
    return On(lambda x: functional.interpolate(x, size=(7, 11), **how))


#: Module, one sample, and the format whose public converter does not take it.
ROWS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "5": (lambda: nn.LayerNorm(10), (1, 10), "tflite"),
    "6": (counted, (1, 3, 8, 8), "tflite"),
    "8": (lambda: resized(mode="bicubic"), (1, 3, 16, 13), "coreml"),
    "9": (lambda: resized(mode="bilinear", antialias=True), (1, 3, 16, 13), "tflite"),
    "10": (
        lambda: On(lambda x: functional.max_pool2d(x, 2, return_indices=True)),
        (1, 3, 8, 8),
        "coreml",
    ),
}


def run(model: Any, artifact: Artifact, root: Path, feed: Feed) -> list[np.ndarray]:
    """The artifact under the source's signature: batches and lengths as callers have them."""
    with backends.get(artifact.format).load(artifact, root) as session:
        found = Adapter(session, model.exported.signature).run(feed)
    return [found[spec.name] for spec in model.exported.signature.outputs]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_converts_and_is_right(build: Any, tmp_path: Path, row: str) -> None:
    """With an open batch, one sample and three."""
    make, shape, format = ROWS[row]
    torch.manual_seed(1)
    module, x = make().eval(), torch.randn(3, *shape[1:])
    made = build(module, x[:1], dynamic_shapes=({0: "batch"},), input_names=("x",))
    artifact = backends.get(format).export(made.exported, made.source, tmp_path)
    for count in (1, 3):
        with torch.no_grad():
            said = module(x[:count])
        wanted = said if isinstance(said, tuple) else (said,)
        got = run(made, artifact, tmp_path, {"x": x[:count].numpy()})
        for mine, right in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, right.numpy(), rtol=0, atol=2e-5)


def test_row_8_is_no_bilinear() -> None:
    """The two differ by more than is allowed above, so that one cannot stand for the other."""
    x = torch.randn(1, 3, 16, 13)
    with torch.no_grad():
        assert (resized(mode="bicubic")(x) - resized(mode="bilinear")(x)).abs().max() > 0.1


def test_row_7_a_length_that_varies(build: Any, tmp_path: Path) -> None:
    """At the length that the file has it is right; at others it is right too, or refused."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU()), torch.randn(1, 4, 16)
    made = build(module, x, dynamic_shapes=({2: ("length", 4, 64)},), input_names=("x",))
    artifact = backends.get("tflite").export(made.exported, made.source, tmp_path)
    there = {int(io.inputs[0].shape[2]) for io in artifact.buckets or [artifact.io]}
    for length in there:
        fit = torch.randn(1, 4, length)
        (got,) = run(made, artifact, tmp_path, {"x": fit.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(got, module(fit).numpy(), atol=1e-5)
    other = torch.randn(1, 4, min(there) - 3)
    with contextlib.suppress(EdgeError):  # what is not suppressed is to be right
        (got,) = run(made, artifact, tmp_path, {"x": other.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(got, module(other).numpy(), atol=1e-5)


class MultiQuery(nn.Module):
    """Row 21: one key for four heads, spread and then turned."""

    def __init__(self, spread: str) -> None:
        super().__init__()
        self.spread = spread

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        if self.spread == "repeat":
            return q @ k.repeat(1, 4, 1, 1).permute(0, 1, 3, 2)
        return q @ k.expand(1, 4, 16, 8).transpose(-1, -2)


def by_litert_torch(module: nn.Module, examples: tuple[torch.Tensor, ...], path: Path) -> None:
    """As the public converter makes it, on its own."""
    import litert_torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tool's own
        litert_torch.convert(module.eval(), examples).export(str(path))


@pytest.mark.parametrize("spread", ["expand", "repeat"])
def test_row_21_a_transpose_that_became_a_reshape(build: Any, tmp_path: Path, spread: str) -> None:
    module = MultiQuery(spread)
    examples = (torch.randn(1, 4, 5, 8), torch.randn(1, 1, 16, 8))
    made = build(module, *examples, input_names=("args_0", "args_1"), output_names=("output_0",))
    made.answers()
    ours = backends.get("tflite").export(made.exported, made.source, tmp_path / "ours")
    feed = {f"args_{i}": x.numpy() for i, x in enumerate(examples)}
    wanted = module(*examples).numpy()
    (got,) = run(made, ours, tmp_path / "ours", feed)
    np.testing.assert_allclose(got, wanted, atol=1e-5)

    by_litert_torch(module, examples, tmp_path / "model.tflite")
    entry = describe(tmp_path, "model.tflite")
    theirs = msgspec.structs.replace(ours, entry=entry.path, files=(entry,))
    with contextlib.suppress(EdgeError):  # a file that no engine opens is wrong as well
        (got,) = run(made, theirs, tmp_path, feed)
        assert np.abs(got - wanted).max() > 0.1, "the public converter has learned it"
    report = judge(
        JudgeRequest(
            artifact=theirs,
            root=str(tmp_path),
            source_folder=str(made.source),
            samples=str(made.root / "samples"),
        )
    )
    assert report.judgement.verdict == "fail"


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("location", "format"), [("encoders:t5_encoder", "onnx"), ("pictures:mobilevitv2", "tflite")]
)
def test_row_20_architectures_that_fail_at_the_front(location: str, format: str) -> None:
    from dev.zoo.measure import measure

    row = measure(location, (format,))
    assert row["export"]["ok"], row
    assert row["export"]["moves"]
    assert row[format]["ok"], row[format]
