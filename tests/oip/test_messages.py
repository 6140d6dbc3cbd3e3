"""The protocol's codec: its own examples, an independent client's bytes, and lies of all kinds."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeserve import oip

KINDS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def request(**tensor: Any) -> bytes:
    return json.dumps({"inputs": [{"name": "x"} | tensor]}).encode()


def test_the_specification_s_example() -> None:
    body = json.dumps(
        {
            "id": "42",
            "inputs": [
                {"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
                {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True, False, True]},
            ],
            "outputs": [{"name": "output0"}],
        }
    ).encode()
    read = oip.read_request(body, None)
    assert read.id == "42"
    assert [w.name for w in read.wanted] == ["output0"]
    np.testing.assert_array_equal(read.inputs[0].array, np.array([[1, 2], [3, 4]], np.uint32))
    assert read.inputs[1].array.tolist() == [True, False, True]
    assert read.inputs[0].array.dtype == np.uint32


def test_a_nested_list_is_the_same_as_a_flat_one() -> None:
    nested = request(shape=[2, 1, 2], datatype="FP32", data=[[[1, 2]], [[3, 4.5]]])
    flat = request(shape=[2, 1, 2], datatype="FP32", data=[1, 2, 3, 4.5])
    one, other = (oip.read_request(b, None).inputs[0].array for b in (nested, flat))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (2, 1, 2)


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_s_bytes_are_read(binary: bool) -> None:
    """Its client and ours were written by different people."""
    http = pytest.importorskip("tritonclient.http")
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    words = np.array([b"\xff\x00", b"", b"ab,c"], object)
    inputs = [http.InferInput("x", x.shape, "FP32"), http.InferInput("s", [3], "BYTES")]
    inputs[0].set_data_from_numpy(x, binary_data=binary)
    inputs[1].set_data_from_numpy(words, binary_data=True)
    body, head = http.InferenceServerClient.generate_request_body(inputs)
    read = oip.read_request(body, head)
    np.testing.assert_array_equal(read.inputs[0].array, x)
    assert read.inputs[1].array.tolist() == words.tolist()


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(k) for k in KINDS + FLOATS]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
@settings(max_examples=300, deadline=None)
def test_binary_is_lossless(array: np.ndarray) -> None:
    body, head = oip.write_request([oip.Tensor("x", array), oip.Tensor("y", array)])
    for tensor in oip.read_request(body, head).inputs:
        assert tensor.array.dtype == array.dtype
        assert tensor.array.tobytes() == np.ascontiguousarray(array).tobytes()
        assert tensor.array.flags.aligned


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(k) for k in KINDS + FLOATS]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
@settings(max_examples=300, deadline=None)
def test_json_is_lossless_too(array: np.ndarray) -> None:
    answer = oip.InferResponse("m", "1", (oip.Tensor("x", array),))
    body, head = oip.write_response(answer, {})
    assert head is None
    found = oip.read_response(body, None).outputs[0].array
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_nan_goes_in_binary_only() -> None:
    answer = oip.InferResponse("m", "1", (oip.Tensor("x", np.array([np.nan], np.float32)),))
    with pytest.raises(oip.BadMessage, match="NaN"):
        oip.write_response(answer, {})
    body, head = oip.write_response(answer, {"x": True})
    assert np.isnan(oip.read_response(body, head).outputs[0].array).all()


def test_a_list_longer_than_its_shape_is_never_made() -> None:
    body = request(shape=[2], datatype="FP32", data=[0] * 200_000)
    with pytest.raises(oip.BadMessage, match="2 elements"):
        oip.read_request(body, None)


def test_a_shape_beyond_the_model_s_is_refused_before_its_data() -> None:
    body = request(shape=[1 << 40, 1 << 40], datatype="FP32", data=[0])
    with pytest.raises(oip.BadMessage, match="more elements"):
        oip.read_request(body, None, {"x": 100})


LIES = {
    "no inputs": b'{"inputs":[]}',
    "not json": b"hello",
    "empty": b"",
    "a list": b"[]",
    "null": b"null",
    "bad utf-8": b'{"inputs":[{"name":"\xff","shape":[1],"datatype":"FP32","data":[1]}]}',
    "a lone surrogate": b'{"inputs":[{"name":"\\ud800","shape":[1],"datatype":"FP32","data":[1]}]}',
    "deep": b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep data": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}]}",
    "deep parameters": b'{"inputs":[],"parameters":'
    + b'{"a":' * 50_000
    + b"1"
    + b"}" * 50_000
    + b"}",
    "nan": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}',
    "too big a float": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1e39]}]}',
    "beyond a double": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[1e999]}]}',
    "beyond int8": request(shape=[1], datatype="INT8", data=[128]),
    "beyond uint8": request(shape=[1], datatype="UINT8", data=[-1]),
    "beyond int64": request(shape=[1], datatype="INT64", data=[1 << 63]),
    "a float as int": request(shape=[1], datatype="INT32", data=[1.5]),
    "a text as float": request(shape=[1], datatype="FP32", data=["1"]),
    "true as int": request(shape=[1], datatype="INT32", data=[True]),
    "a null": request(shape=[1], datatype="FP32", data=[None]),
    "an object": request(shape=[1], datatype="FP32", data={"0": 1}),
    "ragged": request(shape=[2, 2], datatype="FP32", data=[[1, 2, 3], [4]]),
    "turned": request(shape=[2, 3], datatype="FP32", data=[[1, 2], [3, 4], [5, 6]]),
    "too few": request(shape=[3], datatype="FP32", data=[1, 2]),
    "too many": request(shape=[1], datatype="FP32", data=[1, 2]),
    "negative": request(shape=[-1], datatype="FP32", data=[1]),
    "minus one twice": request(shape=[-1, -1], datatype="FP32", data=[1]),
    "overflowing": request(shape=[1 << 32, 1 << 32, 1 << 32], datatype="FP32", data=[1]),
    "beyond 64 bits": request(shape=[1 << 80], datatype="FP32", data=[1]),
    "zero times much": request(shape=[0, 1 << 62], datatype="FP32", data=[]),
    "a fraction": request(shape=[1.5], datatype="FP32", data=[1]),
    "a text shape": request(shape=["1"], datatype="FP32", data=[1]),
    "a thousand axes": request(shape=[1] * 1000, datatype="FP32", data=[1]),
    "no shape": json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "data": [1]}]}).encode(),
    "no datatype": request(shape=[1], data=[1]),
    "no data": request(shape=[1], datatype="FP32"),
    "unknown datatype": request(shape=[1], datatype="FP31", data=[1]),
    "bf16": request(shape=[1], datatype="BF16", data=[1]),
    "lower case": request(shape=[1], datatype="fp32", data=[1]),
    "binary without bytes": request(shape=[1], datatype="FP32", parameters={"binary_data_size": 4}),
    "negative size": request(shape=[1], datatype="FP32", parameters={"binary_data_size": -4}),
    "a text size": request(shape=[1], datatype="FP32", parameters={"binary_data_size": "4"}),
    "true as size": request(shape=[1], datatype="FP32", parameters={"binary_data_size": True}),
    "data twice": request(shape=[1], datatype="FP32", data=[1], parameters={"binary_data_size": 0}),
    "shared memory": request(
        shape=[1], datatype="FP32", parameters={"shared_memory_region": "/etc/passwd"}
    ),
    "twice the same": json.dumps(
        {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}] * 2}
    ).encode(),
    "a thousand inputs": json.dumps(
        {
            "inputs": [
                {"name": f"x{i}", "shape": [1], "datatype": "FP32", "data": [1]} for i in range(999)
            ]
        }
    ).encode(),
    "classification": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],'
    b'"outputs":[{"name":"y","parameters":{"classification":3}}]}',
    "binary_data is a text": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":"yes"}}]}',
    "outputs twice": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],'
    b'"outputs":[{"name":"y"},{"name":"y"}]}',
}


@pytest.mark.parametrize("what", LIES)
def test_a_lie_is_a_bad_message(what: str) -> None:
    with pytest.raises(oip.BadMessage):
        oip.read_request(LIES[what], None)


def binary(datatype: str, shape: list[int], size: int, data: bytes) -> tuple[bytes, int]:
    head = request(shape=shape, datatype=datatype, parameters={"binary_data_size": size})
    return head + data, len(head)


@pytest.mark.parametrize(
    ("datatype", "shape", "size", "data"),
    [
        ("FP32", [1], 4, b"\0\0\0"),
        ("FP32", [1], 4, b"\0\0\0\0\0"),
        ("FP32", [2], 4, b"\0\0\0\0"),
        ("FP32", [1], 3, b"\0\0\0"),
        ("FP32", [1 << 62], 4, b"\0\0\0\0"),
        ("BOOL", [1], 1, b"\2"),
        ("BYTES", [1], 3, b"\0\0\0"),
        ("BYTES", [1], 4, struct.pack("<I", 1)),
        ("BYTES", [1], 5, struct.pack("<I", 0xFFFFFFFF) + b"a"),
        ("BYTES", [2], 5, struct.pack("<I", 1) + b"a"),
        ("BYTES", [1], 6, struct.pack("<I", 1) + b"ab"),
        ("BYTES", [1 << 29], 8, b"\0" * 8),
        ("BYTES", [0], 1, b"a"),
    ],
)
def test_bytes_that_do_not_fit_are_a_bad_message(
    datatype: str, shape: list[int], size: int, data: bytes
) -> None:
    body, head = binary(datatype, shape, size, data)
    with pytest.raises(oip.BadMessage):
        oip.read_request(body, head)


@pytest.mark.parametrize("head", [0, -1, 10_000])
def test_a_head_that_is_longer_than_the_message(head: int) -> None:
    with pytest.raises(oip.BadMessage):
        oip.read_request(request(shape=[1], datatype="FP32", data=[1]), head)


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(-5, 300)))
@settings(max_examples=2000, deadline=None)
def test_any_bytes_are_read_or_refused(body: bytes, head: int | None) -> None:
    for read in (oip.read_request, oip.read_response):
        try:
            read(body, head)
        except oip.BadMessage:
            continue


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    st.sampled_from(["name", "shape", "datatype", "data", "parameters"]),
)
@settings(max_examples=2000, deadline=None)
def test_any_value_in_any_field_is_read_or_refused(value: Any, field: str) -> None:
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]} | {field: value}
    try:
        body = json.dumps({"inputs": [tensor]}).encode()
    except ValueError:
        return
    try:
        read = oip.read_request(body, None, {"x": 1000})
    except oip.BadMessage:
        return
    assert read.inputs[0].array.size <= 1000


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements={"allow_nan": False}),
    st.sampled_from(["FP32", "FP64", "INT64"]),
)
@settings(max_examples=300, deadline=None)
def test_the_quick_way_reads_as_the_strict_one(array: np.ndarray, datatype: str) -> None:
    """With limits a flat list of floats is read in one pass, without them strictly."""
    data = array.reshape(-1).tolist()
    body = request(shape=list(array.shape), datatype=datatype, data=data)

    def read(most: dict[str, int] | None) -> Any:
        try:
            found = oip.read_request(body, None, most).inputs[0].array
        except oip.BadMessage as error:
            return str(error)
        return found.dtype, found.tolist()

    assert read({"x": 1000}) == read(None)


@pytest.mark.parametrize("what", LIES)
def test_a_lie_is_one_for_the_quick_way_too(what: str) -> None:
    with pytest.raises(oip.BadMessage):
        oip.read_request(LIES[what], None, {"x": 1 << 20})
