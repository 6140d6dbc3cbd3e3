"""Requests read by simdjson against the same read without it: equal, refusals included."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve import oip
from edgeserve.oip import fast_json

MOST = {"x": 1000, "y": 10}
#: Shorter texts are not worth simdjson's while.
PAD = b" " * 1100


def said(body: bytes) -> Any:
    """What a request says, or why it is refused."""
    try:
        read = oip.read_request(body, None, MOST)
    except oip.BadMessage as error:
        return str(error)
    tensors = [(t.name, t.array.dtype, t.array.shape, t.array.tobytes()) for t in read.inputs]
    return tensors, read.id, read.wanted, read.binary, dict(read.parameters)


def both(body: bytes) -> tuple[Any, Any]:
    """With simdjson, and without it."""
    quick = said(body)
    library, fast_json._simdjson = fast_json._simdjson, lambda: None
    try:
        return quick, said(body)
    finally:
        fast_json._simdjson = library


def of(**tensor: Any) -> bytes:
    whole = {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2.5, -3e-5]} | tensor
    return json.dumps({"inputs": [whole]}).encode() + PAD


def test_it_is_what_reads_the_usual_request() -> None:
    x = np.random.default_rng(1).normal(size=(4, 50)).astype(np.float32)
    body, _ = oip.write_request([oip.Tensor("x", x)], binary=False)
    found = fast_json._by_simd(body, 0)
    assert found is not None
    assert isinstance(found.inputs[0].numbers, np.ndarray)
    np.testing.assert_array_equal(oip.read_request(body, None, MOST).inputs[0].array, x)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from([0.1, -0.0, 1e-320, 3.4028235e38, 3.4028236e38, 1 << 63, (1 << 53) + 1, 2.0]),
)


@given(st.lists(NUMBERS, max_size=20), st.sampled_from(["FP32", "FP64"]))
@settings(max_examples=400, deadline=None)
def test_the_same_numbers_to_the_last_bit(data: list[float], datatype: str) -> None:
    quick, plain = both(of(shape=[len(data)], data=data, datatype=datatype))
    assert quick == plain


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=2)
    ),
    max_leaves=6,
)
FIELDS = st.dictionaries(
    st.sampled_from(["name", "shape", "datatype", "data", "parameters", "numbers", "z"]),
    ODD,
    max_size=3,
)
WHOLE = st.dictionaries(
    st.sampled_from(["inputs", "outputs", "id", "parameters", "tensors", "z"]), ODD, max_size=2
)


@given(FIELDS, WHOLE)
@settings(max_examples=800, deadline=None)
def test_the_same_answer_whatever_a_field_holds(
    tensor: dict[str, Any], more: dict[str, Any]
) -> None:
    good = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.5, 2]}
    quick, plain = both(json.dumps({"inputs": [good | tensor]} | more).encode() + PAD)
    assert quick == plain


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=3), st.booleans())
@settings(max_examples=800, deadline=None)
def test_the_same_answer_with_bytes_changed(at: int, noise: bytes, insert: bool) -> None:
    good = of()
    at %= len(good) - len(PAD)
    quick, plain = both(good[:at] + noise + good[at + (0 if insert else len(noise)) :])
    assert quick == plain


@pytest.mark.parametrize(
    "text",
    [
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[[1],[2]]}]}',
        b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1,2]]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"data":[2]}]}',
        b'{"inputs":[{"name":"y","name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[],"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[true]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":["1"]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1e999]}]}',
        b'{"inputs":[{"name":"x","shape":[1.0],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x","shape":[true],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"parameters":'
        b'{"binary_data_output":true,"binary_data_output":false}}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"tensors":[]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"numbers":[7]}]}',
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"outputs":'
        b'[{"name":"y","parameters":{"binary_data":true}}]}',
        b'{"inputs":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b"\xef\xbb\xbf" + b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"\xc3\x28","shape":[1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x\\udfff","shape":[1],"datatype":"FP32","data":[1]}]}',
        b"[1,2]",
        b'"' + b"a" * 2000,
    ],
)
def test_the_same_answer_to_what_is_odd(text: bytes) -> None:
    quick, plain = both(text + PAD)
    assert quick == plain


def test_many_threads_at_a_time() -> None:
    """Each has a parser of its own; a refusal leaves it as good as new."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=200)
        body, _ = oip.write_request([oip.Tensor("x", x)], binary=False)
        for i in range(60):
            if i % 3 == 0:
                oip.read_request(of(data=[10**30, 1, 1]), None, MOST)
            got = oip.read_request(body, None, MOST).inputs[0].array
            if not np.array_equal(got, x):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
