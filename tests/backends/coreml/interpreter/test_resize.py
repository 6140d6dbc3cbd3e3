"""Resizing: PyTorch where it has the mode, the documented grids, and coremltools' own numbers."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from edgeserve.errors import MilError

SIZES = st.integers(1, 9)


class Resizes(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def by(size: Any, mode: str, **options: Any) -> Tensor:
            return functional.interpolate(x, size, mode=mode, **options)

        return (
            by((11, 5), "bilinear"),
            by((3, 14), "bilinear", align_corners=True),
            by((11, 5), "nearest"),
            by((14, 21), "nearest"),
            functional.interpolate(x, scale_factor=2, mode="nearest"),
            functional.interpolate(x, scale_factor=(1.5, 2), mode="bilinear", align_corners=True),
            functional.interpolate(y, 17, mode="nearest"),
            functional.interpolate(y, 17, mode="linear"),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    wanted, found = converted(Resizes(), torch.randn(2, 3, 7, 7), torch.randn(2, 3, 8))
    agree(found, wanted)
    assert converted.ops >= {"upsample_bilinear", "upsample_nearest_neighbor"}


def resized(one_op: Any, x: Tensor, size: tuple[int, int], mode: str) -> list[np.ndarray]:
    height, width = size
    return one_op(
        "resize_bilinear",
        {"x": x.numpy()},
        target_size_height=height,
        target_size_width=width,
        sampling_mode=mode,
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.tuples(SIZES, SIZES), wanted=st.tuples(SIZES, SIZES))
def test_two_modes_are_pytorchs(
    one_op: Any, agree: Any, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    x = torch.randn(1, 2, *size)
    centered = functional.interpolate(x, wanted, mode="bilinear", align_corners=False)
    agree(resized(one_op, x, wanted, "UNALIGN_CORNERS"), [centered])
    aligned = functional.interpolate(x, wanted, mode="bilinear", align_corners=True)
    agree(resized(one_op, x, wanted, "STRICT_ALIGN_CORNERS"), [aligned])
    if 1 not in wanted:  # a single point is the only difference
        agree(resized(one_op, x, wanted, "ALIGN_CORNERS"), [aligned])


def documented(size: int, count: int, mode: str) -> np.ndarray:
    """The points of the documentation's table, by its formulas."""
    i = np.arange(count)
    if mode == "ALIGN_CORNERS" and count == 1:
        return np.array([(size - 1) / 2])
    spacing = {
        "STRICT_ALIGN_CORNERS": (size - 1) / max(count - 1, 1),
        "ALIGN_CORNERS": (size - 1) / max(count - 1, 1),
        "DEFAULT": (size - size / count) / max(count - 1, 1),
        "OFFSET_CORNERS": max(1, size - 1) / count,
        "UNALIGN_CORNERS": size / count,
    }[mode]
    first = {"OFFSET_CORNERS": spacing / 2, "UNALIGN_CORNERS": spacing / 2 - 0.5}.get(mode, 0)
    return np.clip(first + i * spacing, 0, size - 1)


MODES = ["ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "STRICT_ALIGN_CORNERS", "UNALIGN_CORNERS"]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(size=SIZES, count=SIZES)
def test_the_documented_points(one_op: Any, mode: str, size: int, count: int) -> None:
    """Linear interpolation of a line is the line at the points."""
    ramp = np.tile(np.arange(size, dtype=np.float32), (1, 2, 1))
    points = documented(size, count, mode)
    (found,) = resized(one_op, torch.from_numpy(ramp), (2, count), mode)
    np.testing.assert_allclose(found[0, 0], points, atol=1e-5)
    (found,) = one_op(
        "resize", {"x": ramp}, shape=[count], resized_dims=np.uint32(1), sampling_mode=mode
    )
    np.testing.assert_allclose(found[0, 1], points, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("STRICT_ALIGN_CORNERS", [0, 0.25, 0.5, 0.75, 1]),
        ("DEFAULT", [0, 0.4, 0.8, 1, 1]),
        ("OFFSET_CORNERS", [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("UNALIGN_CORNERS", [0, 0.1, 0.5, 0.9, 1]),
    ],
)
def test_what_coremltools_expects_of_the_runtime(
    one_op: Any, mode: str, wanted: list[float]
) -> None:
    """Numbers of its own tests: 0 and 1, at five points."""
    (found,) = resized(one_op, torch.tensor([[[0.0, 1.0]]]), (1, 5), mode)
    np.testing.assert_allclose(found[0, 0], wanted, atol=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.tuples(SIZES, SIZES), wanted=st.tuples(SIZES, SIZES))
def test_nearest_by_centres(
    one_op: Any, agree: Any, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """TensorFlow's half-pixel centers, which PyTorch calls nearest-exact."""
    x = torch.randn(1, 2, *size)
    oracle = functional.interpolate(x, wanted, mode="nearest-exact")
    height, width = wanted
    sizes = {"target_size_height": height, "target_size_width": width}
    agree(one_op("resize_nearest_neighbor", {"x": x.numpy()}, **sizes), [oracle], tol=0)
    for mode in ("DEFAULT", "UNALIGN_CORNERS"):
        found = one_op(
            "resize",
            {"x": x.numpy()},
            shape=[1, *wanted],
            resized_dims=np.uint32(2),
            interpolation_mode="NEAREST_NEIGHBOR",
            sampling_mode=mode,
        )
        agree(found, [oracle], tol=0)


def test_nearest_to_aligned_points(one_op: Any) -> None:
    """Five of three: points at 0, .5, 1, 1.5, 2; of two equally near the second."""
    for mode, wanted in (
        ("STRICT_ALIGN_CORNERS", [0, 1, 1, 2, 2]),
        ("ALIGN_CORNERS", [0, 1, 1, 2, 2]),
        ("OFFSET_CORNERS", [0, 1, 1, 1, 2]),
    ):
        (found,) = one_op(
            "resize",
            {"x": np.arange(3, dtype=np.int32)},
            shape=[5],
            resized_dims=np.uint32(1),
            interpolation_mode="NEAREST_NEIGHBOR",
            sampling_mode=mode,
        )
        assert found.tolist() == wanted, mode


def test_the_shape_may_be_computed_and_leave_axes(one_op: Any, agree: Any) -> None:
    x = torch.randn(1, 2, 3, 4)
    shape = np.array([9, 0, 8], np.int32)
    found = one_op(
        "resize",
        {"x": x.numpy(), "shape": shape},
        resized_dims=np.uint32(2),
        sampling_mode="UNALIGN_CORNERS",
    )
    agree(found, [functional.interpolate(x, (3, 8), mode="bilinear")])


def test_nearest_as_coremltools_expects_it(one_op: Any) -> None:
    """Numbers of its own tests, of ``resize`` and of fractional factors."""
    x = np.float32([-6.174, 9.371]).reshape(1, 1, 1, 2, 1)
    (found,) = one_op(
        "resize",
        {"x": x},
        shape=[1, 1, 3, 2],
        resized_dims=np.uint32(2),
        interpolation_mode="NEAREST_NEIGHBOR",
        sampling_mode="DEFAULT",
    )
    np.testing.assert_array_equal(found.reshape(-1), np.float32([-6.174] * 2 + [9.371] * 4))
    x = np.float32([1.5, -2.5, 3.5]).reshape(1, 1, 1, 3)
    for factors, wanted in (((3.17, 0.67), [1.5, -2.5] * 3), ((2.0, 1.12), [1.5, -2.5, 3.5] * 2)):
        height, width = map(np.float32, factors)
        (found,) = one_op(
            "upsample_nearest_neighbor",
            {"x": x},
            scale_factor_height=height,
            scale_factor_width=width,
        )
        np.testing.assert_array_equal(found.reshape(-1), np.float32(wanted))


FACTORS = st.sampled_from([0.5, 0.67, 0.75, 1.0, 1.12, 1.5, 2.0, 2.6, 3.17])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.tuples(SIZES, SIZES), factors=st.tuples(FACTORS, FACTORS), align=st.booleans())
def test_by_factors(
    one_op: Any, agree: Any, size: tuple[int, int], factors: tuple[float, float], align: bool
) -> None:
    """PyTorch with ``recompute_scale_factor``: the sizes make the grid, not the factors."""
    counts = [int(n * np.float32(f)) for n, f in zip(size, factors, strict=True)]
    if min(counts) < 1:
        return
    x = torch.randn(1, 2, *size)
    scales = {
        "scale_factor_height": np.float32(factors[0]),
        "scale_factor_width": np.float32(factors[1]),
    }
    agree(
        one_op("upsample_bilinear", {"x": x.numpy()}, align_corners=align, **scales),
        [functional.interpolate(x, counts, mode="bilinear", align_corners=align)],
    )
    agree(
        one_op("upsample_nearest_neighbor", {"x": x.numpy()}, **scales),
        [functional.interpolate(x, counts, mode="nearest")],
        tol=0,
    )


@pytest.mark.parametrize(
    ("align", "centered", "wanted"),
    [
        (True, False, [1, 1.2, 1.4, 1.6, 1.8, 2]),
        (True, None, [1, 1.2, 1.4, 1.6, 1.8, 2]),
        (False, True, [1, 1, 4 / 3, 5 / 3, 2, 2]),
        (False, None, [1, 1, 4 / 3, 5 / 3, 2, 2]),
        (False, False, [1, 4 / 3, 5 / 3, 2, 2, 2]),
    ],
)
def test_half_pixel_centers(
    one_op: Any, align: bool, centered: bool | None, wanted: list[float]
) -> None:
    """Numbers of coremltools' own tests: 1 and 2, three times as wide."""
    options = {} if centered is None else {"half_pixel_centers": centered}
    (found,) = one_op(
        "upsample_bilinear",
        {"x": np.float32([[[[1, 2]]]])},
        opset=ct.target.iOS16,
        scale_factor_height=2,
        scale_factor_width=3,
        align_corners=align,
        **options,
    )
    np.testing.assert_allclose(found[0, 0], [wanted] * 2, rtol=1e-5)


def test_both_alignments_have_no_meaning(one_op: Any) -> None:
    with pytest.raises(MilError) as caught:
        one_op(
            "upsample_bilinear",
            {"x": np.ones((1, 1, 2, 2), np.float32)},
            align_corners=True,
            half_pixel_centers=True,
        )
    assert caught.value.code == "EDGE-MIL-030"
