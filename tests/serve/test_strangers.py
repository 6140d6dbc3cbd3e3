"""The endpoint against whoever knocks: memory, turns and time of strangers over real sockets."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import oip
from edgeserve.errors import ServeError
from edgeserve.serve import ServeOptions
from edgeserve.serve.connection import Connection
from edgeserve.serve.grpc_messages import SERVICE, messages, parsed_size
from edgeserve.serve.inflight import InflightBytes, RequestBytes
from edgeserve.serve.request_errors import RequestRejected
from edgeserve.serve.server import max_connections

LIVE = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n"
INFER = b"/v2/models/tagger/infer"
BODY = json.dumps(
    {"inputs": [{"name": "image", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": [0] * 192}]}
).encode()
POST = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % (INFER, len(BODY))
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"
CHUNKED = b"POST %s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" % INFER
TAIL = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY) - 8, BODY[8:])
TWICE = (POST + b"\r\n" + BODY) * 2


@pytest.fixture(scope="module")
def end(tagger: str, lasting_live: Callable[..., Any]) -> Iterator[Any]:
    """One endpoint for all: whatever one stranger breaks shows in the next."""
    one = lasting_live(tagger, grpc_port=0, body_mb=4, inflight_mb=16, body_s=1.0)
    yield one
    one.end()


def said(link: socket.socket, seconds: float = 10.0) -> bytes:
    """All that comes until the other side closes, or nothing comes any more."""
    link.settimeout(seconds)
    found = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while piece := link.recv(1 << 16):
            found += piece
    return found


def is_ended(link: socket.socket, data: bytes) -> bool:
    """Whether the other side ends the connection within seconds while more is sent."""
    until = time.monotonic() + 20
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < until:
            link.send(data)
            time.sleep(0.05)
        return False
    return True


def exchange(end: Any, *pieces: bytes, close: bool = True) -> bytes:
    with socket.create_connection(("127.0.0.1", end.running.port)) as link:
        for piece in pieces:
            link.sendall(piece)
            time.sleep(0.02)
        if close:
            with contextlib.suppress(OSError):  # the other side may have ended it
                link.shutdown(socket.SHUT_WR)
        return said(link)


def held(end: Any) -> int:
    """Bytes in flight once all that was sent has been seen to the end."""
    inflight = end.running.app.service.inflight
    until = time.monotonic() + 5
    while inflight.held and time.monotonic() < until:
        time.sleep(0.01)
    return int(inflight.held)


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        pytest.param([POST + b"\r\n" + BODY], 1, id="half closed behind a request"),
        pytest.param([POST + H2C + b"\r\n" + BODY], 1, id="an upgrade that is ignored"),
        pytest.param([POST + H2C + b"\r\n", BODY], 1, id="its body later"),
        pytest.param([(LIVE + b"\r\n") * 300], 300, id="many at once"),
        pytest.param([TWICE[:-40], TWICE[-40:]], 2, id="a second request in two pieces"),
        pytest.param([b"\r\n\r\n" + LIVE + b"\r\n"], 1, id="empty lines before it"),
        pytest.param(
            [CHUNKED + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"], 1, id="a body of chunks"
        ),
        pytest.param(
            [CHUNKED, *(b"1\r\n%c\r\n" % byte for byte in BODY[:8]), TAIL], 1, id="chunks of a byte"
        ),
        pytest.param([bytes([byte]) for byte in LIVE + b"\r\n"], 1, id="a byte at a time"),
    ],
)
def test_odd_but_right_requests_are_answered(end: Any, pieces: list[bytes], answers: int) -> None:
    found = exchange(end, *pieces)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", found) == [b"200"] * answers
    assert held(end) == 0


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(LIVE + b"x: " + b"a" * 100, id="value of a header"),
        pytest.param(LIVE + b"a" * 100, id="name of a header"),
        pytest.param(b"GET /" + b"a" * 100, id="path"),
        pytest.param(b"A" * 100, id="method"),
        pytest.param(LIVE + b"a: b\r\n", id="headers"),
        pytest.param(CHUNKED + b"1;" + b"a" * 100, id="extension of a chunk"),
        pytest.param(CHUNKED + b"0" * 100, id="size of a chunk"),
        pytest.param(CHUNKED + b"1\r\na\r\n0\r\nx: " + b"a" * 100, id="trailer"),
        pytest.param(CHUNKED + b"1\r\na\r\n", id="chunks of a byte"),
        pytest.param(b"\x16\x03\x01\x02" + b"\0" * 100, id="TLS"),
    ],
)
def test_what_does_not_end_is_ended(end: Any, endless: bytes) -> None:
    """The last 6 bytes of it for ever: refused after some 36 KB of head, whatever it is."""
    with socket.create_connection(("127.0.0.1", end.running.port)) as link:
        link.settimeout(10)
        more, sent = endless[-6:] * 4096, 0
        with contextlib.suppress(ConnectionError):
            link.sendall(endless)
            while sent < 64 << 20:
                sent += link.send(more)
        assert sent < 16 << 20  # what the system's buffers take; the endpoint reads less
        found = said(link)
        assert not found or b" 400 " in found[:20]
    assert held(end) == 0


def test_requests_behind_one_another_wait_unread(end: Any) -> None:
    """Who sends and never reads is not read either, and others are answered meanwhile."""
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # soon full of answers
        link.connect(("127.0.0.1", end.running.port))
        link.setblocking(False)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                link.send((b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n") * 2000)
            time.sleep(0.005)
        assert b" 200 " in exchange(end, LIVE + b"\r\n")[:20]
        assert end.running.app.service.inflight.peak < 4 << 20
        link.settimeout(5)  # the answer is not read within --body-s: the connection is ended
        assert is_ended(link, LIVE)
    assert held(end) == 0


def test_bodies_are_counted_as_they_come(end: Any) -> None:
    """Whole or not: 16 of nearly 4 MB do not fit into 16 MB, and what was held is given back."""
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n" % INFER
    inflight = end.running.app.service.inflight
    inflight.peak = 0
    links = [socket.create_connection(("127.0.0.1", end.running.port)) for _ in range(16)]
    for link in links:
        link.settimeout(2)
        with contextlib.suppress(OSError):
            link.sendall(head + b" " * 3_900_000)
    found = [said(link, 2) for link in links]
    for link in links:
        link.close()
    codes = {re.findall(rb"EDGE-SERVE-\d+", one)[0] for one in found if one}
    assert b"EDGE-SERVE-028" in codes
    assert codes <= {b"EDGE-SERVE-028", b"EDGE-SERVE-015"}
    assert 8 << 20 < inflight.peak <= 16 << 20
    assert held(end) == 0


def test_what_is_unpacked_is_counted_as_it_is(end: Any) -> None:
    inflight = end.running.app.service.inflight
    body, found = gzip.compress(b" " * (4 << 20), 9), []

    def ask() -> None:
        link = http.client.HTTPConnection("127.0.0.1", end.running.port, timeout=30)
        link.request("POST", INFER.decode(), body, {"content-encoding": "gzip"})
        reply = link.getresponse()
        found.append((reply.status, json.loads(reply.read())["code"]))
        link.close()

    inflight.peak = 0
    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 24
    assert set(found) <= {(400, "EDGE-SERVE-010"), (503, "EDGE-SERVE-028"), (503, "EDGE-SERVE-020")}
    assert 4 << 20 <= inflight.peak <= 16 << 20
    assert held(end) == 0


def test_the_rest_of_a_body_is_not_waited_for(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeserve.serve.connection._HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", end.running.port)) as link:
        link.sendall(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
        assert is_ended(link, b"x")


def test_a_full_house_makes_room(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that was idle longest goes, and the log says so."""
    assert 16 <= max_connections() <= 4096
    with socket.create_connection(("127.0.0.1", end.running.port)) as link:
        link.sendall(LIVE + b"\r\n")
        while not link.recv(1 << 16).endswith(b"}"):
            pass
        limits = next(iter(_connections()))._limits
        monkeypatch.setattr(limits, "most", 1)
        assert b" 200 " in exchange(end, LIVE + b"\r\n")[:20]
        assert said(link, 5) == b""
    until = time.monotonic() + 5
    while "connections_full" not in end.log.getvalue() and time.monotonic() < until:
        time.sleep(0.05)
    assert end.log.getvalue().count("connections_full") == 1


def _connections() -> list[Connection]:
    import gc

    return [
        o for o in gc.get_objects() if type(o) is Connection and o._limits.open.get(o, 0) is None
    ]


def test_an_end_does_not_wait_for_who_does_not_read(live: Callable[..., Any], tagger: str) -> None:
    end = live(tagger, drain_s=1.0)
    with socket.create_connection(("127.0.0.1", end.running.port)) as link:
        link.setblocking(False)
        for _ in range(40):
            with contextlib.suppress(BlockingIOError):
                link.send(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000)
            time.sleep(0.01)
        began = time.monotonic()
        end.end()
        assert time.monotonic() - began < 3.0


def grpc_call(end: Any, call: str, data: bytes, packed: bool = False, **md: str) -> str:
    import grpc

    with grpc.insecure_channel(end.grpc_address) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{call}")
        how = grpc.Compression.Gzip if packed else None
        try:
            ask(data, timeout=30, compression=how, metadata=tuple(md.items()))
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()}"
    return "OK"


@pytest.mark.parametrize("packed", [False, True])
def test_a_message_is_not_read_before_its_key(
    live: Callable[..., Any], tagger: str, tmp_path: Path, packed: bool
) -> None:
    (tmp_path / "keys").write_text("phone abcdefghijklmnop\n")
    end = live(tagger, grpc_port=0, keys=str(tmp_path / "keys"))
    inflight = end.running.app.service.inflight
    inflight.peak = 0
    data = bytes(8 << 20)
    assert "EDGE-SERVE-023" in grpc_call(end, "ModelInfer", data, packed)
    assert inflight.peak < 1 << 20
    assert grpc_call(end, "ServerLive", data, packed) == "OK"
    assert inflight.peak < 1 << 20
    good = {"authorization": "Bearer abcdefghijklmnop"}
    assert "EDGE-SERVE-010" in grpc_call(end, "ModelInfer", data, packed, **good)
    assert inflight.peak >= 8 << 20
    assert held(end) == 0


def varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made, value = made + bytes([value & 127 | 128]), value >> 7
    return made + bytes([value])


@pytest.mark.parametrize(
    "data",
    [
        *(pytest.param(key + b"\0" * 2, id=f"empty {key.hex()}") for key in (b"\x2a", b"\x32")),
        pytest.param(b"\x2a" + varint(3 << 20) + b"\x1a" + varint((3 << 20) - 5), id="lengths"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\x80" * 11, id="a number without an end"),
    ],
)
def test_large_messages_are_counted_before_they_are_parsed(data: bytes) -> None:
    whole = data * 100_000 if len(data) < 4 else data + b"\1" * ((3 << 20) - 5)
    with pytest.raises(oip.BadMessage):
        parsed_size("ModelInferRequest", whole)


def test_what_a_message_takes_is_no_less_than_it_holds() -> None:
    x = np.ones((4, 3, 8, 8), np.float32)
    tensor: Any = {"name": "image", "datatype": "FP32", "shape": x.shape}
    kind = messages()["ModelInferRequest"]
    raw = kind(model_name="m", inputs=[tensor], raw_input_contents=[x.tobytes()])
    typed = kind(model_name="m", inputs=[tensor | {"contents": {"int64_contents": [1] * 768}}])
    assert x.nbytes < parsed_size("ModelInferRequest", raw.SerializeToString()) < 2 * x.nbytes
    assert 8 * 768 < parsed_size("ModelInferRequest", typed.SerializeToString()) < 16 * 768


def test_a_budget_is_kept_by_all_who_share_it() -> None:
    inflight = InflightBytes(10)
    one, other = RequestBytes(inflight), RequestBytes(inflight)
    one.add(6)
    with pytest.raises(RequestRejected) as error:
        other.add(5)
    assert error.value.error.code == "EDGE-SERVE-028"
    other.set(4)
    one.release()
    assert (inflight.held, inflight.peak) == (4, 10)
    with pytest.raises(RequestRejected):
        one.add(1)  # a thread that still works for it
    with inflight.holding(6), pytest.raises(RequestRejected):
        inflight.add(1)
    other.release()
    assert inflight.held == 0


FREE = [b"[],", b'{"a":1},', b'"",', b"1,", b"[[]],"]


@pytest.mark.parametrize("place", ["parameters", "outputs", "inputs", "unknown"])
@pytest.mark.parametrize("value", FREE, ids=[one.decode() for one in FREE])
def test_values_are_counted_before_they_are_objects(
    asgi: Callable[..., Any], tagger: str, place: str, value: bytes
) -> None:
    """Of 4 MB of anything: refused at little cost, whichever field holds it."""
    import tracemalloc

    app = asgi(tagger, body_mb=8)
    many = b"[" + value * ((4 << 20) // len(value)) + b"1]"
    field = b'{"a":%s}' % many if place == "parameters" else many
    body = b'{"%s":%s,' % (place.encode(), field) + BODY[1:]
    tracemalloc.start()
    reply = app.call("POST", INFER.decode(), body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (reply.status, reply.json["code"]) == (400, "EDGE-SERVE-010")
    assert peak < 2 * len(body) + (8 << 20)


@pytest.mark.parametrize(
    ("host", "origin", "route", "status"),
    [
        ("localhost:80", None, "GET /v2", 200),
        ("127.0.0.1", None, "GET /v2", 200),
        ("[::1]:8080", None, "GET /v2", 200),
        ("a.localhost", None, "GET /v2", 200),
        (None, None, "GET /v2", 200),
        ("evil.example", None, "GET /v2", 403),
        ("127.0.0.1.evil.example", None, "GET /metrics", 403),
        ("evil", None, "GET /openapi.json", 403),
        ("localhost", "http://evil.example", "GET /v2", 200),  # its page cannot read the answer
        ("evil.example", None, "GET /v2/health/live", 200),
        ("localhost", "http://evil.example", "POST /v2/repository/models/tagger/unload", 403),
        ("localhost", "null", "POST /v2/repository/models/tagger/load", 403),
        ("localhost", "https://app.example", "POST /v2/repository/models/tagger/load", 200),
        ("localhost", None, "POST /v2/repository/models/tagger/load", 200),
    ],
)
def test_pages_of_strangers_are_refused(
    pages: Any, host: str | None, origin: str | None, route: str, status: int
) -> None:
    method, path = route.split()
    headers = {"host": host, "origin": origin}
    reply = pages.call(method, path, b"", {k: v for k, v in headers.items() if v})
    assert reply.status == status, reply.body
    assert status == 200 or reply.json["code"] == "EDGE-SERVE-029"
    listed = origin == "https://app.example"
    assert reply.headers.get("access-control-allow-origin") == (origin if listed else None)


@pytest.fixture(scope="module")
def pages(bare_app: Callable[..., Any], tagger: str) -> Iterator[Any]:
    one = bare_app(tagger, cors_origins=("https://app.example",))
    yield one
    one.close()


@pytest.mark.parametrize(("origin", "status"), [("https://app.example", 204), ("http://b", 405)])
def test_browsers_ask_first(pages: Any, origin: str, status: int) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST", "host": "localhost"}
    reply = pages.call("OPTIONS", INFER.decode(), b"", headers)
    assert reply.status == status
    assert ("access-control-allow-headers" in reply.headers) == (status == 204)


def test_others_may_only_come_in_with_a_key_or_when_it_is_said(
    live: Callable[..., Any], tagger: str
) -> None:
    with pytest.raises(ServeError) as error:
        live(tagger, host="0.0.0.0")
    assert error.value.code == "EDGE-SERVE-006"
    assert "--no-keys" in error.value.hint
    for fields in ({"no_keys": True}, {"keys": "file"}):
        ServeOptions(bundles=("x",), host="0.0.0.0", **fields).check_access()  # type: ignore[arg-type]
    for origin in ("*", "app.example", "https://app.example/"):
        with pytest.raises(ServeError):
            ServeOptions(bundles=("x",), cors_origins=(origin,))


def test_a_deadline_has_a_maximum(asgi: Callable[..., Any], tagger: str) -> None:
    app = asgi(tagger, max_deadline_ms=1.0, deadline_ms=1.0)
    reply = app.call("POST", INFER.decode(), BODY, {"x-request-deadline-ms": "3600000"})
    assert (reply.status, reply.json["code"]) == (503, "EDGE-SERVE-020")


NOISE = """
import os, warnings
from edgeserve.serve.telemetry import captured_stderr
with captured_stderr() as log:
    log.event("serving")
    os.write(2, b"TIFFFetchNormalTag: " + b"x" * 5000 + b"\\n")
    warnings.warn("a picture")
    for i in range(5000):
        os.write(2, b"again\\n")
    log.event("ended")
os.write(2, b"after\\n")
"""


def test_the_log_is_lines_of_json_whoever_writes() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", NOISE], capture_output=True, timeout=60)
    *lines, last = done.stderr.splitlines()
    found = [json.loads(line) for line in lines]
    assert last == b"after"
    assert {"serving", "stderr", "ended"} <= {one["event"] for one in found}
    assert len(found) < 50
    assert max(map(len, lines)) < 1000
    assert any("UserWarning: a picture" in one.get("text", "") for one in found)


def test_damaged_streams_of_many_pieces_are_refused() -> None:
    from edgeserve.serve.http import inflate

    data = np.random.default_rng(1).bytes(5 << 20)
    packed, counted = zlib.compress(data), []
    assert bytes(inflate(packed, b"deflate", 5 << 20, counted.append)) == data
    assert sum(counted) == len(data)
    for bad in (packed[:-3], packed + b"x", packed + bytes(3 << 20), packed[: 2 << 20]):
        with pytest.raises(RequestRejected):
            inflate(bad, b"deflate", 5 << 20, counted.append)
    with pytest.raises(RequestRejected):
        inflate(packed, b"deflate", (5 << 20) - 1, counted.append)


def test_nothing_went_wrong_meanwhile(end: Any) -> None:
    assert '"fault"' not in end.log.getvalue()
    assert b" 200 " in exchange(end, POST + b"\r\n" + BODY)[:20]
