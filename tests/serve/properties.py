"""Requests that nobody would think of, by hypothesis: the test suite tries some, the sweep many.

Each strategy gives requests as ``hostile.py`` has them without their title: method, path, body,
headers; or for gRPC the call and the bytes of its message.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgeserve import oip
from edgeserve.serve.grpc_messages import messages

__all__ = ["GRPC", "REST"]

INFER, PREDICT = b"/v2/models/tagger/infer", b"/v2/models/tagger/predict"
GOOD = {"name": "image", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": [0] * 192}
KINDS = ["FP32", "FP64", "FP16", "BF16", "INT8", "INT64", "UINT8", "UINT64", "BOOL", "BYTES", "x"]

SIZES = st.one_of(
    st.integers(-2, 9), st.integers(-(1 << 66), 1 << 66), st.sampled_from([1 << 31, 1 << 32, 65536])
)
ANY = st.recursive(
    st.none() | st.booleans() | SIZES | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        [
            "binary_data_size",
            "binary_data",
            "binary_data_output",
            "shared_memory_region",
            "sequence_id",
            "classification",
            "x",
        ]
    ),
    ANY,
    max_size=2,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["image", "raw", "Image", ""]) | ANY,
    "shape": st.lists(SIZES, max_size=9) | st.sampled_from([[1, 3, 8, 8], [2, 3, 8, 8]]) | ANY,
    "datatype": st.sampled_from(KINDS) | ANY,
    "data": st.lists(st.floats() | SIZES, max_size=20) | ANY,
    "parameters": PARAMETERS | ANY,
}
HEADS = {name: FIELDS[name] for name in ("shape", "datatype", "name")}
#: A good tensor of which at most two fields are changed: with more, hardly one is ever answered.
TENSOR = (
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=2, unique=True)
    .flatmap(lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names}))
    .map(lambda changed: GOOD | changed)
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "id": ANY,
        "parameters": PARAMETERS | ANY,
        "outputs": st.lists(
            st.fixed_dictionaries(
                {}, optional={"name": st.sampled_from(["logits", "x"]) | ANY, "parameters": ANY}
            ),
            max_size=3,
        )
        | ANY,
        "x": ANY,
        "inputs": ANY,
    },
)


def _printable(most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=most)


Rest = tuple[str, bytes, bytes, dict[str, str]]


@st.composite
def structures(draw: st.DrawFn) -> Rest:
    """JSON that is nearly right."""
    tensors = draw(st.lists(TENSOR, min_size=1, max_size=2) | TENSOR.map(lambda one: [one]))
    more = draw(st.just({}) | MORE)
    body = json.dumps({"inputs": tensors} | more).encode("utf-8", "surrogatepass")
    return "POST", INFER, body, {}


@st.composite
def any_bytes(draw: st.DrawFn) -> Rest:
    """A body of anything, packed, or said to be."""
    body = draw(st.binary(max_size=400))
    encoding = draw(st.sampled_from(["", "gzip", "deflate", "br"]))
    if draw(st.booleans()):
        body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)(body)
    headers = {"content-encoding": encoding} if encoding else {}
    if draw(st.booleans()):
        headers["inference-header-content-length"] = draw(
            st.from_regex(r"[ -~]{0,12}", fullmatch=True)
        )
    return "POST", draw(st.sampled_from([INFER, PREDICT])), body, headers


def _whole(binary: bool) -> tuple[bytes, int | None]:
    x = np.linspace(0, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    return oip.write_request([oip.Tensor("image", x)], binary=binary)


@st.composite
def changed(draw: st.DrawFn) -> Rest:
    """A good request with bytes changed, put in, taken out; its lengths as they were, or lies."""
    body, head = _whole(draw(st.booleans()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        noise = draw(st.binary(max_size=8))
        body = body[:at] + noise + body[at + draw(st.sampled_from([0, 1, len(noise), 1000])) :]
    if head is not None:
        head = draw(st.sampled_from([head, head - 1, head + 1]) | st.integers(0, 2000))
    headers = {} if head is None else {"inference-header-content-length": str(head)}
    return "POST", INFER, body, headers


@st.composite
def binaries(draw: st.DrawFn) -> Rest:
    """The binary extension: shapes, sizes and blobs that nearly fit each other."""
    heads, blobs = [], b""
    for _ in range(draw(st.integers(1, 2))):
        blob = draw(st.binary(max_size=64) | st.sampled_from([b"\0" * 768, b"\xff" * 768]))
        size = draw(st.just(len(blob)) | SIZES | ANY)
        fields = draw(
            st.fixed_dictionaries(
                {}, optional={k: FIELDS[k] for k in ("shape", "datatype", "name")}
            )
        )
        plain = {k: v for k, v in GOOD.items() if k != "data"}
        heads.append(plain | fields | {"parameters": {"binary_data_size": size}})
        blobs += blob
    text = json.dumps({"inputs": heads}).encode("utf-8", "surrogatepass")
    said = draw(st.just(len(text)) | st.integers(0, 3000))
    return "POST", INFER, text + blobs, {"inference-header-content-length": str(said)}


@st.composite
def paths(draw: st.DrawFn) -> Rest:
    """Any path and method, with headers of any value."""
    words = st.sampled_from(
        ["v2", "models", "tagger", "infer", "predict", "ready", "stats", "..", ""]
    )
    path = "/" + "/".join(draw(st.lists(words | st.text(max_size=9), max_size=6)))
    names = [
        "x-request-deadline-ms",
        "x-request-id",
        "authorization",
        "accept-encoding",
        "x-api-key",
    ]
    value = st.from_regex(r"[ -~]{0,20}", fullmatch=True)
    headers = draw(st.dictionaries(st.sampled_from(names), value, max_size=3))
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]))
    return method, path.encode("utf-8", "replace"), draw(st.binary(max_size=20)), headers


REST: st.SearchStrategy[Rest] = st.one_of(structures(), any_bytes(), changed(), binaries(), paths())

CALLS = [
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "ModelStatistics",
    "RepositoryIndex",
    "ServerLive",
]
#: Numbers that a field of the message can hold at all.
HELD = st.one_of(st.integers(-2, 9), st.integers(-(1 << 63), (1 << 63) - 1))
FLOATS = st.lists(st.floats(width=32), max_size=20)


@st.composite
def grpc_tensors(draw: st.DrawFn) -> tuple[str, bytes]:
    """An inference message that is nearly right, perhaps with bytes changed."""
    said = messages()["ModelInferRequest"](
        model_name=draw(st.just("tagger") | st.text(max_size=6).filter(_is_text))
    )
    for _ in range(draw(st.integers(0, 2))):
        tensor = said.inputs.add(
            name=draw(st.sampled_from(["image", "raw", "x"])),
            datatype=draw(st.sampled_from(KINDS)),
            shape=draw(st.just([1, 3, 8, 8]) | st.lists(HELD, max_size=9)),
        )
        if draw(st.booleans()):
            tensor.contents.fp32_contents.extend(draw(FLOATS))
        if draw(st.booleans()):
            tensor.contents.bytes_contents.extend(draw(st.lists(st.binary(max_size=5), max_size=3)))
    blobs = st.sampled_from([b"\0" * 768, b"\xff" * 768]) | st.binary(max_size=64)
    said.raw_input_contents.extend(draw(st.lists(blobs, max_size=3)))
    if draw(st.booleans()):
        said.outputs.add(name=draw(st.sampled_from(["logits", "x"])))
    return "ModelInfer", _noisy(draw, said.SerializeToString())


def _is_text(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _noisy(draw: st.DrawFn, data: bytes) -> bytes:
    if draw(st.integers(0, 2)):
        return data
    at, noise = draw(st.integers(0, len(data))), draw(st.binary(min_size=1, max_size=6))
    return data[:at] + noise + data[at + draw(st.sampled_from([0, 1, len(noise)])) :]


GRPC: st.SearchStrategy[tuple[str, bytes]] = st.one_of(
    grpc_tensors(), st.tuples(st.sampled_from(CALLS), st.binary(max_size=200))
)
