"""image-classification: a digit 0 to 4 in red or blue ink, drawn by code, ten classes.

The ink makes the order of channels matter, the digit the geometry; photos have odd sizes, and every
eighth one lies on its side with an EXIF tag that says so.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps

from dev.corpus.tasks.base import Raw, Task

_SHORT, _SIDE = 32, 28
_MEAN, _STD = (0.5, 0.45, 0.4), (0.25, 0.2, 0.3)
_LABELS = [f"{ink} {digit}" for ink in ("red", "blue") for digit in range(5)]

#: Strokes of each digit in the unit square, x to the right, y down.
_STROKES: list[list[tuple[float, float]]] = [
    [(0.5, 0.0), (0.15, 0.2), (0.1, 0.7), (0.45, 1.0), (0.85, 0.8), (0.9, 0.3), (0.5, 0.0)],
    [(0.25, 0.25), (0.55, 0.0), (0.55, 1.0)],
    [(0.1, 0.25), (0.45, 0.0), (0.85, 0.2), (0.8, 0.45), (0.1, 1.0), (0.9, 1.0)],
    [(0.1, 0.0), (0.85, 0.05), (0.4, 0.4), (0.85, 0.65), (0.6, 1.0), (0.1, 0.9)],
    [(0.65, 1.0), (0.65, 0.0), (0.05, 0.7), (0.95, 0.7)],
]


class Net(torch.nn.Module):
    """Three convolutions with batch norm, mean over what is left, one linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = self._block(3, width, 2)
        self.two = self._block(width, 2 * width, 2)
        self.three = self._block(2 * width, 2 * width, 1)
        self.head = torch.nn.Linear(2 * width * 4, len(_LABELS))

    @staticmethod
    def _block(old: int, new: int, stride: int) -> torch.nn.Sequential:
        conv = torch.nn.Conv2d(old, new, 3, stride, 1, bias=False)
        return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(new), torch.nn.ReLU())

    def pool(self, x: torch.Tensor) -> torch.Tensor:
        """Features [n, c, 7, 7] to [n, 4 c]."""
        return torch.nn.functional.avg_pool2d(x, 3).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures [n, 3, 28, 28] to logits [n, 10]."""
        return self.head(self.pool(self.three(self.two(self.one(x)))))  # type: ignore[no-any-return]


def draw(rng: np.random.Generator, digit: int, ink: int) -> Image.Image:
    """One photo, upright."""
    width, height = (int(x) for x in rng.integers(38, 64, 2))
    short = min(width, height)
    dull = rng.integers(60, 200) + rng.integers(-20, 20, 3)
    picture = Image.new("RGB", (width, height), tuple(int(x) for x in dull.clip(0, 255)))
    size = short * rng.uniform(0.42, 0.68)
    angle, slant = rng.uniform(-0.25, 0.25), rng.uniform(-0.15, 0.15)
    points = np.array(_STROKES[digit]) - 0.5 + rng.normal(0, 0.025, (len(_STROKES[digit]), 2))
    points[:, 0] += slant * points[:, 1]
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array([width, height]) / 2 + rng.uniform(-0.07, 0.07, 2) * short
    placed = points @ turn.T * size * [0.75, 1.0] + middle
    strong, weak = int(rng.integers(120, 256)), rng.integers(0, 110, 2)
    color = (strong, int(weak[0]), int(weak[1]))
    pen = ImageDraw.Draw(picture)
    pen.line(
        [tuple(p) for p in placed],
        color if ink == 0 else color[::-1],
        int(rng.integers(2, 6)),
        joint="curve",
    )
    levels = np.asarray(picture, np.float64) + rng.normal(
        0, rng.uniform(10, 80), (height, width, 3)
    )
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def encode(rng: np.random.Generator, picture: Image.Image) -> bytes:
    """As PNG; one in eight turned, with the EXIF orientation that turns it back."""
    held = io.BytesIO()
    if rng.random() < 0.125:
        exif = Image.Exif()
        exif[0x0112] = 6
        picture.transpose(Image.Transpose.ROTATE_90).save(held, "PNG", exif=exif)
    else:
        picture.save(held, "PNG")
    return held.getvalue()


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    rng = np.random.default_rng([seed, 101])
    made: list[tuple[Raw, int, str | None]] = []
    for i in range(count):
        label = int(rng.integers(len(_LABELS)))
        picture = draw(rng, label % 5, label // 5)
        made.append((encode(rng, picture), i, _LABELS[label]))
    return made


def _prepare(raw: bytes) -> torch.Tensor:
    """The server's own way to [3, 28, 28]."""
    with Image.open(io.BytesIO(raw)) as opened:
        rgb = ImageOps.exif_transpose(opened).convert("RGB")
    short = min(rgb.size)
    width, height = _SHORT * rgb.width // short, _SHORT * rgb.height // short
    rgb = rgb.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - _SIDE) // 2, (height - _SIDE) // 2
    rgb = rgb.crop((left, top, left + _SIDE, top + _SIDE))
    pixels = torch.from_numpy(np.array(rgb)).permute(2, 0, 1).float() / 255
    return (pixels - torch.tensor(_MEAN)[:, None, None]) / torch.tensor(_STD)[:, None, None]


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    made = _inputs(seed, count)
    pictures = torch.stack([_prepare(raw) for raw, _, _ in made])  # type: ignore[arg-type]
    return pictures, torch.tensor([_LABELS.index(str(label)) for _, _, label in made])


def _loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(module(x), y)


def _answer(module: torch.nn.Module, raw: Raw) -> dict[str, Any]:
    assert isinstance(raw, bytes)
    with torch.inference_mode():
        scores, best = module(_prepare(raw)[None])[0].softmax(0).topk(5)
    top = [[_LABELS[i], s] for i, s in zip(best.tolist(), scores.tolist(), strict=True)]
    return {"label": top[0][0], "score": top[0][1], "top": top}


def _options() -> dict[str, Any]:
    scale = [1 / 255 / s for s in _STD]
    bias = [-m / s for m, s in zip(_MEAN, _STD, strict=True)]
    side = {"height": _SIDE, "width": _SIDE}
    steps = [
        {"step": "decode/1"},
        {"step": "resize/1", "height": _SHORT, "width": _SHORT, "fit": "shortest-edge"},
        {"step": "center_crop/1", **side},
        {"step": "normalize/1", "scale": scale, "bias": bias},
        {"step": "layout/1", "order": "CHW"},
    ]
    return {
        "input_names": ["image"],
        "output_names": ["logits"],
        "dynamic_shapes": {"image": {0: ("batch", 1, 8)}},
        "task": "image-classification",
        "labels": _LABELS,
        "processing": {
            "inputs": [{"name": "image", "steps": steps}],
            "outputs": [
                {"step": "softmax/1", "output": "logits"},
                {"step": "top_k/1", "output": "logits"},
            ],
        },
    }


TASK = Task(
    name="digits",
    kind="image-classification",
    medium="image",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=lambda: (torch.randn(2, 3, _SIDE, _SIDE),),
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=5,
    examples=5000,
)
