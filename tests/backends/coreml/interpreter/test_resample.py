"""Sampling at points against PyTorch's grid_sample and affine_grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

#: Core ML's words for PyTorch's, the padding by whether corners are aligned.
PADDING = {
    ("zeros", True): "constant",
    ("zeros", False): "constant",
    ("border", True): "border",
    ("border", False): "border",
    ("reflection", True): "reflection",
    ("reflection", False): "symmetric",
}


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    aligned=st.booleans(),
    zero_based=st.booleans(),
    seed=st.integers(0, 99),
)
def test_points_anywhere(
    one_op: Any,
    agree: Any,
    mode: str,
    padding: str,
    size: tuple[int, int],
    aligned: bool,
    zero_based: bool,
    seed: int,
) -> None:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, *size, generator=rng)
    grid = torch.rand(2, 4, 5, 2, generator=rng) * 5 - 2.5
    wanted = functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=aligned)
    points = (grid + 1) / 2 if zero_based else grid
    kind = "zero_to_one" if zero_based else "minus_one_to_one"
    found = one_op(
        "resample",
        {"x": x.numpy(), "coordinates": points.numpy()},
        sampling_mode=mode,
        padding_mode=PADDING[padding, aligned],
        padding_value=np.float32(0),
        coordinates_mode=f"normalized_{kind}",
        align_corners=aligned,
    )
    agree(found, [wanted])


@pytest.mark.parametrize(
    ("mode", "padding", "coordinates", "aligned", "wanted"),
    [
        ("bilinear", "constant", "normalized_minus_one_to_one", True, [8.585, 6.17, 27.5, 6.17]),
        ("nearest", "border", "unnormalized", False, [11, 11, 11, 44]),
        ("bilinear", "reflection", "normalized_zero_to_one", True, [22, 36.3, 11, 34.1]),
        ("nearest", "symmetric", "normalized_zero_to_one", False, [22, 33, 11, 33]),
    ],
)
def test_what_coremltools_expects_of_the_runtime(
    one_op: Any, mode: str, padding: str, coordinates: str, aligned: bool, wanted: list[float]
) -> None:
    """Numbers of its own tests."""
    x = np.float32([11, 22, 33, 44]).reshape(1, 1, 2, 2)
    points = np.float32([-1, -2, -3.7, -1, 0, 0, 3.5, 1.2]).reshape(1, 2, 2, 2)
    (found,) = one_op(
        "resample",
        {"x": x, "coordinates": points},
        sampling_mode=mode,
        padding_mode=padding,
        padding_value=np.float32(6.17),
        coordinates_mode=coordinates,
        align_corners=aligned,
    )
    np.testing.assert_allclose(found.reshape(-1), wanted, rtol=1e-5)


def test_pixels_by_whole_numbers(one_op: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    points = np.int32([[[[3, 0], [0, 2]], [[9, 1], [-1, 1]]]])
    (found,) = one_op(
        "resample",
        {"x": x, "coordinates": points},
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=np.float32(-5),
        coordinates_mode="unnormalized",
        align_corners=True,
    )
    np.testing.assert_array_equal(found.reshape(-1), [3, 8, -5, -5])


def test_points_that_are_no_numbers_do_no_harm(one_op: Any) -> None:
    """Whatever is read, it is read inside the image."""
    points = np.float32([np.nan, 0, np.inf, -np.inf, 1e30, -1e30, 0, 0]).reshape(1, 2, 2, 2)
    for padding in ("constant", "border", "reflection", "symmetric"):
        for mode in ("bilinear", "nearest"):
            (found,) = one_op(
                "resample",
                {"x": np.ones((1, 1, 2, 2), np.float32), "coordinates": points},
                sampling_mode=mode,
                padding_mode=padding,
                padding_value=np.float32(0),
                coordinates_mode="unnormalized",
                align_corners=True,
            )
            assert found.reshape(-1)[3] == 1


@pytest.mark.parametrize("maps", [1, 2])
def test_affine(one_op: Any, agree: Any, maps: int) -> None:
    x, theta = torch.randn(2, 3, 5, 6), torch.randn(maps, 2, 3)
    grid = functional.affine_grid(theta.expand(2, 2, 3), [2, 3, 4, 7], align_corners=True)
    found = one_op(
        "affine",
        {"x": x.numpy(), "transform_matrix": theta.reshape(maps, 6).numpy()},
        output_height=4,
        output_width=7,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=np.float32(0),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    )
    agree(found, [functional.grid_sample(x, grid, align_corners=True)])


def test_affine_as_coremltools_expects_it(one_op: Any) -> None:
    """Numbers of its own tests."""
    tensors = {
        "x": np.float32([11, 22, 33, 44]).reshape(1, 1, 2, 2),
        "transform_matrix": np.float32([[-1, -2, -3.7, -1, 3.5, 1.2]]),
    }
    for size, wanted in (((3, 3), [10.7525, 2.5025, 0, 1.98]), ((2, 5), [10.7525, 5.94, 2.5025])):
        (found,) = one_op(
            "affine",
            tensors,
            output_height=size[0],
            output_width=size[1],
            sampling_mode="bilinear",
            padding_mode="constant",
            padding_value=np.float32(0),
            coordinates_mode="normalized_minus_one_to_one",
            align_corners=True,
        )
        np.testing.assert_allclose(found.reshape(-1)[: len(wanted)], wanted, atol=1e-5)
