"""Drawn pictures: natural enough for an image model to be sure of something, and nobody's photo.

Each is drawn from its number alone: a coloured gradient, soft clouds, then shapes, stripes, checks
or rings over it. The pixels are the same everywhere; the PNG bytes may differ between versions of
zlib.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

__all__ = ["picture", "pixels"]

_Grid = tuple[np.ndarray, np.ndarray]
_Draw = Callable[[np.random.Generator, _Grid], np.ndarray]


def picture(number: int, seed: int = 0) -> bytes:
    """The PNG of picture ``number``: 128 to 255 pixels a side."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels(number, seed)).save(out, "PNG")
    return out.getvalue()


def pixels(number: int, seed: int = 0) -> np.ndarray:
    """Its pixels: uint8 RGB [height, width, 3]."""
    rng = np.random.default_rng((seed, number))
    height, width = (int(n) for n in rng.integers(128, 256, 2))
    y, x = np.mgrid[0:height, 0:width]
    grid = (y / height, x / width)
    image = _gradient(rng, grid)
    if rng.random() < 0.5:
        image = _blend(image, _clouds(rng, grid), _colour(rng))
    pattern = _PATTERNS[number % len(_PATTERNS)]
    for _ in range(int(rng.integers(1, 4))):
        image = _blend(image, pattern(rng, grid), _colour(rng))
    return np.asarray(np.rint(np.clip(image, 0, 1) * 255), np.uint8)


def _colour(rng: np.random.Generator) -> np.ndarray:
    return rng.random(3)


def _blend(image: np.ndarray, cover: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Lay ``colour`` over the picture where ``cover`` [height, width] is 1."""
    return np.asarray(image + cover[..., None] * (colour - image))


def _gradient(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """Between two colours, along a random direction."""
    along = _ramp(rng, grid)
    first, second = _colour(rng), _colour(rng)
    return np.asarray(first + along[..., None] * (second - first))


def _ramp(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """0 to 1 across the picture, in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    along = np.sin(angle) * grid[0] + np.cos(angle) * grid[1]
    return np.asarray((along - along.min()) / np.ptp(along))


def _clouds(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """Smooth noise: a coarse random grid, interpolated linearly."""
    cells = int(rng.integers(3, 9))
    coarse = rng.random((cells + 1, cells + 1))
    y, x = grid[0] * cells, grid[1] * cells
    top, left = y.astype(int), x.astype(int)
    down, right = y - top, x - left
    upper = coarse[top, left] * (1 - right) + coarse[top, left + 1] * right
    lower = coarse[top + 1, left] * (1 - right) + coarse[top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _disc(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    """An ellipse with a soft edge."""
    centre, radius = rng.uniform(0.2, 0.8, 2), rng.uniform(0.08, 0.45, 2)
    distance = np.hypot((grid[0] - centre[0]) / radius[0], (grid[1] - centre[1]) / radius[1])
    return np.asarray(np.clip((1 - distance) * 12, 0, 1))


def _box(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    centre, half = rng.uniform(0.2, 0.8, 2), rng.uniform(0.06, 0.4, 2)
    inside = (np.abs(grid[0] - centre[0]) < half[0]) & (np.abs(grid[1] - centre[1]) < half[1])
    return np.asarray(inside, float)


def _stripes(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    wave = np.sin(_ramp(rng, grid) * rng.uniform(6, 60) * np.pi)
    return np.asarray(wave > rng.uniform(-0.6, 0.6), float)


def _checks(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    cells = rng.integers(3, 24)
    return np.asarray(((grid[0] * cells).astype(int) + (grid[1] * cells).astype(int)) % 2, float)


def _rings(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    centre = rng.uniform(0.2, 0.8, 2)
    distance = np.hypot(grid[0] - centre[0], grid[1] - centre[1])
    return np.asarray((np.sin(distance * rng.uniform(20, 120)) + 1) / 2)


def _dots(rng: np.random.Generator, grid: _Grid) -> np.ndarray:
    cells = rng.uniform(4, 20)
    y, x = grid[0] * cells % 1 - 0.5, grid[1] * cells % 1 - 0.5
    return np.asarray((np.hypot(y, x) < rng.uniform(0.15, 0.45)), float)


_PATTERNS: tuple[_Draw, ...] = (_disc, _stripes, _checks, _rings, _dots, _box, _clouds)
