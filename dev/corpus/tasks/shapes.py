"""What the two tasks on drawn shapes share: pictures with discs, squares and triangles."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps

KINDS = ("disc", "square", "triangle")
#: Pictures are squares of this side, so that resizing changes nothing.
SIDE = 48

#: Kind, and its box in pixels: left, top, right, bottom.
Shape = tuple[int, tuple[float, float, float, float]]


def scene(
    rng: np.random.Generator, most: int, apart: bool, sizes: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, list[Shape]]:
    """Levels uint8 [48, 48, 3], the kind of each pixel (0: none), and the shapes.

    Args:
        rng: Where chance comes from.
        most: At most so many shapes, at least one.
        apart: No shape may touch another.
        sizes: Smallest and largest side.
    """
    back = rng.integers(40, 150, 3)
    picture = Image.new("RGB", (SIDE, SIDE), tuple(int(x) for x in back))
    truth = Image.new("L", (SIDE, SIDE), 0)
    shapes: list[Shape] = []
    for _ in range(int(rng.integers(1, most + 1))):
        kind, side = int(rng.integers(3)), int(rng.integers(*sizes))
        x, y = (float(v) for v in rng.integers(1, SIDE - side - 1, 2))
        box = (x, y, x + side, y + side)
        if apart and any(_touch(box, other) for _, other in shapes):
            continue
        ink = rng.integers(0, 90, 3)
        ink[kind] = rng.integers(170, 256)  # a kind has its hue, so that channels matter
        for target, color in ((picture, tuple(int(v) for v in ink)), (truth, kind + 1)):
            _draw(target, kind, box, color)
        shapes.append((kind, box))
    noisy = np.asarray(picture, np.float64) + rng.normal(0, 10, (SIDE, SIDE, 3))
    return noisy.clip(0, 255).astype(np.uint8), np.array(truth, np.int64), shapes


def _touch(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[0] < other[2] + 2
        and other[0] < one[2] + 2
        and one[1] < other[3] + 2
        and other[1] < one[3] + 2
    )


def _draw(target: Image.Image, kind: int, box: tuple[float, ...], color: Any) -> None:
    pen = ImageDraw.Draw(target)
    x0, y0, x1, y1 = box[0], box[1], box[2] - 1, box[3] - 1
    if kind == 0:
        pen.ellipse((x0, y0, x1, y1), fill=color)
    elif kind == 1:
        pen.rectangle((x0, y0, x1, y1), fill=color)
    else:
        pen.polygon([((x0 + x1) / 2, y0), (x1, y1), (x0, y1)], fill=color)


def png(pixels: np.ndarray) -> bytes:
    """Levels as an encoded picture."""
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG", compress_level=1)
    return held.getvalue()


def size_of(raw: bytes) -> tuple[int, int]:
    """Width and height of an upright picture."""
    with Image.open(io.BytesIO(raw)) as opened:
        return ImageOps.exif_transpose(opened).size


def levels(raw: bytes) -> torch.Tensor:
    """The server's own way to float32 [1, 3, 48, 48], -1 to 1; other sizes are stretched."""
    with Image.open(io.BytesIO(raw)) as opened:
        picture = ImageOps.exif_transpose(opened).convert("RGB")
    if picture.size != (SIDE, SIDE):
        picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1)[None].float() / 127.5 - 1.0
