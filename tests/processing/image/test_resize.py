"""resize/1 and center_crop/1: Pillow's bytes, the documented arithmetic, and exact geometry."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from edgeserve.errors import InputError
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.resize import Filter, Fit, Resize, between_passes, half_even

FILTERS: tuple[Filter, ...] = ("nearest", "bilinear", "bicubic", "lanczos")
CarryOut = Callable[..., np.ndarray]

sides = st.integers(1, 90) | st.sampled_from([1, 2, 3, 127, 128, 255, 256, 300])


def noise(height: int, width: int, seed: int) -> np.ndarray:
    """Levels that stress every rounding: noise, or black and white only."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 256, (height, width, 3), np.uint8)
    return np.where(levels > 127, 255, 0).astype(np.uint8) if seed % 3 == 0 else levels


def by_pillow(rgb: np.ndarray, height: int, width: int, kernel: Filter) -> np.ndarray:
    """Pillow's own resize, in one call."""
    image = Image.fromarray(rgb)
    return np.asarray(image.resize((width, height), Image.Resampling[kernel.upper()]))


@settings(deadline=None, max_examples=300)
@given(sides, sides, sides, sides, st.sampled_from(FILTERS), st.integers(0, 2**31))
@example(35, 8, 6, 1, "bicubic", 3)  # rows first
@example(5, 2, 3, 1, "lanczos", 3)  # just not rows first
@example(6, 2, 3, 1, "lanczos", 3)  # just rows first
def test_exact_is_pillow(
    carry_out: CarryOut, h: int, w: int, height: int, width: int, kernel: Filter, seed: int
) -> None:
    rgb = noise(h, w, seed)
    result = carry_out(rgb, Resize(height=height, width=width, filter=kernel))
    assert np.array_equal(result, by_pillow(rgb, height, width, kernel))


@settings(deadline=None, max_examples=150)
@given(sides, sides, sides, sides, st.sampled_from(FILTERS), st.integers(0, 2**31))
def test_documented_arithmetic_is_pillow(
    kernel: ModuleType, h: int, w: int, height: int, width: int, name: Filter, seed: int
) -> None:
    rgb = noise(h, w, seed)
    assert np.array_equal(
        kernel.resample(rgb, height, width, name), by_pillow(rgb, height, width, name)
    )


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(
    ("old", "new"),
    [((480, 640), (224, 224)), ((1, 4000), (1, 3)), ((2000, 3), (2, 5)), ((7, 5), (500, 300))],
)
def test_documented_arithmetic_at_real_sizes(
    kernel: ModuleType, old: tuple[int, int], new: tuple[int, int], name: Filter
) -> None:
    rgb = noise(*old, seed=1)
    assert np.array_equal(kernel.resample(rgb, *new, name), by_pillow(rgb, *new, name))


@settings(deadline=None, max_examples=150)
@given(sides, sides, sides, sides, st.sampled_from(FILTERS), st.integers(0, 2**31))
def test_shortest_edge_is_pillow(
    carry_out: CarryOut, h: int, w: int, height: int, width: int, kernel: Filter, seed: int
) -> None:
    rgb = noise(h, w, seed)
    step = Resize(height=height, width=width, fit="shortest-edge", filter=kernel)
    # The size rule as torchvision and Hugging Face have it, in floats.
    side = min(height, width)
    short, long = (w, h) if w <= h else (h, w)
    other = int(side * long / short)
    size = (other, side) if w <= h else (side, other)
    assert np.array_equal(carry_out(rgb, step), by_pillow(rgb, *size, kernel))


@settings(deadline=None, max_examples=150)
@given(sides, sides, sides, sides, st.sampled_from(FILTERS), st.integers(0, 2**31))
def test_letterbox_is_pillow(
    carry_out: CarryOut, h: int, w: int, height: int, width: int, kernel: Filter, seed: int
) -> None:
    rgb = noise(h, w, seed)
    step = Resize(height=height, width=width, fit="letterbox", filter=kernel, fill=(1, 20, 250))
    # Rounded from exact fractions: Python rounds a Fraction half to even.
    scale = min(Fraction(height, h), Fraction(width, w))
    inner = [max(1, round(scale * side)) for side in (h, w)]
    top, left = [(outer - side) // 2 for outer, side in zip((height, width), inner, strict=True)]
    border = (left, top, width - inner[1] - left, height - inner[0] - top)
    boxed = ImageOps.expand(Image.fromarray(by_pillow(rgb, *inner, kernel)), border, (1, 20, 250))
    assert np.array_equal(carry_out(rgb, step), np.asarray(boxed))


@settings(deadline=None, max_examples=150)
@given(sides, sides, sides, sides, st.sampled_from(["floor", "half-even"]))
def test_center_crop(
    carry_out: CarryOut, h: int, w: int, height: int, width: int, rounding: str
) -> None:
    rgb = noise(h, w, seed=h + w)
    step = CenterCrop(height=height, width=width, rounding=rounding)  # type: ignore[arg-type]
    pads = [(max(0, c - s) // 2, (max(0, c - s) + 1) // 2) for s, c in ((h, height), (w, width))]
    padded = np.pad(rgb, [*pads, (0, 0)])
    whole = round if rounding == "half-even" else math.floor
    top, left = (whole(max(0, s - c) / 2) for s, c in ((h, height), (w, width)))
    wanted = padded[top : top + height, left : left + width]
    assert np.array_equal(carry_out(rgb, step), wanted)


def test_half_even_is_round() -> None:
    for numerator in range(200):
        for denominator in range(1, 12):
            assert half_even(numerator, denominator) == round(Fraction(numerator, denominator))


def test_the_odd_pixel() -> None:
    # What torchvision's center crop does with 455 columns and 224 (1080p, shortest edge 256).
    even = CenterCrop(height=224, width=224, rounding="half-even")
    floor = CenterCrop(height=224, width=224)
    assert even.origin((256, 455)) == (16, 116)
    assert floor.origin((256, 455)) == (16, 115)
    assert even.origin((221, 221)) == (-1, -1)
    box = Resize(height=640, width=640, fit="letterbox")
    assert box.origin((480, 639)) == (80, 0)


@pytest.mark.parametrize("fit", ["shortest-edge", "letterbox"])
@given(
    size=st.tuples(st.integers(1, 2**26), st.integers(1, 2**26)),
    height=st.integers(1, 65_535),
    width=st.integers(1, 65_535),
)
def test_fits_hold_for_any_size(fit: Fit, size: tuple[int, int], height: int, width: int) -> None:
    new = Resize(height=height, width=width, fit=fit).inner_size(size)
    if fit == "letterbox":
        assert 1 <= new[0] <= height
        assert 1 <= new[1] <= width
        assert new[0] == height or new[1] == width
    else:
        assert min(new) == min(height, width)


def test_a_thin_picture_may_not_grow_beyond_bounds(carry_out: CarryOut) -> None:
    strip = np.zeros((1, 5000, 3), np.uint8)
    with pytest.raises(InputError, match="too long and thin") as refused:
        carry_out(strip, Resize(height=224, width=224, fit="shortest-edge"))
    assert refused.value.code == "EDGE-INPUT-008"


@given(*[st.integers(1, 70_000)] * 4)
def test_nothing_grows_between_the_passes(h: int, w: int, height: int, width: int) -> None:
    half_way = between_passes((h, w), (height, width))
    assert half_way in ((height, w), (h, width))
    assert half_way[0] * half_way[1] <= max(h * w, height * width)
