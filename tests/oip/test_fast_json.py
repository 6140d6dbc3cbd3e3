"""Numbers written as JSON: Python's own reader gives the same array back, bit by bit."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from edgeserve import oip
from edgeserve.oip import fast_json

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")


@pytest.fixture(params=["orjson", "msgspec"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "msgspec":
        monkeypatch.setattr(fast_json, "_orjson", lambda: None)
    return name


def read(array: np.ndarray) -> np.ndarray:
    text = msgspec.json.encode(fast_json.encode_numbers(array))
    return np.array(json.loads(text), dtype=array.dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOATS])
def test_any_numbers_come_back_bit_by_bit(dtype: str, writer: str) -> None:
    rng = np.random.default_rng(5)
    some = np.frombuffer(rng.bytes(8 * 20_000), np.uint8).view(dtype if dtype != "bool" else "u1")
    array = some > 100 if dtype == "bool" else some
    if array.dtype.kind == "f":
        array = array[np.isfinite(array)]
        array = np.concatenate([array, np.array([-0.0, 0.0], dtype)])
    assert read(array).tobytes() == array.tobytes()


@given(arrays.arrays("float32", 20, elements={"allow_nan": False, "allow_infinity": False}))
def test_single_precision_of_every_kind_comes_back(array: np.ndarray) -> None:
    assert read(array).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(20, dtype="float32")[::3],
        np.arange(5, dtype=">f4"),
        np.zeros(0, "float32"),
        np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3)).reshape(-1),
    ],
    ids=["strided", "big-endian", "empty", "fortran"],
)
def test_any_layout_is_written_in_order(array: np.ndarray, writer: str) -> None:
    assert read(array).tolist() == array.tolist()


def test_both_write_answers_that_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 7)).astype(np.float32)
    answer = oip.InferResponse("m", "1", (oip.Tensor("y", x),))
    quick, _ = oip.write_response(answer, {})
    monkeypatch.setattr(fast_json, "_orjson", lambda: None)
    slow, _ = oip.write_response(answer, {})
    assert len(quick) < len(slow)  # it was orjson that wrote the first
    for body in (quick, slow):
        [output] = json.loads(body)["outputs"]
        assert output["shape"] == [2, 3, 7]
        np.testing.assert_array_equal(np.float32(output["data"]).reshape(2, 3, 7), x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_json_has_no_word_for_is_refused(bad: float, writer: str) -> None:
    answer = oip.InferResponse("m", "1", (oip.Tensor("y", np.float32([1, bad])),))
    with pytest.raises(oip.BadMessage, match="NaN or infinity"):
        oip.write_response(answer, {})
