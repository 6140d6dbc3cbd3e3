"""normalize/1, dtype/1 and layout/1 against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.errors import ProcessingError
from edgeserve.processing import normalize_from
from edgeserve.processing.image.pipeline import ToTensor
from edgeserve.processing.steps.cast import Cast, cast
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.types.base import decode, encode

CarryOut = Callable[..., np.ndarray]

#: All 256 levels in each channel.
LEVELS = np.stack(
    [np.roll(np.arange(256, dtype=np.uint8), n).reshape(16, 16) for n in (0, 7, 99)], -1
)

parameters = st.tuples(*[st.floats(-100, 100, width=32)] * 3)


def nearest_float32(exact: Fraction) -> float:
    """Round a rational number to float32, half to even, by comparing exact distances."""
    guess = np.float32(float(exact))
    near = {
        float(x)
        for x in (guess, np.nextafter(guess, -np.inf), np.nextafter(guess, np.float32(np.inf)))
    }
    even = {x: int(np.float32(x).view(np.int32)) % 2 for x in near}
    return min(near, key=lambda x: (abs(Fraction(x) - exact), even[x]))


@settings(deadline=None, max_examples=40)
@given(parameters, parameters)
def test_two_roundings_exactly(
    carry_out: CarryOut, scale: tuple[float, ...], bias: tuple[float, ...]
) -> None:
    result = carry_out(LEVELS, Normalize(scale=scale, bias=bias), Layout(order="CHW"))
    for channel in range(3):
        level = int(LEVELS[3, 5, channel])
        product = nearest_float32(level * Fraction(scale[channel]))
        total = nearest_float32(Fraction(product) + Fraction(bias[channel]))
        assert result[channel, 3, 5] == np.float32(total)
    product = LEVELS.astype(np.float32) * np.float32(scale)
    whole = product + np.float32(bias)
    assert np.array_equal(result, whole.transpose(2, 0, 1))


@settings(deadline=None, max_examples=60)
@given(
    rescale=st.sampled_from([1.0, 1 / 255, 1 / 127.5]),
    mean=st.tuples(*[st.floats(-1, 1)] * 3),
    std=st.tuples(*[st.floats(0.05, 4)] * 3),
)
def test_normalize_from_is_the_textbook_formula(
    carry_out: CarryOut, rescale: float, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    step = normalize_from(rescale, mean, std)
    result = carry_out(LEVELS, step)
    wanted = (LEVELS.astype(np.float64) * rescale - mean) / std
    # Four roundings, each half a unit (2**-24): of scale and product, of the bias, and of the sum.
    size = LEVELS * rescale / np.array(std) + np.abs(np.array(mean) / std)
    assert (np.abs(result - wanted) <= 3 * 2.0**-24 * size + 1e-12).all()
    assert all(float(np.float32(x)) == x for x in (*step.scale, *step.bias))
    assert decode(encode(step), Normalize) == step


def test_normalize_from_names_the_known_numbers() -> None:
    lite = normalize_from(1.0, [127.0] * 3, [128.0] * 3)
    assert lite == Normalize(scale=(1 / 128,) * 3, bias=(-127 / 128,) * 3)
    plain = normalize_from(1 / 255, [0.0] * 3, [1.0] * 3)
    assert math.copysign(1.0, plain.bias[0]) == 1.0  # no negative zero


@pytest.mark.parametrize(
    ("rescale", "mean", "std"),
    [
        (1.0, [0.0] * 3, [1.0, 0.0, 1.0]),
        (1.0, [0.0] * 2, [1.0] * 3),
        (1e39, [0.0] * 3, [1.0] * 3),
        (1.0, [float("nan")] * 3, [1.0] * 3),
    ],
)
def test_normalize_from_refuses(rescale: float, mean: list[float], std: list[float]) -> None:
    with pytest.raises(ProcessingError) as refused:
        normalize_from(rescale, mean, std)
    assert refused.value.code == "EDGE-PROCESS-004"


@pytest.mark.parametrize("steps", [([1e39] * 3, [0.0] * 3), ([3e38] * 3, [0.0] * 3)])
def test_numbers_beyond_float32_are_refused(steps: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ProcessingError, match="beyond float32"):
        ToTensor([Normalize(scale=tuple(steps[0]), bias=tuple(steps[1]))])


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30),
    st.sampled_from(INTEGERS),
)
def test_cast_rounds_half_to_even_and_saturates(values: list[float], dtype: str) -> None:
    limits = np.iinfo(dtype)
    result = cast(np.array(values, np.float32), dtype)
    for value, found in zip(values, result.tolist(), strict=True):
        low, high = int(limits.min), int(limits.max)
        if math.isinf(value):
            assert found == (high if value > 0 else low)
        else:
            assert found == min(max(round(Fraction(value)), low), high)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_cast_at_the_ends(dtype: str) -> None:
    limits = np.iinfo(dtype)
    ends = [float(limits.min), float(limits.max), float(limits.max) * 2, -float(limits.max) * 2]
    wanted = [limits.min, limits.max, limits.max, limits.min]
    assert cast(np.array(ends), dtype).tolist() == wanted


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_cast_to_half_is_ieee(values: list[float]) -> None:
    array = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        wanted = array.astype(np.float16)
    assert np.array_equal(cast(array, "float16"), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64"])
@pytest.mark.parametrize("order", ["CHW", "HWC", None])
@pytest.mark.parametrize("normalize", [Normalize(scale=(0.7,) * 3, bias=(-9.0, 0.25, 100.0)), None])
def test_any_tail_is_its_steps_one_by_one(
    carry_out: CarryOut, normalize: Normalize | None, order: str | None, dtype: str
) -> None:
    layout = [Layout(order=order)] if order else []  # type: ignore[arg-type]
    steps = [*([normalize] if normalize else []), *layout, Cast(dtype=dtype)]  # type: ignore[arg-type]
    result = carry_out(LEVELS, *steps)
    value = LEVELS
    if normalize:
        value = LEVELS.astype(np.float32) * np.float32(normalize.scale) + np.float32(normalize.bias)
    value = value.transpose(2, 0, 1) if order == "CHW" else value
    assert np.array_equal(result, cast(value, dtype))
    assert result.dtype == dtype
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.base is None
