"""Connections alone: idle, half open, half shaken hands, opened and closed, too many."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from contextlib import suppress

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import connect, drip, flood, forever, head, post

_ABORT = struct.pack("ii", 1, 0)
#: The start of a TLS record that announces more than it holds.
_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(32)


@attack("connections: 2000 idle")
def idle(target: Target, tally: Tally) -> None:
    flood(target, tally, 2000, lambda: itertools.repeat(b""), pace=0.05)


@attack("connections: 2000 idle on the port of gRPC")
def idle_grpc(target: Target, tally: Tally) -> None:
    port = target.grpc_port
    flood(target, tally, 2000, lambda: itertools.repeat(b""), port=port, pace=0.05)


@attack("connections: kept after a request, 1000")
def kept(target: Target, tally: Tally) -> None:
    first = head("GET", "/v2/health/live")
    flood(target, tally, 1000, lambda: itertools.chain([first], itertools.repeat(b"")), pace=0.05)


@attack("connections: opened and closed")
def storm(target: Target, tally: Tally) -> None:
    _open_and(target, tally, target.port, lambda one: None)


@attack("connections: opened and closed on the port of gRPC")
def storm_grpc(target: Target, tally: Tally) -> None:
    _open_and(target, tally, target.grpc_port, lambda one: None)


@attack("connections: aborted in the middle of a request")
def aborted(target: Target, tally: Tally) -> None:
    request = post(target.infer, b"{" * 100_000)[:50_000]

    def abort(one: socket.socket) -> None:
        one.sendall(request)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)

    _open_and(target, tally, target.port, abort)


@attack("connections: aborted before the answer")
def aborted_later(target: Target, tally: Tally) -> None:
    """The model works for nobody."""
    body = b'{"inputs":[{"name":"image","shape":[1,3,8,8],"datatype":"FP32","data":[%s]}]}'
    request = post(target.infer, body % b",".join([b"0.5"] * 192))

    def abort(one: socket.socket) -> None:
        one.sendall(request)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)

    _open_and(target, tally, target.port, abort)


@attack("connections: half open after half a request")
def half_open(target: Target, tally: Tally) -> None:
    kept: list[socket.socket] = []

    def half(one: socket.socket) -> None:
        one.sendall(head("POST", target.infer, "Content-Length: 1000"))
        one.shutdown(socket.SHUT_WR)
        kept.append(one.dup())

    _open_and(target, tally, target.port, half, most=1000)
    while not target.over:
        time.sleep(0.05)
    for one in kept:
        one.close()


def _open_and(target: Target, tally: Tally, port: int, act: object, most: int = 1 << 20) -> None:
    assert callable(act)
    while not target.over and tally.connections < most:
        try:
            one = connect(port)
        except OSError:
            tally.statuses["refused"] += 1
            time.sleep(0.01)
            continue
        tally.connections += 1
        with one, suppress(OSError):
            act(one)


@attack("connections: more than the endpoint has descriptors", files=128)
def descriptors(target: Target, tally: Tally) -> None:
    flood(target, tally, 400, lambda: itertools.repeat(b""), pace=0.05)


@attack("connections: more than descriptors, gRPC", files=128)
def descriptors_grpc(target: Target, tally: Tally) -> None:
    port = target.grpc_port
    flood(target, tally, 400, lambda: itertools.repeat(b""), port=port, pace=0.05)


@attack("connections: half a TLS hello, 500", tls=True)
def half_hello(target: Target, tally: Tally) -> None:
    drip(target, tally, 500, _HELLO, b"\0")


@attack("connections: TLS records without an end, 8", tls=True)
def endless_hello(target: Target, tally: Tally) -> None:
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff\xff" + bytes(0x4000 - 5)
    flood(target, tally, 8, lambda: forever(record))


@attack("connections: handshakes begun and left", tls=True)
def handshakes(target: Target, tally: Tally) -> None:
    """A whole hello makes the endpoint sign; the client goes."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def hello(one: socket.socket) -> None:
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(into, out, server_hostname="localhost").do_handshake()
        one.sendall(out.read())
        one.recv(64)

    _open_and(target, tally, target.port, hello)
