"""Nets of plain PyTorch: recurrent, convolutional, resized, indexed, attended, detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dev.zoo.model_helpers import (
    Function,
    Made,
    ids,
    input_options,
    noise,
    pack_of,
    randomize_weights,
)


def _made(module: nn.Module, *examples: Tensor, batch: bool = True) -> Made:
    names = [f"in{place}" for place in range(len(examples))]
    randomize_weights(module, examples)
    return module, examples, input_options(names) if batch else {"input_names": names}


def _function(function: Callable[..., Any], *examples: Tensor, batch: bool = True) -> Made:
    return _made(Function(function), *examples, batch=batch)


class Recurrent(nn.Module):
    """A recurrent layer, its sequence and last state."""

    def __init__(self, kind: str, **more: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(12, 16, batch_first=True, **more)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sequence, state = self.layer(x)
        return sequence, state[0] if isinstance(state, tuple) else state


class UNet(nn.Module):
    """Down by convolutions, up by transposed ones, with a bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.down(x)
        return self.head(torch.cat([wide, self.up(self.deep(wide))], 1))


class Attention(nn.Module):
    """Self-attention with a mask that is added, and one that is true where to look."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        mask = (seen > 0)[:, None, None, :]
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return found.transpose(1, 2).flatten(2)


class Tied(nn.Module):
    """Embeddings that are the output layer's weights as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.mix = nn.Linear(16, 16)

    def forward(self, words: Tensor) -> Tensor:
        return functional.linear(self.mix(self.embed(words)).tanh(), self.embed.weight)


class Letterbox(nn.Module):
    """A detector's head: the image fitted into a square, boxes decoded, overlaps suppressed.

    Suppression as a matrix: a box is dropped if a better one of its class covers it by half.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=4, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 7, 3, stride=2, padding=1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        small = functional.interpolate(x, size=(24, 32), mode="bilinear", align_corners=False)
        square = functional.pad(small, (0, 0, 4, 4), value=0.5)
        found = self.net(square).flatten(2).transpose(1, 2)
        places = torch.arange(16)
        centre = torch.stack([places % 4, places // 4], -1) + found[..., :2].sigmoid()
        half = found[..., 2:4].exp() * 0.5
        boxes = torch.cat([centre - half, centre + half], -1)
        scores, order = found[..., 4:].amax(-1).sort(descending=True)
        boxes = boxes.gather(1, order[..., None].expand(-1, -1, 4))
        return boxes, scores * self._kept(boxes)

    @staticmethod
    def _kept(boxes: Tensor) -> Tensor:
        low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
        high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
        cover = shared / (area[:, :, None] + area[:, None] - shared)
        better = torch.ones(16, 16).tril(-1)
        return ((cover * better).amax(-1) < 0.5).float()


class Written(nn.Module):
    """Rows and columns written by index."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1] = 2.0
        y[:, :, 2:4] = x[:, :, :2] * 3
        y[..., -1] += 1
        return y


def _padded(kind: str, mode: str) -> Callable[[], Made]:
    shape = {"1d": (1, 4, 12), "2d": (1, 4, 10, 12), "3d": (1, 4, 6, 7, 8)}[kind]

    def factory() -> Made:
        return _made(
            getattr(nn, f"Conv{kind}")(4, 6, 3, padding=1, padding_mode=mode), noise(*shape)
        )

    return factory


def _resize(**how: Any) -> Callable[[], Made]:
    return lambda: _function(lambda x: functional.interpolate(x, **how), noise(1, 3, 12, 16))


def _on(function: Callable[..., Any], *shape: int, **more: Any) -> Callable[[], Made]:
    return lambda: _function(function, noise(*shape), **more)


def _index() -> Tensor:
    return ids(6, 1, 5, low=0)


FACTORIES: dict[str, Callable[[], Made]] = {
    "lstm": lambda: _made(Recurrent("LSTM"), noise(1, 9, 12)),
    "lstm_bidirectional": lambda: _made(
        Recurrent("LSTM", bidirectional=True, num_layers=2), noise(1, 9, 12)
    ),
    "gru": lambda: _made(Recurrent("GRU"), noise(1, 9, 12)),
    "gru_bidirectional": lambda: _made(Recurrent("GRU", bidirectional=True), noise(1, 9, 12)),
    "rnn": lambda: _made(Recurrent("RNN"), noise(1, 9, 12)),
    "unet": lambda: _made(UNet(), noise(1, 3, 16, 16)),
    **{
        f"conv{kind}_{mode}": _padded(kind, mode)
        for kind in ("1d", "2d", "3d")
        for mode in ("zeros", "reflect", "replicate", "circular")
    },
    "bicubic": _resize(size=(9, 23), mode="bicubic"),
    "bicubic_corners": _resize(scale_factor=2, mode="bicubic", align_corners=True),
    "bicubic_antialias": _resize(size=(7, 11), mode="bicubic", antialias=True),
    "bilinear": _resize(size=(9, 23), mode="bilinear"),
    "bilinear_corners": _resize(scale_factor=2, mode="bilinear", align_corners=True),
    "bilinear_antialias": _resize(size=(7, 11), mode="bilinear", antialias=True),
    "nearest": _resize(scale_factor=2, mode="nearest"),
    "nearest_exact": _resize(size=(9, 23), mode="nearest-exact"),
    "nearest_odd": _resize(size=(9, 23), mode="nearest"),
    "area": _resize(size=(5, 7), mode="area"),
    "pixel_shuffle": lambda: _made(
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.PixelShuffle(2)), noise(1, 3, 8, 8)
    ),
    "pixel_unshuffle": lambda: _made(nn.PixelUnshuffle(2), noise(1, 3, 8, 8)),
    "group_norm": lambda: _made(nn.GroupNorm(2, 8), noise(1, 8, 6, 6)),
    "instance_norm": lambda: _made(nn.InstanceNorm2d(8, affine=True), noise(1, 8, 6, 6)),
    "roll": _on(lambda x: torch.roll(x, (1, -2), (1, 2)), 1, 6, 7),
    "index_assignment": lambda: _made(Written(), noise(1, 4, 6)),
    "topk": _on(lambda x: tuple(torch.topk(x, 3, dim=-1)), 1, 4, 9),
    "argsort": _on(lambda x: torch.argsort(x, dim=-1, descending=True), 1, 9),
    "gather": lambda: _function(lambda x, i: x.gather(1, i), noise(1, 6), _index()),
    "scatter": lambda: _function(
        lambda x, i: torch.zeros_like(x).scatter(1, i, x[:, :5] * 2),
        noise(1, 6),
        torch.tensor([[4, 0, 3, 1, 5]]),
    ),
    "einsum": _on(lambda x: torch.einsum("bij,bkj->bik", x, x), 1, 4, 5),
    "cumsum": _on(lambda x: x.cumsum(1), 1, 7, 3),
    "attention_mask": lambda: _made(
        Attention(), noise(1, 6, 16), torch.tensor([[1, 1, 1, 1, 0, 0]])
    ),
    "tied": lambda: _made(Tied(), ids(50, 1, 7)),
    "letterbox_nms": lambda: _made(Letterbox(), noise(1, 3, 36, 48)),
    "data_dependent": _on(lambda x: x[x > 0.5], 4, 6, batch=False),
    "encoder_layer": lambda: _made(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), noise(1, 6, 16)
    ),
    "transformer_decoder": lambda: _made(
        nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), noise(1, 6, 16), noise(1, 5, 16)
    ),
    "fold_unfold": _on(
        lambda x: functional.fold(
            functional.unfold(x, 3, padding=1, stride=2), (9, 10), 3, padding=1, stride=2
        ),
        1,
        4,
        9,
        10,
    ),
    "grid_sample": lambda: _function(
        lambda x, g: functional.grid_sample(x, g.tanh(), align_corners=False),
        noise(1, 3, 8, 9),
        noise(1, 5, 6, 2, seed=3),
    ),
    "multi_query": lambda: _function(
        lambda q, k: q @ k.expand(-1, 4, -1, -1).transpose(-1, -2),
        noise(1, 4, 5, 8),
        noise(1, 1, 6, 8),
    ),
    "stft": _on(
        lambda x: torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True).abs(),
        1,
        64,
    ),
    "conv_transpose1d": lambda: _made(nn.ConvTranspose1d(4, 6, 3, stride=2), noise(1, 4, 8)),
    "conv_transpose3d": lambda: _made(nn.ConvTranspose3d(4, 6, 3, stride=2), noise(1, 4, 4, 5, 6)),
    "depthwise": lambda: _made(
        nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 4, 1),
        ),
        noise(1, 8, 9, 9),
    ),
}


def __getattr__(name: str) -> Callable[[], Made]:
    """Each factory under its own name, as ``plain:roll`` looks it up; ``plain:gru+roll`` a pack."""
    names = name.split("+")
    if all(each in FACTORIES for each in names):
        if len(names) == 1:
            return FACTORIES[name]
        return lambda: pack_of({each: FACTORIES[each]() for each in names})
    raise AttributeError(name)
