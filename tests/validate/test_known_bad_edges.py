"""What goes wrong around a right file: boxes of a photo that was fitted in.

What is right comes from PyTorch and Pillow. Rows are those of ``docs/explanation/known-bad.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from edgeserve import backends
from edgeserve.processing import Processor, normalize_from
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import Slice

FORMATS = ("onnx", "tflite", "coreml")


SIDE, CELL = 96, 8


class Squares(nn.Module):
    """Row 17: [1, 3, 96, 96] in 0..1 to [1, 4 + 1, 12, 12]: a box a cell, its score its red."""

    def __init__(self) -> None:
        super().__init__()
        places = torch.arange(SIDE // CELL) * CELL + CELL / 2
        self.register_buffer("x", places[None, None, None].expand(1, 1, 12, 12).clone())
        self.register_buffer("y", places[None, None, :, None].expand(1, 1, 12, 12).clone())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        cells = nn.functional.avg_pool2d(image, CELL)
        red = cells[:, :1] - cells[:, 1:2]
        size = 0 * red + CELL
        return torch.cat([self.x + 0 * red, self.y + 0 * red, size, size, red.clamp(0, 1)], 1)


PROCESSING = Processing(
    inputs=(
        InputProcessing(
            name="image",
            steps=(
                Decode(),
                Resize(height=SIDE, width=SIDE, fit="letterbox", fill=(114, 114, 114)),
                normalize_from(1 / 255, (0, 0, 0), (1, 1, 1)),
                Layout(order="CHW"),
            ),
        ),
    ),
    outputs=(Detect(boxes=Slice("head", 0, 0, 4), scores=Slice("head", 0, 4, 5), form="cxcywh"),),
)


def by_hand(photo: np.ndarray) -> np.ndarray:
    """Boxes [n, 4] in the photo's pixels, by Pillow, PyTorch and the rule of three."""
    scale = SIDE / max(photo.shape[:2])
    size = (round(photo.shape[1] * scale), round(photo.shape[0] * scale))
    left, top = ((SIDE - side) // 2 for side in size)
    square = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
    square.paste(Image.fromarray(photo).resize(size, Image.Resampling.BILINEAR), (left, top))
    x = torch.from_numpy(np.array(square)).permute(2, 0, 1)[None] / 255
    head = Squares()(x)[0].flatten(1).numpy()
    cx, cy, w, h = head[:4, head[4] >= 0.5]
    corners = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)
    back = (corners - [left, top, left, top]) / scale
    return np.sort(back.clip(0, np.array([photo.shape[1], photo.shape[0]] * 2)), axis=0)


def test_row_17_boxes_of_a_letterboxed_photo(build: Any, tmp_path: Path) -> None:
    """1080 x 810 fits in as 96 x 72; the same boxes, in the photo's pixels, on every engine."""
    photo = np.full((810, 1080, 3), 90, np.uint8)
    photo[45:225, 180:360, 0] = 250
    photo[45:225, 180:360, 1:] = 20
    made = build(
        Squares(),
        torch.rand(1, 3, SIDE, SIDE),
        input_names=("image",),
        output_names=("head",),
        task="object-detection",
        labels=("red",),
        processing=PROCESSING,
    )
    processor = Processor(PROCESSING, made.exported.signature, "object-detection", ("red",))
    feed = processor.batch([processor.prepare(photo)])
    wanted = by_hand(photo)
    assert len(wanted) == 4
    assert wanted.min(0).tolist() == pytest.approx([180, 45, 270, 135])
    for format in FORMATS:
        artifact = backends.get(format).export(made.exported, made.source, tmp_path / format)
        with backends.get(format).load(artifact, tmp_path / format) as session:
            (found,) = processor.finish(session.run(dict(feed)), feed)
        assert isinstance(found, Detection)
        np.testing.assert_allclose(np.sort(found.boxes, axis=0), wanted, atol=1e-3)
