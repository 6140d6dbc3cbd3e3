"""The check of feeds: dynamic dimensions by name, every message naming what was wanted and got."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.backends.session import InputValidator, numpy_dtype
from edgeserve.errors import BackendError
from edgeserve.types.tensors import DTYPES, IO, TensorSpec

IDS = TensorSpec(name="ids", dtype="int64", shape=("batch", "length"))
MASK = TensorSpec(name="mask", dtype="bool", shape=("batch", "length"))
BIAS = TensorSpec(name="bias", dtype="float32", shape=(3,))
CHECK = InputValidator(IO(inputs=(IDS, MASK, BIAS), outputs=()))


def feed(ids: tuple[int, ...] = (2, 5), mask: tuple[int, ...] = (2, 5)) -> dict[str, np.ndarray]:
    return {
        "bias": np.zeros(3, np.float32),
        "mask": np.ones(mask, bool),
        "ids": np.zeros(ids, np.int64),
    }


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (7, 0), (1000, 3)])
def test_a_word_may_be_any_size(shape: tuple[int, int]) -> None:
    CHECK(feed(shape, shape))


@pytest.mark.parametrize(
    ("ids", "mask", "word"), [((2, 5), (3, 5), "'batch'"), ((2, 5), (2, 4), "'length'")]
)
def test_a_word_is_one_size_everywhere(
    ids: tuple[int, ...], mask: tuple[int, ...], word: str
) -> None:
    with pytest.raises(BackendError) as error:
        CHECK(feed(ids, mask))
    assert error.value.code == "EDGE-BACKEND-010"
    assert word in error.value.message
    assert "'mask'" in error.value.message


def test_a_wrong_shape_is_told_in_full() -> None:
    with pytest.raises(BackendError) as error:
        CHECK({**feed(), "ids": np.zeros((2, 5, 1), np.int64)})
    assert "wanted shape [batch, length], got shape [2, 5, 1]" in error.value.message
    with pytest.raises(BackendError) as error:
        CHECK({**feed(), "bias": np.zeros(4, np.float32)})
    assert "wanted shape [3], got shape [4]" in error.value.message


def test_names_are_told_in_full() -> None:
    given = feed()
    given["IDS"] = given.pop("ids")
    with pytest.raises(BackendError) as error:
        CHECK(given)
    assert error.value.code == "EDGE-BACKEND-008"
    assert "['ids', 'mask', 'bias']" in error.value.message
    assert "IDS" in error.value.message


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((2, 5), np.int32), "int32"),
        (np.zeros((2, 5), ">i8"), ">i8"),
        ([[0]], "list"),
        (None, None),
    ],
)
def test_a_dtype_is_never_guessed(wrong: object, said: str | None) -> None:
    with pytest.raises(BackendError) as error:
        CHECK({**feed(), "ids": wrong})  # type: ignore[dict-item]
    if said is None:
        assert error.value.code == "EDGE-BACKEND-008"
    else:
        assert error.value.code == "EDGE-BACKEND-009"
        assert "int64" in error.value.message
        assert said in error.value.message


def test_a_model_without_inputs_takes_an_empty_feed() -> None:
    InputValidator(IO(inputs=(), outputs=()))({})


def test_every_dtype_but_one_has_a_numpy_form() -> None:
    for dtype in DTYPES:
        if dtype == "bfloat16":
            with pytest.raises(BackendError) as error:
                numpy_dtype(dtype, "x")
            assert error.value.code == "EDGE-BACKEND-017"
        else:
            wanted = {"bool": "bool", "string": "object"}.get(dtype, dtype)
            assert numpy_dtype(dtype, "x") == np.dtype(wanted)  # type: ignore[arg-type]
