"""What an endpoint says that no answer of this model is: the device answers, and in time.

Replies are written by hand, from the protocol's own texts; each table begins with right ones, so
that a case cannot be refused for another reason than its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.wrapper.fallback import Fallback
from edgeserve.wrapper.fallback.remote_model import RemoteModel
from edgeserve.wrapper.fallback.router import FallbackRouter
from edgeserve.wrapper.fallback.transport import RequestFailure, RequestOutcome, Transport

LABELS = ("cat", "dog", "espresso", "zebra", "moon")
MODEL_ID = "a" * 64
DEADLINE_MS = 400.0
#: What a machine that does other things may add to a time; `make hostile` measures on a quiet one.
SLACK_MS = 400.0


class OneReply:
    """The same reply to every request, as long as the request allows; the clock is the wall's."""

    def __init__(self, reply: EndpointReply) -> None:
        self._reply, self._ended = reply, list[tuple[int, RequestOutcome]]()
        self._numbers = itertools.count()
        self.now = time.monotonic

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number = next(self._numbers)
        long = message.longest is not None and len(self._reply.body) > message.longest
        self._ended.append((number, RequestFailure("long", False) if long else self._reply))
        return number

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        return self._ended.pop() if self._ended else None

    def abandon(self, number: int) -> None:
        """Nothing is under way."""


@pytest.fixture
def tagger(make: Any) -> Iterator[Wrapper]:
    with Wrapper(make.workspace(), format="onnx", threads=1) as opened:
        yield opened


def asked(tagger: Wrapper, reply: EndpointReply, x: Any, **fields: Any) -> tuple[Any, float]:
    """The answer under a contract whose endpoint says this, and the milliseconds it took."""
    contract = Fallback("https://a.example", when="always", deadline_ms=DEADLINE_MS, **fields)
    around, manifest = tagger._around, tagger.manifest
    remote = RemoteModel(contract, manifest, around, requests=lambda: OneReply(reply))
    router = FallbackRouter(contract, manifest, around, tagger._on_device, remote=remote)
    began = time.monotonic()
    answer = router.answer(x)
    return answer, 1e3 * (time.monotonic() - began)


def infer(output: Any = None, head: Any = None, **more: Any) -> EndpointReply:
    """A reply of the Open Inference Protocol in JSON."""
    logits = {"name": "logits", "datatype": "FP32", "shape": [1, 5], "data": [5, 1, 2, 3, 4]}
    outputs = [logits | (output or {})]
    body = {"model_name": "m", "outputs": outputs, "parameters": {"model_id": MODEL_ID}} | more
    headers = {} if head is None else {"inference-header-content-length": head}
    return EndpointReply(200, headers, json.dumps(body).encode())


def binary(
    values: Any, shape: Any = (1, 5), datatype: str = "FP32", size: int = 0
) -> EndpointReply:
    """The same with the tensor's bytes behind it."""
    data = np.asarray(values, "<f4").tobytes()
    tensor = {"name": "logits", "datatype": datatype, "shape": list(shape)}
    tensor["parameters"] = {"binary_data_size": len(data) + size}
    head = json.dumps({"model_name": "m", "outputs": [tensor]}).encode()
    return EndpointReply(200, {"inference-header-content-length": str(len(head))}, head + data)


def raw(text: bytes, **headers: str) -> EndpointReply:
    return EndpointReply(200, headers, text)


GOOD_TENSORS = {
    "json": infer(),
    "nested": infer({"data": [[5, 1, 2, 3, 4]]}),
    "bytes": binary([5, 1, 2, 3, 4]),
    "another model": infer(parameters={"model_id": "b" * 64}),
    "no model_id": infer(parameters={}),
    "further outputs": infer(
        outputs=[
            *json.loads(infer().body)["outputs"],
            {"name": "more", "datatype": "FP32", "shape": [2], "data": [1, 2]},
        ]
    ),
}
NAN, INF = float("nan"), float("inf")
BAD_TENSORS = {
    "another name": infer({"name": "x"}),
    "no outputs": infer(outputs=[]),
    "float64": infer({"datatype": "FP64"}),
    "integers": infer({"datatype": "INT64"}),
    "an unknown datatype": infer({"datatype": "BF16"}),
    "no datatype": infer({"datatype": None}),
    "rank 1": infer({"shape": [5]}),
    "rank 3": infer({"shape": [1, 1, 5]}),
    "three classes": infer({"shape": [1, 3], "data": [1, 2, 3]}),
    "nine classes": infer({"shape": [1, 9], "data": [1] * 9}),
    "no samples": infer({"shape": [0, 5], "data": []}),
    "two samples": infer({"shape": [2, 5], "data": [1] * 10}),
    "hundred thousand samples": infer({"shape": [100_000, 5], "data": [1] * 500_000}),
    "a huge shape": infer({"shape": [1 << 62, 5]}),
    "a shape beyond 64 bits": infer({"shape": [10**30, 5]}),
    "a negative shape": infer({"shape": [-1, -5]}),
    "a shape of floats": infer({"shape": [1.5, 5]}),
    "too few numbers": infer({"data": [1]}),
    "too many numbers": infer({"data": [1] * 6}),
    "texts": infer({"data": ["1"] * 5}),
    "null": infer({"data": None}),
    "nulls": infer({"data": [None] * 5}),
    "ragged": infer({"data": [[1, 2], [3, 4, 5]]}),
    "beyond float32": infer({"data": [1e300, 1, 2, 3, 4]}),
    "beyond float64": raw(infer().body.replace(b"[5, 1", b"[1e999, 1")),
    "NaN": raw(infer().body.replace(b"[5, 1", b"[NaN, 1")),
    "NaN in bytes": binary([NAN] * 5),
    "infinity in bytes": binary([INF, 1, 2, 3, 4]),
    "minus infinity in bytes": binary([-INF] * 5),
    "short bytes": binary([1, 2]),
    "long bytes": binary([1] * 9),
    "a lie about the size": binary([5, 1, 2, 3, 4], size=4),
    "data twice": infer({"parameters": {"binary_data_size": 20}}),
    "a size that is a text": infer({"data": None, "parameters": {"binary_data_size": "20"}}),
    "shared memory": infer({"parameters": {"shared_memory_region": "x"}}),
    "a name twice": infer(outputs=json.loads(infer().body)["outputs"] * 2),
    "a thousand outputs": infer(
        outputs=[
            {"name": str(i), "datatype": "FP32", "shape": [1], "data": [1]} for i in range(1000)
        ]
    ),
    "a model_id that is a long text": infer(parameters={"model_id": "A" * 1_000_000}),
    "a model_id that moves the cursor": infer(parameters={"model_id": "\x1b[2J\x1b[31mPWNED\n"}),
    "a model_id that turns the line": infer(parameters={"model_id": "\u202eabc"}),
    "a length of 5,000 digits": infer(head="9" * 5000),
    "a negative length": infer(head="-5"),
    "a length in another script": infer(head="\u00b2"),
    "a length beyond the reply": infer(head="1000000000000"),
    "a length of 0": infer(head="0"),
    "HTML": raw(b"<html>"),
    "nothing": raw(b""),
    "no UTF-8": raw(b'{"outputs": "\xff"}'),
    "a list": raw(b"[]"),
    "deep": raw(b"[" * 100_000),
    "deep parameters": raw(b'{"outputs":[],"parameters":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}"),
    "many lists": raw(b'{"outputs":[],"parameters":{"a":[' + b"[]," * 300_000 + b"[]]}}"),
    "60 MB of lists": raw(b'{"outputs":[],"parameters":{"a":[' + b"[]," * (18 << 20) + b"[]]}}"),
    "a bomb": raw(gzip.compress(bytes(1 << 22)), **{"content-encoding": "gzip"}),
}


def test_right_tensors_are_answers(tagger: Wrapper, make: Any) -> None:
    """So that none of the wrong ones is refused for what these hold too."""
    for name, reply in GOOD_TENSORS.items():
        answer, _ = asked(tagger, reply, make.pixels(3))
        assert (answer.label, answer.ran_on.where) == ("cat", "cloud"), name


def is_of_device(answer: Any, took: float) -> bool:
    note = answer.ran_on.note
    in_time = took <= DEADLINE_MS + SLACK_MS
    return answer.ran_on.where == "device" and in_time and note.isprintable() and len(note) < 400


def test_other_tensors_are_left_to_the_device(tagger: Wrapper, make: Any) -> None:
    """Of a picture, and of named tensors, which nothing decides from afterwards."""
    feed = {"image": make.oracle_tensor(make.pixels(3))}
    logits = feed["image"].reshape(1, -1) @ make.w
    for name, reply in BAD_TENSORS.items():
        answer, took = asked(tagger, reply, make.pixels(3))
        assert is_of_device(answer, took), (name, answer.ran_on, took)
        answer, took = asked(tagger, reply, feed)
        assert is_of_device(answer, took), (name, answer.ran_on, took)
        np.testing.assert_allclose(answer["logits"], logits, rtol=1e-4, atol=1e-4)


RAN_ON = {
    "where": "device",
    "format": "onnx",
    "precision": "fp32",
    "sha256": "",
    "proof": "golden",
    "runtime": {"name": "x", "version": "1", "delegate": "cpu"},
    "model_id": MODEL_ID,
}
CAT: dict[str, Any] = {
    "record": "classification",
    "label": "cat",
    "score": 0.75,
    "index": 0,
    "top": [["cat", 0.75], ["dog", 0.25]],
    "indexes": [0, 1],
}


def decision(answer: Any, model_id: Any = MODEL_ID, **ran_on: Any) -> EndpointReply:
    """A reply of edgeserve's own `predict`."""
    body = {"model_id": model_id, "answer": answer, "ran_on": RAN_ON | ran_on}
    return EndpointReply(200, {}, json.dumps(body).encode())


BAD_DECISIONS = {
    "an embedding": decision({"record": "embedding", "vector": [1, 2, 3]}),
    "boxes": decision({"record": "detection", "boxes": [], "scores": [], "labels": []}),
    "a text": decision({"record": "text", "tokens": [], "text": "x"}),
    "a map": decision({"record": "depth", "map": [[1]]}),
    "an unknown record": decision({"record": "tea"}),
    "an unknown field": decision(CAT | {"more": 1}),
    "markup as a label": decision(CAT | {"label": "<script>", "top": [["<script>", 0.75]]}),
    "a label that moves the cursor": decision(
        CAT | {"label": "\x1b[2Jx", "top": [["\x1b[2Jx", 0.75]]}
    ),
    "a label of another model in top": decision(CAT | {"top": [["cat", 0.75], ["tea", 0.25]]}),
    "a label that top does not have": decision(CAT | {"label": "dog", "index": 1}),
    "a large index": decision(CAT | {"index": 10**9, "indexes": [10**9, 1]}),
    "index -1": decision(CAT | {"index": -1, "indexes": []}),
    "an index of another label": decision(CAT | {"index": 2, "indexes": [2, 1]}),
    "an index twice": decision(CAT | {"indexes": [0, 0], "top": [["cat", 0.75], ["cat", 0.25]]}),
    "a score of 7": decision(CAT | {"score": 7.0, "top": [["cat", 7.0]], "indexes": []}),
    "a score below 0": decision(CAT | {"top": [["cat", 0.75], ["dog", -0.5]]}),
    "a score that is NaN": decision(CAT | {"score": "nan"}),
    "a score beyond float64": raw(decision(CAT).body.replace(b"0.75", b"1e999")),
    "a score that top does not have": decision(CAT | {"score": 0.5}),
    "an empty top": decision(CAT | {"top": [], "indexes": []}),
    "a top out of order": decision(
        CAT | {"top": [["cat", 0.75], ["dog", 0.1], ["moon", 0.2]], "indexes": []}
    ),
    "a top of six classes": decision(
        CAT | {"top": [["cat", 0.75], *[["dog", 0.1]] * 5], "indexes": []}
    ),
    "tensors": decision({"logits": [5, 1, 2, 3, 4]}),
    "objects": decision({"a": {"b": 1}}),
    "ragged lists": decision({"a": [[1], [1, 2]]}),
    "large integers": decision({"a": [10**30]}),
    "texts": decision({"a": ["x"]}),
    "a list": decision([1]),
    "null": decision(None),
    "a number": decision(7),
    "a long note": decision(CAT, note="n" * 100_000),
    "a note that colours": decision(CAT, note="\x1b[31mred"),
    "a note of two lines": decision(CAT, note="one\ntwo"),
    "a runtime that moves the cursor": decision(
        CAT, runtime={"name": "\x1b[2J", "version": "", "delegate": ""}
    ),
    "a long format": decision(CAT, format="f" * 1000),
    "no model_id": EndpointReply(200, {}, json.dumps({"answer": CAT, "ran_on": RAN_ON}).encode()),
    "a model_id that is a number": decision(CAT, 5),
    "a long model_id": decision(CAT, "f" * 10_000),
    "no place it ran on": EndpointReply(
        200, {}, json.dumps({"model_id": MODEL_ID, "answer": CAT}).encode()
    ),
    "ran_on of another kind": decision(CAT, took_ms="soon"),
    "deep": raw(b'{"model_id":"x","answer":' + b"[" * 10_000 + b"]" * 10_000 + b',"ran_on":{}}'),
    "two kinds": raw(decision(CAT).body.replace(b'"record"', b'"record": "embedding", "record"')),
    "many lists": raw(b'{"model_id":"x","answer":{"a":[' + b"[]," * 300_000 + b"[]]}}"),
    "many numbers": decision({"a": [0] * 500_000}),
}


def test_a_right_decision_is_an_answer(tagger: Wrapper, make: Any) -> None:
    shorter = {"top": [["cat", 0.75]], "indexes": []}
    for answer in (CAT, CAT | shorter):
        got, _ = asked(tagger, decision(answer), make.png(make.pixels(3)), send="raw")
        assert (got.label, got.score, got.ran_on.where) == ("cat", 0.75, "cloud"), got.ran_on.note


def test_other_decisions_are_left_to_the_device(tagger: Wrapper, make: Any) -> None:
    photo = make.png(make.pixels(3))
    for name, reply in BAD_DECISIONS.items():
        answer, took = asked(tagger, reply, photo, send="raw")
        assert is_of_device(answer, took), (name, answer.ran_on, took)
        assert make.agrees(answer, make.pixels(3)), name


def test_endpoints_that_break_http_cost_no_answer(strangers: Any) -> None:
    """Some of those of `make hostile`, over real sockets."""
    names = ("silent", "closed at once", "drip of the head", "endless header", "endless chunks")
    names += ("24 MB of lists", "a bomb", "two lengths", "TLS", "status b'abc'")
    found = strangers.behaviours()
    assert strangers.asked(strangers.say(strangers.good()), 2000)[0] == "cloud"
    for name in names:
        where, took, note = strangers.asked(found[name], 200)
        assert (where, note.isprintable()) == ("device", True), (name, note)
        assert took <= 200 + SLACK_MS, name


def test_a_server_without_tls_is_called_one(strangers: Any) -> None:
    """And not one of a certificate that nobody trusts."""
    with strangers.endpoint(strangers.say(b"HTTP/1.1 400 X\r\n\r\n"), listens=False) as url:
        address = url.replace("http://", "https://")
        transport = Transport(Fallback(address))
        requests = transport.requests()
        requests.start(address, EndpointRequest("/v2"), time.monotonic() + 5)
        ended = requests.next(time.monotonic() + 5)
        transport.close()
    assert ended is not None
    assert isinstance(ended[1], RequestFailure)
    assert "no TLS" in ended[1].reason
