"""TensorFlow Serving, TorchServe and MLflow behind the contract.

The servers here speak the documented formats over real sockets, and refuse what is not in them;
they compute with numpy, on the numbers that arrived.
"""

from __future__ import annotations

import base64
import http.server
import json
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgeserve import Wrapper
from edgeserve.errors import FallbackError
from edgeserve.oip.client import EndpointReply
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper.fallback import Fallback
from edgeserve.wrapper.fallback.protocols import protocol_of
from edgeserve.wrapper.fallback.replies import BadReply

PROTOCOLS = ("tfserving", "torchserve", "mlflow")
TWO = Signature(
    inputs=(
        TensorSpec(name="a", dtype="float32", shape=("n", 2)),
        TensorSpec(name="b", dtype="int64", shape=("n",)),
    ),
    outputs=(
        TensorSpec(name="p", dtype="float32", shape=("n", 2)),
        TensorSpec(name="q", dtype="int64", shape=("n",)),
    ),
    dims={"n": (1, 4)},
)


class Handler(http.server.BaseHTTPRequestHandler):
    """One kind of server; ``server.make`` holds the model."""

    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        try:
            answer = getattr(self, self.server.kind)(body)
        except (AssertionError, KeyError, ValueError) as error:
            return self._send(400, json.dumps({"error": str(error)}))
        return self._send(200, json.dumps(answer))

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _logits(self, rows: Any) -> Any:
        x = np.array(rows, np.float32)
        return (x.reshape(len(x), -1) @ self.server.make.w).tolist()

    def tfserving(self, body: bytes) -> Any:
        """Columns in; of one output the bare value out."""
        assert self.path == "/v1/models/tagger:predict"
        said = json.loads(body)
        assert said.keys() <= {"signature_name", "inputs"}
        return {"outputs": self._logits(said["inputs"]["image"])}

    def torchserve(self, body: bytes) -> Any:
        """Rows with the json envelope; else a picture for the classifier's handler."""
        assert self.path == "/predictions/tagger"
        if self.headers["Content-Type"] == "application/json":
            return {"predictions": self._logits(json.loads(body)["instances"])}
        import io

        picture = np.asarray(Image.open(io.BytesIO(body)).convert("RGB"))
        scores = self.server.make.oracle_scores(picture)
        best = np.argsort(-scores)[:3]
        return {self.server.make.labels[i]: float(scores[i]) for i in best}

    def mlflow(self, body: bytes) -> Any:
        """Exactly one of the documented keys; a model of onnx answers by name."""
        assert self.path == "/invocations"
        said = json.loads(body)
        assert len(said.keys() & {"inputs", "instances", "dataframe_split"}) == 1
        return {"predictions": {"logits": self._logits(said["inputs"]["image"])}}


@pytest.fixture
def server(make: Any) -> Iterator[Callable[[str], Any]]:
    """``server(kind)``: a server with ``url`` and the ``requests`` it got."""
    made: list[http.server.HTTPServer] = []

    def start(kind: str) -> Any:
        one: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        one.kind, one.make, one.requests = kind, make, []
        one.url = f"http://127.0.0.1:{one.server_address[1]}"
        threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
        made.append(one)
        return one

    yield start
    for one in made:
        one.shutdown()
        one.server_close()


def contract(url: str, protocol: Any, **fields: Any) -> Fallback:
    return Fallback(url, when="always", protocol=protocol, deadline_ms=20_000, **fields)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_photo_is_decided_from_their_answer(
    server: Callable[[str], Any], make: Any, protocol: str
) -> None:
    one = server(protocol)
    with Wrapper(make.workspace(), fallback=contract(one.url, protocol)) as tagger:
        answer = tagger.predict(make.pixels(3))
        assert make.agrees(answer, make.pixels(3))
        assert answer.ran_on.where == "cloud", answer.ran_on.note
        assert "does not say which model" in answer.ran_on.note
        assert answer.ran_on.sent_bytes == len(one.requests[0][2])
        feed = {"image": np.concatenate([make.oracle_tensor(make.pixels(i)) for i in (1, 2)])}
        named = tagger.predict(feed)
        np.testing.assert_allclose(
            named["logits"], feed["image"].reshape(2, -1) @ make.w, rtol=1e-4, atol=1e-4
        )
        assert (named["logits"].dtype, named.ran_on.where) == (np.float32, "cloud")


def test_a_classifiers_handler_takes_the_photo_itself(
    server: Callable[[str], Any], make: Any
) -> None:
    one = server("torchserve")
    raw = contract(one.url, "torchserve", send="raw")
    with Wrapper(make.workspace(), fallback=raw) as tagger:
        answer = tagger.predict(make.png(make.pixels(3)))
        assert answer.ran_on.where == "cloud", answer.ran_on.note
        assert make.agrees(answer, make.pixels(3))
    assert one.requests[0][2] == make.png(make.pixels(3))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_model_there_is_left_to_the_device(
    server: Callable[[str], Any], make: Any, protocol: str
) -> None:
    one = server(protocol)
    there = contract(one.url + "/other", protocol)
    with Wrapper(make.workspace(), fallback=there) as tagger:
        answer = tagger.predict(make.pixels(3))
        assert (answer.ran_on.where, make.agrees(answer, make.pixels(3))) == ("device", True)
        assert "400" in answer.ran_on.note


def reply(whole: Any) -> EndpointReply:
    return EndpointReply(200, {}, whole if isinstance(whole, bytes) else json.dumps(whole).encode())


@pytest.mark.parametrize(
    ("protocol", "request_", "answer"),
    [
        (
            "tfserving",
            {"inputs": {"a": [[1.5, 2.0], [3.0, 4.0]], "b": [7, 8]}},
            {"outputs": {"p": [[1.5, 2.5], [0.5, 1.0]], "q": [3, 4], "also": 1}},
        ),
        (
            "torchserve",
            {"instances": [{"a": [1.5, 2.0], "b": 7}, {"a": [3.0, 4.0], "b": 8}]},
            {"predictions": [{"p": [1.5, 2.5], "q": 3}, {"p": [0.5, 1.0], "q": 4}]},
        ),
        (
            "mlflow",
            {"inputs": {"a": [[1.5, 2.0], [3.0, 4.0]], "b": [7, 8]}},
            {"predictions": {"p": [[1.5, 2.5], [0.5, 1.0]], "q": [3, 4]}},
        ),
    ],
)
def test_several_inputs_and_outputs(protocol: str, request_: Any, answer: Any) -> None:
    way = protocol_of(protocol, True)
    feed = {"a": np.float32([[1.5, 2], [3, 4]]), "b": np.int64([7, 8])}
    assert json.loads(way.tensors("m", feed).body) == request_
    found = way.read(reply(answer), TWO).value
    np.testing.assert_array_equal(found["p"], np.float32([[1.5, 2.5], [0.5, 1]]))
    assert (found["q"].tolist(), str(found["q"].dtype)) == ([3, 4], "int64")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        {"error": "no"},
        {"outputs": 1, "predictions": 1},
        {"outputs": [], "predictions": []},
        {"outputs": {"p": [[1, 2]]}, "predictions": {"p": [[1, 2]]}},
        {"outputs": {"p": [[1], [1, 2]], "q": [1]}, "predictions": [{"p": [1]}, {"q": 2}]},
        {"outputs": {"p": [[1, 2, 3]], "q": [1]}, "predictions": [{"p": [1, 2, 3], "q": 1}]},
        {"outputs": {"p": [[1, 2]], "q": [1.5]}, "predictions": {"p": [[1, 2]], "q": [1.5]}},
        {"outputs": {"p": [["1", "2"]], "q": [1]}, "predictions": [{"p": ["1", "2"], "q": 1}]},
    ],
)
def test_what_is_no_answer(protocol: str, body: Any) -> None:
    with pytest.raises(BadReply):
        protocol_of(protocol, True).read(reply(body), TWO)


def test_numbers_that_json_has_no_word_for_arrive_in_tensorflows_way() -> None:
    message = protocol_of("tfserving", True).tensors("m", {"a": np.float32([math.nan, math.inf])})
    assert message.body == b'{"inputs": {"a": [NaN, Infinity]}}'
    text = np.empty(1, object)
    text[0] = b"\xffhi"
    sent = json.loads(protocol_of("tfserving", True).tensors("m", {"a": text}).body)
    assert base64.b64decode(sent["inputs"]["a"][0]["b64"]) == b"\xffhi"


@pytest.mark.parametrize(
    "body", [b"[]", {}, {"cat": "much"}, {"cat": 0.5, "dog": [1]}, b"<html>", {"cat": None}]
)
def test_a_handlers_answer_that_decides_nothing(make: Any, body: Any) -> None:
    way = protocol_of("torchserve", True)
    assert way.decision
    with Wrapper(make.workspace()) as tagger, pytest.raises(BadReply):
        way.decision(reply(body), tagger.manifest)


def test_rows_need_samples() -> None:
    suits = protocol_of("torchserve", True).suits
    assert suits(TWO)
    scalar = TensorSpec(name="c", dtype="float32", shape=())
    apart = TensorSpec(name="c", dtype="float32", shape=(3, 2))
    for odd in (scalar, apart):
        assert not suits(Signature(inputs=(*TWO.inputs, odd), outputs=TWO.outputs, dims=TWO.dims))


@pytest.mark.parametrize("protocol", ["tfserving", "mlflow"])
def test_raw_inputs_are_refused_where_nobody_takes_them(protocol: Any) -> None:
    with pytest.raises(FallbackError) as error:
        Fallback("https://a.example", protocol=protocol, send="raw")
    assert error.value.code == "EDGE-FALLBACK-001"
    with pytest.raises(FallbackError):
        Fallback("https://a.example", protocol="triton")  # type: ignore[arg-type]
