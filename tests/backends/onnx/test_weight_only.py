"""w8: PyTorch with weights rounded by numpy, each by its own channel, is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.errors import QuantizeError

Make = Callable[..., Any]
Run = Callable[..., list[np.ndarray]]


def rounded(weight: np.ndarray, channels: tuple[int, ...]) -> np.ndarray:
    """``weight`` on a grid of 255 steps for each channel: written as loops, to be plain."""
    out = np.array(weight, np.float32)
    for at in np.ndindex(*(weight.shape[axis] for axis in channels)):
        where: list[Any] = [slice(None)] * weight.ndim
        for axis, i in zip(channels, at, strict=True):
            where[axis] = i
        part = out[tuple(where)]
        scale = np.float32(np.abs(part).max()) / np.float32(127) or np.float32(1)
        out[tuple(where)] = np.round(part / scale).astype(np.float32) * scale
    return out


def round_parameter(parameter: nn.Parameter, channels: tuple[int, ...]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(rounded(parameter.numpy(), channels)))


class Layers(nn.Module):
    """Every kind of layer with weights, in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.grouped = nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2)
        self.line = nn.Conv1d(16, 5, 3)
        self.linear = nn.Linear(62, 7)
        self.experts = nn.Parameter(torch.randn(5, 7, 4))
        self.left = nn.Parameter(torch.randn(3, 5))
        for module in (self.conv, self.deep):  # channels of very different size, one of nothing
            with torch.no_grad():
                module.weight.mul_(torch.logspace(-3, 2, 8)[:, None, None, None])
                module.weight[3] = 0

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.grouped(torch.relu(self.up(self.deep(self.conv(image)) / 50)))
        x = self.linear(self.line(x.flatten(2, 3).reshape(-1, 16, 64)))  # [batch, 5, 7]
        return self.left @ (x[:, :, None, :] @ self.experts).squeeze(2)


#: Axes that tell the channels of each parameter apart.
CHANNELS = {
    "conv.weight": (0,),
    "deep.weight": (0,),
    "up.weight": (1,),
    "grouped.weight": None,
    "line.weight": (0,),
    "linear.weight": (0,),
    "experts": (0, 2),
    "left": (0,),
}


@pytest.fixture(scope="module")
def layers(make: Make) -> Any:
    torch.manual_seed(1)
    return make("layers", Layers(), (torch.randn(1, 3, 4, 4),))


def round_layers(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if name == "grouped.weight":  # a channel: the inputs of its group, and one of its outputs
            halves = [rounded(half.detach().numpy(), (1,)) for half in parameter.chunk(2)]
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.concatenate(halves)))
        elif name in CHANNELS:
            round_parameter(parameter, CHANNELS[name])  # type: ignore[arg-type]


def test_every_layer_computes_with_rounded_weights(layers: Any, runs: Run) -> None:
    artifact, root = layers.quantize("w8")
    image = torch.randn(1, 3, 4, 4)
    with torch.no_grad():
        before = layers.module(image).numpy()
        round_layers(layers.module)
        wanted = layers.module(image).numpy()
    (got,) = runs(artifact, root, image.numpy())
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(got, wanted, atol=2e-5 * scale)
    assert np.abs(before - wanted).max() > 1e-3 * scale  # the oracle is no other name for fp32
    weights = artifact.provenance.weights
    named = dict(layers.module.named_parameters())
    assert weights["int8"] == sum(named[name].numel() for name in CHANNELS)


def test_unoptimized_and_optimized_agree(layers: Any, runs: Run) -> None:
    artifact, root = layers.quantize("w8", name="w8-plain")
    image = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
    (fast,), (plain,) = (runs(artifact, root, image, optimize=flag) for flag in (True, False))
    np.testing.assert_allclose(fast, plain, atol=1e-4 * np.abs(plain).max())


class Texts(nn.Module):
    """Embeddings: one alone, one whose table is the output layer's too; a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(40, 12)
        self.place = nn.Embedding(16, 12)
        self.mix = nn.Linear(12, 12, bias=False)
        with torch.no_grad():
            self.token.weight.mul_(torch.logspace(-2, 1, 40)[:, None])

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.mix(self.token(ids) + self.place(places)) @ self.token.weight.T


@pytest.fixture(scope="module")
def texts(make: Make) -> Any:
    torch.manual_seed(2)
    ids = torch.randint(0, 16, (2, 5))
    wishes = ExportOptions(
        {"ids": {0: "batch", 1: ("length", 1, 16)}, "places": {0: "batch", 1: ("length", 1, 16)}}
    )
    return make("texts", Texts(), (ids, ids), wishes)


def test_embedding_rows_are_scaled_after_the_lookup(texts: Any, runs: Run) -> None:
    artifact, root = texts.quantize("w8")
    ids = torch.tensor([[0, 39, 7], [1, 20, 33]])
    places = torch.tensor([[0, 1, 2], [15, 3, 3]])
    for layer in (texts.module.token, texts.module.place, texts.module.mix):
        round_parameter(layer.weight, (0,))
    with torch.no_grad():
        wanted = texts.module(ids, places).numpy()
    (got,) = runs(artifact, root, ids.numpy(), places.numpy())
    np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())
    model = onnx.load(root / artifact.entry)
    tables = [i for i in model.graph.initializer if list(i.dims) == [40, 12]]
    assert {i.data_type for i in tables} == {onnx.TensorProto.INT8}
    looked_up = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    assert looked_up & {i.name for i in tables}  # rows are looked up before they are widened


def test_a_recurrent_layers_weights(make: Make, runs: Run) -> None:
    torch.manual_seed(3)
    net = make("lstm", nn.LSTM(6, 5, batch_first=True), (torch.randn(1, 4, 6),))
    artifact, root = net.quantize("w8")
    for name in ("weight_ih_l0", "weight_hh_l0"):
        round_parameter(getattr(net.module, name), (0,))
    x = torch.randn(1, 4, 6)
    with torch.no_grad():
        wanted = net.module(x)[0].numpy()
    np.testing.assert_allclose(runs(artifact, root, x.numpy())[0], wanted, atol=1e-5)
    assert artifact.provenance.weights["int8"] == 4 * 5 * 6 + 4 * 5 * 5


def test_what_is_kept_float_stays_as_it_was(texts: Any) -> None:
    artifact, root = texts.quantize("w8", name="kept", keep=("mix",))
    stored = {tuple(w.shape): w.dtype for w in backends.get("onnx").inspect(artifact, root).weights}
    assert (stored[(12, 12)], stored[(40, 12)]) == ("float32", "int8")
    assert artifact.provenance.recipe.keep_float == ("mix",)
    with pytest.raises(QuantizeError) as error:
        texts.quantize("w8", name="none", keep=("mixx",))
    assert error.value.code == "EDGE-QUANTIZE-009"
    assert "mixx" in error.value.message


class Sum(nn.Module):
    """A weight that is read as numbers too, and nothing else to quantize."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.table + self.table


def test_a_weight_that_is_more_than_a_weight_is_left_alone(make: Make) -> None:
    with pytest.raises(QuantizeError) as error:
        make("sum", Sum(), (torch.randn(4, 4),)).quantize("w8")
    assert error.value.code == "EDGE-QUANTIZE-011"


def test_precisions_that_are_not_made(digits: Any) -> None:
    from edgeserve.errors import BackendError

    with pytest.raises(BackendError) as error:
        digits.made.quantize("w4")
    assert error.value.code == "EDGE-BACKEND-006"
    assert not (digits.made.folder / "w4" / "model.onnx").exists()
