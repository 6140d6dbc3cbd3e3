"""image-segmentation: the kind of each pixel in pictures of shapes that may overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dev.corpus.tasks.base import Raw, Task
from dev.corpus.tasks.shapes import KINDS, SIDE, levels, png, scene

_LABELS = ["nothing", *KINDS]
_MOST, _SIZES = 3, (10, 24)


class Net(torch.nn.Module):
    """Down to a quarter and up again, with one way across."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = torch.nn.Conv2d(3, width, 3, 2, 1)
        self.norm = torch.nn.BatchNorm2d(width)
        self.two = torch.nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.three = torch.nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        self.join = torch.nn.Conv2d(3 * width, width, 3, 1, 1)
        self.head = torch.nn.Conv2d(width, len(_LABELS), 1)
        self.mode = "bilinear"

    def grow(self, x: torch.Tensor) -> torch.Tensor:
        """Twice as high and wide."""
        if self.mode == "nearest":
            return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return torch.nn.functional.interpolate(
            x, scale_factor=2.0, mode="bilinear", align_corners=False
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures [n, 3, 48, 48] to logits [n, 4, 48, 48]."""
        half = torch.relu(self.norm(self.one(x)))
        quarter = torch.relu(self.three(torch.relu(self.two(half))))
        joined = torch.cat([half, self.grow(quarter)], 1)
        return self.grow(self.head(torch.relu(self.join(joined))))


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    rng = np.random.default_rng([seed, 105])
    return [(png(scene(rng, _MOST, False, _SIZES)[0]), i, None) for i in range(count)]


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng([seed, 105])
    made = [scene(rng, _MOST, False, _SIZES) for _ in range(count)]
    pictures = torch.from_numpy(np.stack([pixels for pixels, _, _ in made]))
    truth = torch.from_numpy(np.stack([kinds for _, kinds, _ in made]))
    return pictures.permute(0, 3, 1, 2).float() / 127.5 - 1.0, truth


def _loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(module(x), y)


def _answer(module: torch.nn.Module, raw: Raw) -> dict[str, Any]:
    assert isinstance(raw, bytes)
    with torch.inference_mode():
        two = module(levels(raw))[0].softmax(0).topk(2, dim=0)
    return {
        "mask": two.indices[0].to(torch.int32).numpy(),
        "margin": (two.values[0] - two.values[1]).numpy(),
        "labels": _LABELS,
    }


def photo_steps() -> list[dict[str, Any]]:
    """From an encoded picture to [3, 48, 48], -1 to 1; the resize changes nothing here."""
    return [
        {"step": "decode/1"},
        {"step": "resize/1", "height": SIDE, "width": SIDE},
        {"step": "normalize/1", "scale": [1 / 127.5] * 3, "bias": [-1.0] * 3},
        {"step": "layout/1", "order": "CHW"},
    ]


def _options() -> dict[str, Any]:
    return {
        "input_names": ["image"],
        "output_names": ["logits"],
        "dynamic_shapes": {"image": {0: ("batch", 1, 8)}},
        "task": "image-segmentation",
        "labels": _LABELS,
        "processing": {
            "inputs": [{"name": "image", "steps": photo_steps()}],
            "outputs": [{"step": "segment/1", "output": "logits"}],
        },
    }


TASK = Task(
    name="segments",
    kind="image-segmentation",
    medium="image",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=lambda: (torch.randn(2, 3, SIDE, SIDE),),
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=6,
    examples=2500,
)
