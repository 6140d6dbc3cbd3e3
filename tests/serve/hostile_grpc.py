"""Hostile gRPC messages, made by hand: a case is what it is, the call, its message's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgeserve.serve.grpc_messages import messages

__all__ = ["GrpcCase", "grpc_cases"]

GrpcCase = tuple[str, str, bytes]
BIG = (1 << 63) - 1


def grpc_cases() -> list[GrpcCase]:
    """All of them: each is to be refused."""
    made = [*_wires(), *_tensors(), *_contents(), *_whole(), *_names()]
    names = [case[0] for case in made]
    assert len(set(names)) == len(names), "a case is named twice"
    return made


def _varint(number: int) -> bytes:
    said = b""
    while number > 127:
        said, number = said + bytes([number & 127 | 128]), number >> 7
    return said + bytes([number])


def _field(number: int, data: bytes, length: int | None = None) -> bytes:
    """A length-delimited field, its length a lie where one is given."""
    return _varint(number << 3 | 2) + _varint(len(data) if length is None else length) + data


def _wires() -> Iterator[GrpcCase]:
    """Bytes that are no message at all, or one that lies about lengths."""
    good = _infer()
    nested = b""
    for _ in range(200):  # inputs in contents in inputs: deeper than the library goes
        nested = _field(5, nested)
    wires = {
        "nothing": b"",
        "text": b"hello, is it me you are looking for",
        "json": b'{"model_name":"tagger"}',
        "ones": b"\xff" * 1000,
        "zeros": b"\0" * 1000,
        "cut in half": good[: len(good) // 2],
        "cut by one": good[:-1],
        "a byte too many": good + b"\x0a",
        "a length of 4 GB": _field(1, b"tagger", 1 << 32),
        "a length of 2^63": _field(1, b"tagger", BIG),
        "a length beyond 64 bits": b"\x0a" + b"\xff" * 10 + b"\x01",
        "a varint without end": b"\x0a" + b"\xff" * 100,
        "a name that is a number": b"\x08\x07",
        "inputs that are a number": _field(1, b"tagger") + b"\x28\x07",
        "a group without end": b"\x0b" * 20_000,
        "a group's end alone": b"\x0c",
        "field zero": b"\x00\x01",
        "wire type 7": b"\x0f",
        "a name of bad utf-8": _field(1, b"\xc3\x28"),
        "an input's name of bad utf-8": _field(1, b"tagger") + _field(5, _field(1, b"\xff\xfe")),
        "an id of bad utf-8": _field(1, b"tagger") + _field(3, b"\xed\xa0\x80"),
        "nested fields": _field(1, b"tagger") + nested,
        "an http request": b"GET / HTTP/1.1\r\n\r\n",
        "a pickle": b"\x80\x04\x95cos\nsystem\n",
    }
    for name, data in wires.items():
        yield f"wire {name}", "ModelInfer", data


def _infer(raw: list[bytes] | None = None, model: str = "tagger", **tensor: Any) -> bytes:
    """A ModelInferRequest, right but for what is given."""
    fields: dict[str, Any] = {"name": "image", "datatype": "FP32", "shape": [1, 3, 8, 8]} | tensor
    said = messages()["ModelInferRequest"](model_name=model)
    said.inputs.add(**fields)
    said.raw_input_contents.extend([b"\0" * 768] if raw is None else raw)
    return bytes(said.SerializeToString())


def _tensors() -> Iterator[GrpcCase]:
    shapes: list[list[int]] = [
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
        [BIG] * 4,
        [1 << 32, 1 << 32, 0, 0],
        [65536] * 4,
        [192],
        [-(1 << 63), 3, 8, 8],
        [1] * 100_000,
        [1 << 31, 1 << 31, 1, 1],
    ]
    for i, shape in enumerate(shapes):
        yield f"shape {i} {str(shape)[:30]}", "ModelInfer", _infer(shape=shape)
    kinds = ("fp32", "FP64", "INT8", "BOOL", "BYTES", "BF16", "", "../FP32", "FP32\0", "x" * 9999)
    for kind in kinds:
        yield f"datatype {kind[:20]!r}", "ModelInfer", _infer(datatype=kind)
    for length in (0, 1, 767, 769, 100_000):
        yield f"{length} raw bytes", "ModelInfer", _infer([b"\0" * length])
    yield "two raw contents", "ModelInfer", _infer([b"\0" * 768] * 2)
    yield "a thousand raw contents", "ModelInfer", _infer([b""] * 1000)
    lies = (b"\1\0", b"\xff\xff\xff\xff", b"\2\0\0\0a", b"\1\0\0\0ab", b"\0\0\0")
    for lie in lies:
        data = _infer([lie], name="raw", datatype="BYTES", shape=[1])
        yield f"raw element {lie!r}", "ModelInfer", data
    shared = {"shared_memory_region": {"string_param": "x"}}
    yield "shared memory", "ModelInfer", _infer(parameters=shared)


def _contents() -> Iterator[GrpcCase]:
    """Typed numbers, where raw bytes are usual."""
    for name, contents in {
        "none": {},
        "too few": {"fp32_contents": [0.0] * 191},
        "too many": {"fp32_contents": [0.0] * 193},
        "much too many": {"fp32_contents": [0.0] * 100_000},
        "of another kind": {"int_contents": [0] * 192},
        "texts": {"bytes_contents": [b"0"] * 192},
    }.items():
        yield f"contents {name}", "ModelInfer", _infer([], contents=contents)
    high = _infer([], datatype="INT8", contents={"int_contents": [1 << 20] * 192})
    yield "a number that INT8 cannot hold", "ModelInfer", high
    half = _infer([], datatype="FP16", contents={"fp32_contents": [0.0] * 192})
    yield "FP16 without raw bytes", "ModelInfer", half
    both = _infer(contents={"fp32_contents": [0.0] * 191}, shape=[1, 3, 8, 7])
    yield "contents and raw bytes of another shape", "ModelInfer", both


def _whole() -> Iterator[GrpcCase]:
    """Requests of several parts."""
    kind = messages()["ModelInferRequest"]

    def of(**fields: Any) -> bytes:
        said = kind.FromString(_infer())
        said.MergeFrom(kind(**fields))
        return bytes(said.SerializeToString())

    one = {"name": "image", "datatype": "FP32", "shape": [1, 3, 8, 8]}
    no_inputs = kind(model_name="tagger", raw_input_contents=[b"\0" * 768])
    yield "no inputs", "ModelInfer", no_inputs.SerializeToString()
    yield "the same input twice", "ModelInfer", of(inputs=[one], raw_input_contents=[b"\0" * 768])
    yield "another input", "ModelInfer", of(inputs=[one | {"name": "x"}])
    many = [{"name": str(i), "datatype": "FP32", "shape": [1]} for i in range(10_000)]
    yield "ten thousand inputs", "ModelInfer", of(inputs=many)
    yield "an unknown output", "ModelInfer", of(outputs=[{"name": "../x"}])
    yield "an output without a name", "ModelInfer", of(outputs=[{}])
    repeated = [{"name": "logits"}] * 100_000
    yield "an output a hundred thousand times", "ModelInfer", of(outputs=repeated)
    sequence = {"sequence_id": {"int64_param": 7}}
    yield "a sequence", "ModelInfer", of(parameters=sequence)
    for call in ("RepositoryModelLoad", "RepositoryModelUnload"):
        for name in ("", "x", "..", "../../etc/passwd", "\0"):
            said = messages()[f"{call}Request"](model_name=name)
            yield f"{call} {name!r}", call, said.SerializeToString()
    load = messages()["RepositoryModelLoadRequest"]
    for key in ("config", "file:1/model.onnx"):
        said = load(model_name="tagger", parameters={key: {"string_param": "{}"}})
        yield f"load with {key}", "RepositoryModelLoad", said.SerializeToString()


def _names() -> Iterator[GrpcCase]:
    tricks = (
        "",
        "TAGGER",
        "tagger ",
        "../tagger",
        "tagger\0",
        "/etc/passwd",
        "a" * 100_000,
        "\uff54agger",
    )
    for name in tricks:
        yield f"model {name[:20]!r}", "ModelInfer", _infer(model=name)
        said = messages()["ModelMetadataRequest"](name=name)
        yield f"metadata of {name[:20]!r}", "ModelMetadata", said.SerializeToString()
    for version in ("0", "-1", "1.0", "latest", "../1", "9" * 1000):
        said = messages()["ModelMetadataRequest"](name="tagger", version=version)
        yield f"version {version[:20]!r}", "ModelMetadata", said.SerializeToString()
