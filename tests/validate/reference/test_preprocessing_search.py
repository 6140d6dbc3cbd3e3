"""What the search tries is what Pillow and torch compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from edgeserve.processing.steps.resize import Resize
from edgeserve.validate.reference.preprocessing_changes import _pillow, _resampled
from edgeserve.validate.reference.preprocessing_search import swapped_labels
from edgeserve.validate.reference.resampling import resampling_matrix

SIZES = ((200, 64), (131, 73), (50, 64), (64, 64))


def picture(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, (size, size + 7, 3), dtype=np.uint8)


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_without_antialiasing_it_is_torchs(old: int, new: int, mode: str) -> None:
    levels = picture(old)
    planes = torch.from_numpy(levels.transpose(2, 0, 1).astype(np.float64))[None]
    wanted = torch.nn.functional.interpolate(planes, (new, new), mode=mode)[0].numpy()
    kernel = "floor" if mode == "nearest" else mode
    step = Resize(height=new, width=new)
    got = _resampled(step, kernel, antialias=False)(Image.fromarray(levels))
    assert np.abs(got - np.clip(wanted, 0, 255).transpose(1, 2, 0)).max() < 1e-3


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("kernel", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_with_antialiasing_it_is_pillows(old: int, new: int, kernel: str) -> None:
    """Pillow rounds each pass to 8 bits, and cuts off what a kernel overshoots in between."""
    image = Image.fromarray(picture(old))
    wanted = np.asarray(image.resize((new, new), Image.Resampling[kernel.upper()]), np.float64)
    step = Resize(height=new, width=new)
    assert np.array_equal(_pillow(step, kernel)(image), wanted)
    if kernel not in ("bicubic", "lanczos"):
        assert np.abs(_resampled(step, kernel, antialias=True)(image) - wanted).max() <= 1.01


@pytest.mark.parametrize(("old", "new"), [(200, 64), (131, 73), (64, 64)])
def test_area_is_the_mean_of_what_a_pixel_covers(old: int, new: int) -> None:
    levels = np.random.default_rng(0).random(old)
    wanted = np.repeat(levels, new).reshape(new, old).mean(1)
    assert np.allclose(resampling_matrix(old, new, "area", antialias=True) @ levels, wanted)


def test_a_letterbox_keeps_its_borders() -> None:
    image = Image.fromarray(picture(100)[:50])
    step = Resize(height=64, width=64, fit="letterbox", fill=(1, 2, 3))
    for made in (_pillow(step, "bicubic")(image), _resampled(step, "box", antialias=True)(image)):
        assert made.shape == (64, 64, 3)
        assert made[0, 0].tolist() == [1, 2, 3]
        assert made[32, 32].tolist() != [1, 2, 3]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({("a", "b"): 20, ("b", "a"): 24, ("c", "c"): 30}, "all 44 flips"),
        ({("a", "b"): 2, ("b", "a"): 3, ("a", "a"): 40, ("b", "b"): 41}, ""),  # ordinary flips
        ({("a", "b"): 20, ("b", "a"): 24, ("c", "a"): 3}, ""),  # not those two alone
        ({("a", "b"): 20}, ""),  # one way only
        ({("a", "b"): 1, ("b", "a"): 1}, ""),  # too few to say
        ({("a", "a"): 9}, ""),
        ({}, ""),
    ],
)
def test_two_labels_that_look_swapped(labels: dict[tuple[str, str], int], told: str) -> None:
    found = swapped_labels(labels)
    assert told in found
    assert bool(found) == bool(told)
