"""Crops: numpy's slices, PyTorch's grid_sample, and the numbers of coremltools' own tests."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.image_resizing import crop_resize_rois

SQUARE = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
NORMAL = {"normalized_coordinates": True, "sampling_mode": "ALIGN_CORNERS"}


def test_crop(one_op: Any) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 7)).astype(np.float32)
    (found,) = one_op("crop", {"x": x}, crop_height=[1, 2], crop_width=[0, 3])
    np.testing.assert_array_equal(found, x[:, :, 1:4, :4])
    (found,) = one_op("crop", {"x": x[0]}, crop_height=[0, 0], crop_width=[2, 0])
    np.testing.assert_array_equal(found, x[0, :, :, 2:])


def old(one_op: Any, roi: list[float], size: int, **attributes: Any) -> np.ndarray:
    """The op before iOS 17, of one box, as a flat list."""
    boxes = np.array(roi, np.float32).reshape(1, 1, len(roi), 1, 1)
    (found,) = one_op(
        "crop_resize",
        {"x": SQUARE},
        opset=ct.target.iOS16,
        roi=boxes,
        target_height=size,
        target_width=size,
        **{"sampling_mode": "ALIGN_CORNERS", **attributes},
    )
    assert found.shape == (1, 1, 1, size, size)
    return found.reshape(-1)


def test_what_coremltools_expects_of_the_runtime(one_op: Any) -> None:
    """Numbers of its own tests, of a box, a larger result, one point, and a box turned round."""
    np.testing.assert_allclose(old(one_op, [1, 1, 2, 2], 2), [6, 7, 10, 11])
    wider = old(one_op, [1, 1, 2, 2], 4)
    np.testing.assert_allclose(wider[:4], [6, 19 / 3, 20 / 3, 7], rtol=1e-6)
    np.testing.assert_allclose(wider[-4:], [10, 31 / 3, 32 / 3, 11], rtol=1e-6)
    np.testing.assert_allclose(old(one_op, [1, 1, 2, 2], 1), [8.5])
    np.testing.assert_allclose(old(one_op, [2, 2, 1, 1], 2), [11, 10, 7, 6])
    third = [0, 0.0, 0.0, 1 / 3, 1 / 3]
    np.testing.assert_allclose(old(one_op, third, 2, **NORMAL), [1, 2, 5, 6], rtol=1e-6)


def test_points_outside_are_padding_as_coremltools_expects(one_op: Any) -> None:
    boxes = np.float32([[0.1, 0.3, 1.3, 1.0], [0.5, 1.8, 1.0, 0.3], [0.0, 0.4, 0.6, 0.7]])
    wanted = [3.1, 5.2, 10, 10, 10, 7.9, 10, 13.9, 2.2, 3.1, 9.4, 10.3]
    (new,) = one_op(
        "crop_resize",
        {"x": SQUARE},
        boxes=boxes,
        box_indices=np.zeros(3, np.int32),
        target_height=2,
        target_width=2,
        pad_value=np.float32(10),
        **NORMAL,
    )
    np.testing.assert_allclose(new.reshape(-1), wanted, rtol=1e-5)
    for box, each in zip(boxes, np.split(np.array(wanted), 3), strict=True):
        before = old(one_op, [0, *box], 2, pad_value=np.float32(10), **NORMAL)
        np.testing.assert_allclose(before, each, rtol=1e-5)


def sampled(x: Tensor, ys: Tensor, xs: Tensor) -> Tensor:
    """``x`` [C, H, W] on the grid of rows ``ys`` and columns ``xs``, by PyTorch."""
    height, width = x.shape[-2:]
    across, down = torch.meshgrid(xs, ys, indexing="xy")
    grid = torch.stack([across / (width - 1), down / (height - 1)], -1) * 2 - 1
    return functional.grid_sample(x[None], grid[None].float(), align_corners=True)[0]


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        ("CORNERS_HEIGHT_FIRST", [0, 1, 2, 3]),
        ("CORNERS_WIDTH_FIRST", [1, 0, 3, 2]),
        ("CENTER_SIZE_HEIGHT_FIRST", None),
        ("CENTER_SIZE_WIDTH_FIRST", None),
    ],
)
def test_each_way_to_say_a_box(
    one_op: Any, agree: Any, mode: str, pattern: list[int] | None
) -> None:
    """Box, scale and image by hand: rows 1 to 3, columns 0.5 to 4.5, twice as large as said."""
    x = torch.randn(2, 3, 5, 6)
    corners = np.array([1, 0.5, 3, 4.5], np.float32) / 2
    middle = [(corners[0] + corners[2]) / 2, (corners[1] + corners[3]) / 2]
    extent = [corners[2] - corners[0], corners[3] - corners[1]]
    turn = -1 if mode == "CENTER_SIZE_WIDTH_FIRST" else 1
    box = corners[pattern] if pattern else np.array([*middle[::turn], *extent[::turn]], np.float32)
    (found,) = one_op(
        "crop_resize",
        {"x": x.numpy(), "boxes": box[None]},
        box_indices=np.int32([1]),
        target_height=3,
        target_width=5,
        box_coordinate_mode=mode,
        spatial_scale=np.float32(2),
        sampling_mode="STRICT_ALIGN_CORNERS",
    )
    rows, columns = torch.linspace(1, 3, 3), torch.linspace(0.5, 4.5, 5)
    agree([found[0]], [sampled(x[1], rows, columns)])


@pytest.mark.parametrize(
    ("mode", "points"),
    [
        ("STRICT_ALIGN_CORNERS", [1, 2, 3, 4]),
        ("ALIGN_CORNERS", [1, 2, 3, 4]),
        ("DEFAULT", [1, 2, 3, 4]),
        ("UNALIGN_CORNERS", [1, 2, 3, 4]),
        ("OFFSET_CORNERS", [1.375, 2.125, 2.875, 3.625]),
    ],
)
def test_a_box_is_an_interval_like_an_axis(one_op: Any, mode: str, points: list[float]) -> None:
    """Columns 1 to 4 at four points; the offset ones are what RoI align takes."""
    ramp = np.tile(np.arange(8, dtype=np.float32), (1, 1, 4, 1))
    (found,) = one_op(
        "crop_resize",
        {"x": ramp},
        boxes=np.float32([[0, 1, 1, 4]]),
        target_height=1,
        target_width=4,
        sampling_mode=mode,
    )
    np.testing.assert_allclose(found.reshape(-1), points, rtol=1e-6)


def test_boxes_of_all_images_or_of_one() -> None:
    """The type that coremltools infers for several images says [N, B, ...] in both cases."""
    x, box = torch.randn(3, 2, 4, 4), [1.0, 1.0, 2.0, 2.0]
    every = crop_resize_rois(x, torch.tensor(box).reshape(1, 1, 4, 1, 1), 2, 2)
    assert every.shape == (1, 3, 2, 2, 2)
    torch.testing.assert_close(every[0], x[:, :, 1:3, 1:3])
    chosen = torch.tensor([[2, *box], [0, *box]]).reshape(2, 1, 5, 1, 1)
    one = crop_resize_rois(x, chosen, 2, 2)
    assert one.shape == (2, 1, 2, 2, 2)
    torch.testing.assert_close(one[:, 0], x[[2, 0], :, 1:3, 1:3])
