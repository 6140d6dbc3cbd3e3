"""The client against servers written by hand: nothing of edgeserve's codec is in them."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from edgeserve import oip
from edgeserve.oip import client
from edgeserve.oip.client import ClientError, EndpointReply, EndpointRequest, HttpClient
from edgeserve.tasks.classification import Classification
from edgeserve.types.tensors import Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 2)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 2)),),
)


@pytest.fixture
def server() -> Iterator[Callable[[bytes, float], str]]:
    """``server(reply, pause)``: the URL of a server that sends these bytes, one a pause if any."""
    listening = socket.create_server(("127.0.0.1", 0))
    replies: list[tuple[bytes, float]] = []

    def answer() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with closing(connection):
                connection.recv(65536)
                reply, pause = replies[-1]
                pieces = [reply] if not pause else [reply[i : i + 1] for i in range(len(reply))]
                for piece in pieces:
                    try:
                        connection.sendall(piece)
                    except OSError:
                        break
                    time.sleep(pause)

    threading.Thread(target=answer, daemon=True).start()

    def start(reply: bytes, pause: float = 0.0) -> str:
        replies.append((reply, pause))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    listening.close()


def http(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines])
    return f"{head}\r\n\r\n".encode() + body


def send(url: str, seconds: float = 5.0, max_body: int = 1000, **sent: Any) -> EndpointReply:
    with closing(HttpClient({}, max_body)) as http_client:
        return http_client.send(
            "POST", url, EndpointRequest("/p", {}, b"ask"), time.monotonic() + seconds, **sent
        )


def test_a_reply_has_status_headers_and_body(server: Any) -> None:
    reply = send(server(http(b"no", "X-Odd: 1", status="418 Teapot")))
    assert (reply.status, reply.body, reply.headers["x-odd"]) == (418, b"no", "1")


@pytest.mark.parametrize(
    ("reply", "pause", "kind"),
    [
        (http(b"x" * 1001), 0.0, "size"),
        (http(b"x", "content-encoding: gzip"), 0.0, "encoding"),
        (http(b"x" * 100), 0.02, "timeout"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", 0.0, "interrupted"),
        (b"garbage\r\n\r\n", 0.0, "interrupted"),
    ],
)
def test_a_reply_that_cannot_be_used(server: Any, reply: bytes, pause: float, kind: str) -> None:
    with pytest.raises(ClientError) as caught:
        send(server(reply, pause), seconds=0.6)
    assert caught.value.kind == kind


def test_redirects_are_not_followed(server: Any) -> None:
    there = server(http(b"", "location: http://127.0.0.1:9/", status="307 Elsewhere"))
    assert send(there).status == 307


def test_a_cancelled_request_is_read_no_further(server: Any) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ClientError) as caught:
        send(server(http(b"x" * 10)), cancelled=cancelled)
    assert caught.value.kind == "timeout"


def test_nobody_listens() -> None:
    with pytest.raises(ClientError) as caught:
        send("http://127.0.0.1:9")
    assert caught.value.kind == "connection"


@pytest.mark.parametrize("key", ["a\n", "\u00e9", "a\x7f"])
def test_a_key_that_no_header_holds(key: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        client.bearer_header(key)


def test_a_key_is_a_bearer_token() -> None:
    assert client.bearer_header("secret") == {"authorization": "Bearer secret"}
    assert client.bearer_header("") == {}


def test_tensors_in_bytes_and_in_json() -> None:
    tensor = oip.Tensor("x", np.array([[1.5, -2.0]], np.float32))
    request = client.infer_request("/v2/models/m", [tensor], binary=True)
    head = int(request.headers["inference-header-content-length"])
    assert request.path == "/v2/models/m/infer"
    assert request.headers["content-type"] == "application/octet-stream"
    assert struct.unpack("<2f", request.body[head:]) == (1.5, -2.0)
    request = client.infer_request("/v2/models/m", [tensor], binary=False)
    [given] = json.loads(request.body)["inputs"]
    assert (given["datatype"], given["shape"], given["data"]) == ("FP32", [1, 2], [1.5, -2.0])
    assert "inference-header-content-length" not in request.headers


def response(**output: Any) -> EndpointReply:
    whole = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [3.0, 4.0]} | output
    return EndpointReply(200, {}, json.dumps({"model_name": "m", "outputs": [whole]}).encode())


def test_outputs_by_the_signature() -> None:
    found = client.named_outputs(client.read_infer_reply(response()), SIGNATURE)
    np.testing.assert_array_equal(found["y"], np.float32([[3, 4]]))
    wide = client.read_infer_reply(response(datatype="FP64"))
    assert client.named_outputs(wide, SIGNATURE, convert=True)["y"].dtype == np.float32
    for odd, convert in (
        (response(name="z"), True),
        (response(datatype="FP64"), False),
        (response(datatype="INT64", data=[3, 4]), True),
        (response(shape=[2]), True),
    ):
        with pytest.raises(client.OutputMismatch, match="'y'"):
            client.named_outputs(client.read_infer_reply(odd), SIGNATURE, convert=convert)


@pytest.mark.parametrize("length", ["x", "-1", "\u00b2", "9999"])
def test_a_header_that_lies_about_the_length(length: str) -> None:
    reply = response()
    headers = {"inference-header-content-length": length}
    with pytest.raises(oip.BadMessage):
        client.read_infer_reply(EndpointReply(200, headers, reply.body))


def test_decisions() -> None:
    record = {"record": "classification", "label": "cat", "score": 0.5, "top": [["cat", 0.5]]}
    body = json.dumps({"model_id": "m", "answer": record}).encode()
    answer = client.read_predict_reply(EndpointReply(200, {}, body))
    assert (answer.model_id, answer.ran_on) == ("m", None)
    assert isinstance(answer.decision, Classification)
    assert (answer.decision.label, answer.decision.top) == ("cat", (("cat", 0.5),))
    named = client.decode_decision(b'{"y": [[1, 2]]}')
    assert isinstance(named, dict)
    assert named["y"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b'{"model_id": "m"}', b'{"model_id": "m", "answer": 7}']
)
def test_no_decision(body: bytes) -> None:
    with pytest.raises(oip.BadMessage):
        client.read_predict_reply(EndpointReply(200, {}, body))
