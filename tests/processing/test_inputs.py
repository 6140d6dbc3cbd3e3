"""check_feed: what fits passes untouched, what converts keeps its meaning, the rest is refused."""

from __future__ import annotations

from collections import ChainMap
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgeserve.errors import InputError
from edgeserve.processing.inputs import FeedValidator
from edgeserve.types.tensors import Shape, Signature, TensorSpec

DIMS = {"batch": (1, 4), "length": (0, 8)}


def check(*specs: tuple[str, str, Shape]) -> FeedValidator:
    inputs = tuple(TensorSpec(name=n, dtype=d, shape=s) for n, d, s in specs)  # type: ignore[arg-type]
    return FeedValidator(Signature(inputs=inputs, outputs=(), dims=DIMS))


IMAGE = check(("image", "float32", ("batch", 3, 2, 2)))
TOKENS = check(("ids", "int64", ("batch", "length")), ("mask", "int64", ("batch", "length")))


def code_of(checker: FeedValidator, **feed: Any) -> str:
    with pytest.raises(InputError) as refused:
        checker(feed)
    return refused.value.code


def test_what_fits_is_not_copied() -> None:
    image = np.zeros((2, 3, 2, 2), np.float32)
    assert IMAGE({"image": image})["image"] is image
    assert IMAGE(ChainMap({"image": image}))["image"] is image


def test_order_is_the_signatures() -> None:
    ids, mask = np.zeros((2, 5), np.int64), np.ones((2, 5), np.int64)
    assert list(TOKENS({"mask": mask, "ids": ids})) == ["ids", "mask"]


def test_memory_order_is_c() -> None:
    given_order = np.asfortranarray(np.random.default_rng(0).normal(size=(2, 3, 2, 2)), np.float32)
    result = IMAGE({"image": given_order})["image"]
    assert result.flags.c_contiguous
    assert np.array_equal(result, given_order)
    reversed_view = given_order[::-1]
    assert np.array_equal(IMAGE({"image": reversed_view})["image"], reversed_view)


NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_integers_convert_when_all_fit(data: st.DataObject, have: str, want: str) -> None:
    array = data.draw(arrays(have, (3,)))
    checker, limits = check(("x", want, (3,))), np.iinfo(want)
    if all(limits.min <= value <= limits.max for value in array.tolist()):
        result = checker({"x": array})["x"]
        assert result.dtype == want
        assert result.tolist() == array.tolist()
    else:
        assert code_of(checker, x=array) == "EDGE-INPUT-013"


@given(arrays("float64", (4,), elements=st.floats()))
def test_doubles_convert_when_they_stay_finite(array: np.ndarray) -> None:
    checker = check(("x", "float32", (4,)))
    largest = float(np.finfo(np.float32).max) * (1 + 2.0**-25)  # beyond it, rounding gives infinity
    if np.any(np.isfinite(array) & (np.abs(array) >= largest)):
        assert code_of(checker, x=array) == "EDGE-INPUT-013"
    else:
        with np.errstate(over="ignore"):
            wanted = array.astype(np.float32)
        assert np.array_equal(checker({"x": array})["x"], wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ("float16", "float32"),
        ("float32", "float64"),
        (">f4", "float32"),
        (">i8", "int64"),
        ("<f8", "float32"),
    ],
)
def test_other_conversions_that_lose_nothing(have: str, want: str) -> None:
    array = np.arange(3).astype(have)
    result = check(("x", want, (3,)))({"x": array})["x"]
    assert result.dtype == np.dtype(want)
    assert result.dtype.isnative
    assert result.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ("uint8", "float32"),
        ("int64", "float32"),
        ("float32", "int64"),
        ("float32", "float16"),
        ("float64", "float16"),
        ("bool", "int64"),
        ("int64", "bool"),
        ("float32", "bfloat16"),
        ("complex64", "float32"),
        ("datetime64[s]", "int64"),
        ("U3", "float32"),
        ("O", "float32"),
        ("float32", "string"),
        ("V2", "bfloat16"),
    ],
)
def test_conversions_that_change_the_meaning_are_refused(have: str, want: str) -> None:
    array = np.zeros(3, have)
    assert code_of(check(("x", want, (3,))), x=array) == "EDGE-INPUT-012"


def test_bfloat16_and_strings_pass() -> None:
    half = np.zeros(3, ml_dtypes.bfloat16)
    assert check(("x", "bfloat16", (3,)))({"x": half})["x"] is half
    words = np.array(["a", "bc", ""])
    result = check(("x", "string", (3,)))({"x": words})["x"]
    assert result.dtype == object
    assert result.tolist() == ["a", "bc", ""]


@pytest.mark.parametrize("value", [[1.0], 3.5, None, np.float32(1), "x", np.ma.array([1.0, 2, 3])])
def test_only_arrays(value: Any) -> None:
    assert code_of(check(("x", "float32", (3,))), x=value) == "EDGE-INPUT-011"


def test_memory_maps_are_arrays(tmp_path: Any) -> None:
    np.arange(3, dtype=np.float32).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    assert type(check(("x", "float32", (3,)))({"x": mapped})["x"]) is np.ndarray


@pytest.mark.parametrize("names", [[], ["images"], ["image", "mask"], [0]])
def test_names_have_to_match(names: list[Any]) -> None:
    feed = {name: np.zeros((1, 3, 2, 2), np.float32) for name in names}
    with pytest.raises(InputError) as refused:
        IMAGE(feed)
    assert refused.value.code == "EDGE-INPUT-010"
    assert "['image']" in refused.value.wanted
    assert all(str(name) in refused.value.got for name in names if name != "image")


@pytest.mark.parametrize("shape", [(3, 2, 2), (1, 3, 2, 2, 1), (1, 2, 2, 3), (1, 3, 2, 3), ()])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert code_of(IMAGE, image=np.zeros(shape, np.float32)) == "EDGE-INPUT-014"


def test_a_forgotten_batch_axis_is_named() -> None:
    with pytest.raises(InputError, match="has 3 dimensions instead of 4") as refused:
        IMAGE({"image": np.zeros((3, 2, 2), np.float32)})
    assert "array[None]" in refused.value.hint


@pytest.mark.parametrize(("ids", "mask"), [((5, 3), (5, 3)), ((0, 3), (0, 3)), ((1, 9), (1, 9))])
def test_dynamic_ranges(ids: tuple[int, int], mask: tuple[int, int]) -> None:
    assert code_of(TOKENS, ids=np.zeros(ids, int), mask=np.zeros(mask, int)) == "EDGE-INPUT-015"


def test_one_name_is_one_size() -> None:
    feed = {"ids": np.zeros((2, 3), np.int64), "mask": np.zeros((2, 4), np.int64)}
    with pytest.raises(
        InputError, match="input 'mask', dimension 'length': wanted 3 as in"
    ) as refused:
        TOKENS(feed)
    assert refused.value.code == "EDGE-INPUT-015"
    assert TOKENS({"ids": np.zeros((2, 0), np.int64), "mask": np.zeros((2, 0), np.int64)})


def test_no_inputs_and_scalars() -> None:
    assert check()({}) == {}
    scalar = np.array(2.5, np.float32)
    assert check(("x", "float32", ()))({"x": scalar})["x"] is scalar
