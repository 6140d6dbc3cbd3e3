"""object-detection: shapes found by a head without anchors, boxes and scores in one output.

Each of 6 x 6 cells says the centre and size of the shape whose centre lies in it, in pixels, and a
score for each kind. The head is joined, [7, 36]: 0 to 3 centre and size, 4 to 6 scores; what
quantizers are known to ruin (known-bad.md, row 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dev.corpus.tasks.base import Raw, Task
from dev.corpus.tasks.segments import photo_steps
from dev.corpus.tasks.shapes import KINDS, SIDE, levels, png, scene, size_of

_CELL, _CELLS = 8, SIDE // 8
_MOST, _SIZES = 3, (9, 21)
THRESHOLD, NMS = 0.5, 0.45


class Net(torch.nn.Module):
    """Four convolutions; two heads, joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = self._block(3, width)
        self.two = self._block(width, 2 * width)
        self.three = self._block(2 * width, 2 * width)
        self.four = torch.nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        self.place = torch.nn.Conv2d(2 * width, 4, 1)
        self.kind = torch.nn.Conv2d(2 * width, len(KINDS), 1)
        torch.nn.init.constant_(self.kind.bias, -3.0)  # type: ignore[arg-type]
        grid = torch.stack(
            torch.meshgrid(torch.arange(_CELLS), torch.arange(_CELLS), indexing="xy")
        )
        self.register_buffer("grid", (grid.float() + 0.5) * _CELL)

    grid: torch.Tensor

    @staticmethod
    def _block(old: int, new: int) -> torch.nn.Sequential:
        conv = torch.nn.Conv2d(old, new, 3, 2, 1, bias=False)
        return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(new), torch.nn.ReLU())

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures [n, 3, 48, 48] to places [n, 4, 6, 6] in pixels and logits [n, 3, 6, 6]."""
        held = torch.relu(self.four(self.three(self.two(self.one(x)))))
        said = self.place(held)
        centre = self.grid + said[:, :2] * _CELL
        return torch.cat([centre, torch.relu(said[:, 2:]) * 16.0 + 1.0], 1), self.kind(held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures [n, 3, 48, 48] to the joined head [n, 7, 36]."""
        place, kind = self.parts(x)
        return torch.cat([place, torch.sigmoid(kind)], 1).flatten(2)


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    rng = np.random.default_rng([seed, 106])
    return [(png(scene(rng, _MOST, True, _SIZES)[0]), i, None) for i in range(count)]


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng([seed, 106])
    made = [scene(rng, _MOST, True, _SIZES) for _ in range(count)]
    kinds = np.zeros((len(made), len(KINDS), _CELLS, _CELLS), np.float32)
    places = np.zeros((len(made), 4, _CELLS, _CELLS), np.float32)
    for i, (_, _, shapes) in enumerate(made):
        for kind, (x0, y0, x1, y1) in shapes:
            x, y = (x0 + x1) / 2, (y0 + y1) / 2
            cell = int(y // _CELL), int(x // _CELL)
            kinds[i, :, *cell] = 0
            kinds[i, kind, *cell] = 1
            places[i, :, *cell] = x, y, x1 - x0, y1 - y0
    pictures = torch.from_numpy(np.stack([pixels for pixels, _, _ in made])).permute(0, 3, 1, 2)
    return pictures.float() / 127.5 - 1.0, torch.from_numpy(kinds), torch.from_numpy(places)


def _loss(module: Any, x: torch.Tensor, kinds: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    place, logits = module.parts(x)
    functional = torch.nn.functional
    there = kinds.amax(1, keepdim=True)
    off = (functional.smooth_l1_loss(place, places, reduction="none") * there).sum() / there.sum()
    return functional.binary_cross_entropy_with_logits(logits, kinds) * 20.0 + off * 0.3


def _answer(module: torch.nn.Module, raw: Raw) -> dict[str, Any]:
    """Boxes of the shapes, in the photo's pixels; of two of a kind that overlap the surer one."""
    assert isinstance(raw, bytes)
    with torch.inference_mode():
        head = module(levels(raw))[0]
    scores, kind = head[4:].max(0)
    x, y, w, h = head[:4]
    boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)
    kept: list[int] = []
    for i in scores.argsort(descending=True).tolist():
        rivals = [j for j in kept if kind[j] == kind[i] and _iou(boxes[i], boxes[j]) > NMS]
        if scores[i] >= THRESHOLD and not rivals:
            kept.append(i)
    width, height = size_of(raw)
    pixels = boxes[kept].clamp(0, SIDE) * torch.tensor([width, height] * 2) / SIDE
    return {
        "boxes": pixels.numpy(),
        "scores": scores[kept].numpy(),
        "labels": [KINDS[k] for k in kind[kept].tolist()],
    }


def _iou(one: torch.Tensor, other: torch.Tensor) -> float:
    low, high = torch.maximum(one[:2], other[:2]), torch.minimum(one[2:], other[2:])
    inner = float((high - low).clamp(min=0).prod())
    areas = sum(float((box[2:] - box[:2]).prod()) for box in (one, other))
    return inner / max(areas - inner, 1e-9)


def _options() -> dict[str, Any]:
    return {
        "input_names": ["image"],
        "output_names": ["head"],
        "dynamic_shapes": {"image": {0: ("batch", 1, 8)}},
        "task": "object-detection",
        "labels": list(KINDS),
        "processing": {
            "inputs": [{"name": "image", "steps": photo_steps()}],
            "outputs": [
                {
                    "step": "detect/1",
                    "boxes": {"output": "head", "axis": 0, "start": 0, "stop": 4},
                    "scores": {"output": "head", "axis": 0, "start": 4, "stop": 7},
                    "form": "cxcywh",
                    "unit": "pixel",
                    "threshold": THRESHOLD,
                    "nms": NMS,
                }
            ],
        },
    }


TASK = Task(
    name="boxes",
    kind="object-detection",
    medium="image",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=lambda: (torch.randn(2, 3, SIDE, SIDE),),
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=10,
    examples=5000,
)
