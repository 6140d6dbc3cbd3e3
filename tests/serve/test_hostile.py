"""Hostile requests: each is answered with a coded error, tells nothing, harms nobody after it."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.modules import load

from edgeserve import oip


def _load(name: str) -> Any:
    return load(Path(__file__).with_name(f"{name}.py"), name)


hostile, tensors, properties = map(_load, ("hostile", "hostile_tensors", "properties"))
CASES = [*hostile.cases(), *tensors.tensor_cases()]

#: Of each property; `python -m dev.benchmarks.hostile` asks a whole endpoint 60,000 of them.
EXAMPLES = int(os.environ.get("EDGESERVE_EXAMPLES", "500"))

#: What a remote caller must never see.
INNER = re.compile(
    rb'Traceback|File "|\.py\b|/tmp/|/home/|/usr/|site-packages|onnxruntime::|0x[0-9a-f]{8}'
)


@pytest.fixture(scope="module")
def app(tagger: str, bare_app: Callable[..., Any]) -> Iterator[Any]:
    """One application for all: whatever one case breaks shows in the next."""
    one = bare_app(tagger, body_mb=4)
    yield one
    one.close()


def test_there_are_enough_of_them() -> None:
    names = [case[0] for case in CASES]
    assert len(set(names)) == len(names) >= 250


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_hostile_requests_are_refused_with_a_code(app: Any, case: Any) -> None:
    _, method, path, body, headers = case
    reply = app.call(method, path, body, headers)
    late = case[0] == "no time at all"
    assert reply.status == 503 if late else 400 <= reply.status < 500, (reply.status, reply.body)
    assert re.fullmatch(r"EDGE-[A-Z]+-\d{3}", json.loads(reply.body)["code"])
    assert not INNER.search(reply.body), reply.body
    assert '"fault"' not in app.log.getvalue(), app.log.getvalue()[-2000:]


def test_and_after_all_of_them_it_answers_as_ever(app: Any, models: Any) -> None:
    reply = app.call("POST", "/v2/models/tagger/predict", models.png(models.pixels(1)))
    assert reply.json["answer"]["label"] == models.oracle(models.pixels(1)).label
    assert app.app.service.inflight.held == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # 2 GB, bombs and all


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
FIELDS = st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), JSON)


@given(
    FIELDS, st.dictionaries(st.sampled_from(["inputs", "outputs", "id", "parameters", "x"]), JSON)
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_json_is_answered_or_refused(
    app: Any, tensor: dict[str, Any], more: dict[str, Any]
) -> None:
    body = json.dumps({"inputs": [hostile.GOOD | tensor]} | more).encode()
    reply = app.call("POST", hostile.INFER, body)
    assert reply.status in (200, 400), reply.body
    assert not INNER.search(reply.body)


@given(
    st.binary(max_size=400),
    st.one_of(st.none(), st.text(max_size=12)),
    st.sampled_from(["", "gzip", "deflate"]),
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_bytes_are_refused(app: Any, body: bytes, head: str | None, encoding: str) -> None:
    headers = {"content-encoding": encoding}
    if head is not None:
        headers["inference-header-content-length"] = head.encode().decode("latin-1")
    for path in (hostile.INFER, hostile.PREDICT):
        reply = app.call("POST", path, body, headers)
        assert 400 <= reply.status < 500, reply.body
        assert not INNER.search(reply.body)


@given(st.text(max_size=40), st.sampled_from(["GET", "POST"]))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_path_is_known_or_not(app: Any, text: str, method: str) -> None:
    reply = app.call(method, b"/v2/models/" + text.encode("utf-8", "replace"), b"")
    assert reply.status in (200, 404, 405)


@given(st.integers(0, 4), st.binary(min_size=1, max_size=8), st.integers(0, 10_000))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_good_request_with_bytes_changed(app: Any, kind: int, noise: bytes, at: int) -> None:
    """Changed in the JSON, in the numbers, cut, or longer: answered, or refused with a code."""
    body, head = oip.write_request([oip.Tensor("image", np.zeros((1, 3, 8, 8), np.float32))])
    at %= len(body)
    changed = {
        0: body[:at] + noise + body[at + len(noise) :],
        1: body[:at],
        2: body + noise,
        3: body[:at] + noise + body[at:],
        4: body[:at] + body[at + len(noise) :],
    }[kind]
    reply = app.call("POST", hostile.INFER, changed, {"inference-header-content-length": str(head)})
    assert reply.status in (200, 400), reply.body
    assert not INNER.search(reply.body)


@given(properties.REST)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_request_is_answered_or_refused(app: Any, asked: Any) -> None:
    """Structures, bytes, the binary extension, paths: no fault, no detail, a code with each no."""
    method, path, body, headers = asked
    reply = app.call(method, path, body, headers)
    assert reply.status < 500 or reply.json["code"] == "EDGE-SERVE-020", reply.body
    assert reply.status == 200 or re.fullmatch(r"EDGE-[A-Z]+-\d{3}", reply.json["code"])
    assert not INNER.search(reply.body), reply.body
    assert '"fault"' not in app.log.getvalue()[-4000:]


CHUNKS = (
    b"POST /v2/models/tagger/infer HTTP/1.1\r\nhost: localhost\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
RAW: dict[str, bytes] = {
    "no http": b"hello\r\n\r\n",
    "http 3": b"GET /v2 HTTP/3.0\r\n\r\n",
    "a tls hello": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 64,
    "an http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths": b"POST /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n"
    b"content-length: 2\r\n\r\nab",
    "length and chunks": b"POST /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"POST /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    "a huge length": b"POST /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
    + b"9" * 40
    + b"\r\n\r\n",
    "a bad chunk": CHUNKS + b"zz\r\n",
    "a huge chunk": CHUNKS + b"ffffffffffffffffff\r\n",
    "a header without a name": b"GET /v2 HTTP/1.1\r\n: x\r\n\r\n",
    "a null in a header": b"GET /v2 HTTP/1.1\r\nhost: a\0b\r\n\r\n",
    "a folded header": b"GET /v2 HTTP/1.1\r\nhost: localhost\r\na: b\r\n c\r\n\r\n",
    "a bare line feed": b"GET /v2 HTTP/1.1\nhost: localhost\n: y\n\n",
    "a long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a long header": b"GET /v2 HTTP/1.1\r\nhost: localhost\r\na: " + b"b" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
    "a connect": b"CONNECT evil:443 HTTP/1.1\r\nhost: evil\r\n\r\n",
    "a full url": b"GET http://evil/v2 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no ascii in the path": b"GET /v2/\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "spaces in the path": b"GET /v2 /x HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


def test_hostile_bytes_on_the_wire(live: Callable[..., Any], tagger: str) -> None:
    """Every connection is answered 4xx or closed, within seconds, and the next one is served."""
    end = live(tagger)
    for name, data in RAW.items():
        said = _exchange(end.running.port, data)
        assert not said or re.match(rb"HTTP/1\.1 4\d\d ", said), (name, said[:200])
        assert not INNER.search(said), name
    good = _exchange(
        end.running.port, b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert good.startswith(b"HTTP/1.1 200 ")
    assert '"fault"' not in end.log.getvalue()


def _exchange(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            said = b""
            while piece := link.recv(65536):
                said += piece
        except OSError:  # not connected any more: the other side has ended it
            return b""
        return said
