"""Hostile requests, continued: bodies and tensors that lie. Cases as in ``hostile.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["tensor_cases"]

Case = tuple[str, str, bytes, "bytes | list[bytes]", "dict[str, str]"]
INFER = b"/v2/models/tagger/infer"
GOOD = {"name": "image", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": [0] * 192}


def tensor_cases() -> list[Case]:
    """All of this file."""
    return [
        *_bodies(),
        *_shapes(),
        *_kinds(),
        *_datas(),
        *_names(),
        *_numbers(),
        *_binaries(),
        *_mutants(),
    ]


def _bodies() -> Iterator[Case]:
    deep = 200_000
    texts: dict[str, bytes] = {
        "nothing": b"",
        "a space": b" ",
        "null": b"null",
        "true": b"true",
        "a number": b"7",
        "a text": b'"x"',
        "a list": b"[]",
        "an object": b"{}",
        "an open brace": b"{",
        "no inputs": b'{"inputs":[]}',
        "inputs null": b'{"inputs":null}',
        "inputs a text": b'{"inputs":"x"}',
        "inputs an object": b'{"inputs":{}}',
        "an input null": b'{"inputs":[null]}',
        "deep list": b"[" * deep + b"]" * deep,
        "deep open": b"[" * deep,
        "deep object": b'{"a":' * deep,
        "deep inputs": b'{"inputs":' + b"[" * deep + b"]" * deep + b"}",
        "deep in an unknown field": b'{"inputs":[],"z":' + b"[" * deep + b"]" * deep + b"}",
        "bad utf-8": b'{"inputs":[{"name":"\xc3\x28"}]}',
        "overlong utf-8": b'{"inputs":[{"name":"\xc0\xaf"}]}',
        "a surrogate": b'{"inputs":[{"name":"\\udfff","shape":[1],"datatype":"FP32","data":[1]}]}',
        "utf-16": '{"inputs":[]}'.encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf{}",
        "zeros": b"\0" * 100_000,
        "ones": b"\xff" * 100_000,
        "a zip": b"PK\x03\x04" + b"\0" * 100,
        "a pickle": b"\x80\x04\x95cos\nsystem\n",
        "xml": b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        "two objects": b'{"inputs":[]}{"inputs":[]}',
        "a comment": b'/* */{"inputs":[]}',
        "a trailing comma": b'{"inputs":[],}',
        "single quotes": b"{'inputs':[]}",
        "id a number": json.dumps({"id": 7, "inputs": [GOOD]}).encode(),
        "id an object": json.dumps({"id": {}, "inputs": [GOOD]}).encode(),
        "parameters a list": json.dumps({"parameters": [], "inputs": [GOOD]}).encode(),
        "outputs a text": json.dumps({"outputs": "logits", "inputs": [GOOD]}).encode(),
        "outputs null inside": json.dumps({"outputs": [None], "inputs": [GOOD]}).encode(),
        "outputs unknown": json.dumps({"outputs": [{"name": "../x"}], "inputs": [GOOD]}).encode(),
        "outputs twice": json.dumps(
            {"outputs": [{"name": "logits"}] * 2, "inputs": [GOOD]}
        ).encode(),
        "a sequence": json.dumps({"parameters": {"sequence_id": 7}, "inputs": [GOOD]}).encode(),
        "binary output a text": json.dumps(
            {"parameters": {"binary_data_output": "yes"}, "inputs": [GOOD]}
        ).encode(),
        "ten thousand inputs": json.dumps(
            {"inputs": [GOOD | {"data": [], "name": str(i)} for i in range(10_000)]}
        ).encode(),
        "the same input often": json.dumps({"inputs": [GOOD] * 3}).encode(),
    }
    for name, text in texts.items():
        yield f"body {name}", "POST", INFER, text, {}
    yield "chunk storm", "POST", INFER, [b"x"] * 20_000, {}
    yield "empty chunks", "POST", INFER, [b""] * 20_000, {}
    yield "too long in pieces", "POST", INFER, [b"x" * (1 << 20)] * 5, {"content-length": "10"}


def _shapes() -> Iterator[Case]:
    big = 1 << 31
    shapes: list[Any] = [
        [],
        [0],
        [-1],
        [1],
        [1, 3, 8],
        [1, 3, 8, 8, 1],
        [0, 3, 8, 8],
        [9, 3, 8, 8],
        [-1, 3, 8, 8],
        [1, -3, -8, 8],
        [1, 3, 8, 9],
        [3, 1, 8, 8],
        [big, 3, 8, 8],
        [big, big, big, big],
        [1 << 63, 3, 8, 8],
        [1 << 64, 1, 1, 1],
        [1, 3, 64, 1],
        [1, 192],
        [192],
        [1.0, 3, 8, 8],
        [1.5, 3, 8, 8],
        ["1", 3, 8, 8],
        [None, 3, 8, 8],
        [True, 3, 8, 8],
        [[1, 3, 8, 8]],
        None,
        "1,3,8,8",
        192,
        {},
        [1] * 100_000,
        [1 << 32, 1 << 32, 0, 0],
        [65536, 65536, 65536, 65536],
    ]
    for i, shape in enumerate(shapes):
        yield f"shape {i} {str(shape)[:30]}", "POST", INFER, _one(shape=shape), {}


def _kinds() -> Iterator[Case]:
    for kind in (
        "FP64x",
        "fp32",
        "INT8",
        "INT64",
        "BOOL",
        "BYTES",
        "UINT64",
        "BF16",
        "",
        "../FP32",
        "FP32\0",
        7,
        None,
        [],
        {},
    ):
        yield f"datatype {kind!r}", "POST", INFER, _one(datatype=kind), {}


def _datas() -> Iterator[Case]:
    datas: dict[str, Any] = {
        "empty": [],
        "one": [1],
        "more": [0] * 193,
        "much more": [0] * 100_000,
        "texts": ["0"] * 192,
        "nulls": [None] * 192,
        "bools": [True] * 192,
        "huge": [1e39] * 192,
        "tiny and huge": [-1e308] * 192,
        "big ints": [10**50] * 192,
        "a text": "0" * 192,
        "an object": {"0": 0},
        "a number": 0,
        "nested wrong": [[0] * 64] * 3,
        "ragged": [[0], [0, 0]],
        "objects": [{}] * 192,
        "lists": [[]] * 192,
        "true": True,
    }
    for name, data in datas.items():
        yield f"data {name}", "POST", INFER, _one(data=data), {}


def _names() -> Iterator[Case]:
    for name in (
        "",
        "Image",
        "image ",
        "\0",
        "__class__",
        "../image",
        "a" * 100_000,
        "raw",
        "öäü",
        7,
        None,
        [],
    ):
        yield f"name {str(name)[:20]!r}", "POST", INFER, _one(name=name), {}


def _numbers() -> Iterator[Case]:
    for name, raw in (
        ("NaN", b"NaN"),
        ("Infinity", b"Infinity"),
        ("1e999", b"1e999"),
        ("-", b"-"),
        ("01", b"01"),
        ("1.", b"1."),
        ("0x1", b"0x1"),
        ("1_0", b"1_0"),
        ("+1", b"+1"),
        ("a long number", b"1" * 100_000),
        ("a long fraction", b"0." + b"1" * 100_000),
    ):
        text = _one(shape=[1], data="@").replace(b'"@"', b"[" + raw + b"]")
        yield f"number {name}", "POST", INFER, text, {}


def _one(**fields: Any) -> bytes:
    return json.dumps({"inputs": [GOOD | fields]}).encode()


def _binaries() -> Iterator[Case]:
    def made(
        size: Any, blob: bytes, head: int | None = None, **fields: Any
    ) -> tuple[bytes, dict[str, str]]:
        tensor = (
            {k: v for k, v in GOOD.items() if k != "data"}
            | {"parameters": {"binary_data_size": size}}
            | fields
        )
        text = json.dumps({"inputs": [tensor]}).encode()
        said = len(text) if head is None else head
        return text + blob, {"inference-header-content-length": str(said)}

    whole = b"\0" * 768
    lies: dict[str, tuple[bytes, dict[str, str]]] = {
        "no bytes": made(768, b""),
        "too few": made(768, whole[:-1]),
        "too many": made(768, whole + b"\0"),
        "size too small": made(767, whole),
        "size too large": made(769, whole),
        "negative": made(-768, whole),
        "huge": made(1 << 62, whole),
        "beyond 64 bits": made(1 << 70, whole),
        "a text": made("768", whole),
        "a float": made(768.0, whole),
        "true": made(True, b"\0"),
        "a list": made([768], whole),
        "data too": made(768, whole, data=[0] * 192),
        "another datatype": made(768, whole, datatype="FP64"),
        "another shape": made(768, whole, shape=[1, 3, 8, 7]),
        "bytes as FP32 shape": made(768, whole, datatype="BYTES"),
        "head too long": made(768, whole, 100_000),
        "head into the bytes": made(768, whole, 900),
        "head too short": made(768, whole, 10),
        "head zero": made(768, whole, 0),
        "shared memory": made(
            768, whole, parameters={"shared_memory_region": "x", "shared_memory_byte_size": 768}
        ),
    }
    for name, (body, headers) in lies.items():
        yield f"binary {name}", "POST", INFER, body, headers
    for name, data in (
        ("cut length", b"\1\0"),
        ("long length", b"\xff\xff\xff\xff"),
        ("one too long", b"\2\0\0\0a"),
        ("rest", b"\1\0\0\0ab"),
    ):
        body, headers = made(len(data), data, name="raw", datatype="BYTES", shape=[1])
        yield f"raw {name}", "POST", INFER, body, headers
    body, headers = made(0, b"", name="raw", datatype="BYTES", shape=[0])
    yield "raw none", "POST", INFER, body, headers
    body, headers = made(4, b"\0" * 4, name="raw", datatype="FP32", shape=[1])
    yield "raw numbers", "POST", INFER, body, headers


def _mutants() -> Iterator[Case]:
    """One good request with a byte changed at each of several places, so that its JSON breaks."""
    good = json.dumps({"inputs": [GOOD]}).encode()
    for place in range(0, 60, 3):
        for byte in (b"\0", b"\xff"):
            body = good[:place] + byte + good[place + 1 :]
            yield f"byte {byte!r} at {place}", "POST", INFER, body, {}
