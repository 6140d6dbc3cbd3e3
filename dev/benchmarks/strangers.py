"""Endpoints that break HTTP, and hold their callers up: the device answers within the deadline.

    python -m dev.benchmarks.strangers [--deadline-ms 300]

Each behaviour is a real socket's. A line is printed for each that costs the answer, or an answer
that comes more than 50 ms after the deadline; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import gzip
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dev.benchmarks.faults import FEED, good_reply, pilot_of
from edgeserve.wrapper.fallback.policy import Fallback

#: What may be added to the deadline, milliseconds.
LATE_MS = 50.0
Act = Callable[[socket.socket], None]


class _Wall:
    """The world of `pilot_of`, in real time."""

    now = staticmethod(time.monotonic)
    spend = staticmethod(time.sleep)


def reply(body: bytes = b"", head: bytes = b"", status: bytes = b"200 OK") -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    return b"HTTP/1.1 " + status + b"\r\n" + length + head + b"\r\n" + body


def good(more: bytes = b"") -> bytes:
    right = good_reply()
    lines = b"".join(f"{name}: {text}\r\n".encode() for name, text in right.headers.items())
    return reply(right.body, lines + more)


def say(*pieces: bytes, every: float = 0.0, ever: bool = False) -> Act:
    """Send pieces, a pause after each; the last one again and again, or stay silent."""

    def act(sock: socket.socket) -> None:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(every)
        while ever:
            sock.sendall(pieces[-1])
            time.sleep(every)

    return act


def silent(sock: socket.socket) -> None:
    time.sleep(3)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _stalled(after: bytes) -> Act:
    def act(sock: socket.socket) -> None:
        sock.sendall(after)
        silent(sock)

    return act


def behaviours() -> dict[str, Act]:
    """All of them; none gives an answer."""
    whole, start = good(), b"HTTP/1.1 200 OK\r\n"
    sized, packed = start + b"content-length: ", start + b"transfer-encoding: gzip, chunked\r\n\r\n"
    switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    end = whole.index(b"\r\n\r\n") + 4
    chunked = start + b"transfer-encoding: chunked\r\n\r\n"
    lists = b'{"outputs":[],"parameters":{"a":[' + b"[]," * (8 << 20) + b"[]]}}"
    found: dict[str, Act] = {
        "silent": silent,
        "closed at once": say(),
        "reset": reset,
        "drip of the reply": say(*(whole[i : i + 1] for i in range(len(whole))), every=0.02),
        "drip of the head": say(start, b"x: y\r\n", every=0.02, ever=True),
        "endless head": say(start, b"x-y: " + b"a" * 60_000 + b"\r\n", ever=True),
        "endless header": say(start + b"x: ", b"a" * 65_536, ever=True),
        "endless status line": say(b"HTTP/1.1 200 ", b"O" * 65_536, ever=True),
        "endless 100": say(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, ever=True),
        "endless chunks": say(chunked, b"10000\r\n" + b"x" * 65_536 + b"\r\n", ever=True),
        "endless chunk size": say(chunked, b"0" * 65_536, ever=True),
        "endless trailers": say(chunked + b"0\r\n", b"x: " + b"a" * 60_000 + b"\r\n", ever=True),
        "endless body": say(sized + b"99999999999\r\n\r\n", b"x" * 65_536, ever=True),
        "endless without length": say(start + b"\r\n", b" " * 65_536, ever=True),
        "60 MB of JSON": say(reply(b"[" + b"0," * (30 << 20) + b"0]")),
        "24 MB of lists": say(reply(lists)),
        "a bomb": say(reply(gzip.compress(bytes(1 << 26)), b"content-encoding: gzip\r\n")),
        "a bomb in transfer": say(packed + b"5\r\nabcde\r\n0\r\n\r\n"),
        "HTTP/0.9": say(b"hello"),
        "HTTP/2": say(b"\0\0\x12\x04\0\0\0\0\0" + bytes(18)),
        "TLS": say(b"\x16\x03\x03\x00\x31" + bytes(49)),
        "SSH": say(b"SSH-2.0-OpenSSH_9.6\r\n"),
        "noise": say(os.urandom(5000)),
        "two lengths": say(sized + b"5\r\ncontent-length: 6\r\n\r\nabcdef"),
        "a negative length": say(sized + b"-5\r\n\r\nabcde"),
        "a length of 5,000 digits": say(sized + b"" + b"9" * 5000 + b"\r\n\r\n"),
        "a length and chunks": say(sized + b"5\r\ntransfer-encoding: chunked\r\n\r\nzz"),
        "a chunk size of letters": say(chunked + b"xyz\r\n"),
        "a NUL in a header": say(start + b"x: a\0b\r\n\r\n"),
        "a header without a colon": say(start + b"nothing\r\n\r\n"),
        "lines without CR": say(b"HTTP/1.1 200 OK\ncontent-length: 1\n\nx"),
        "a line folded": say(start + b"x: a\r\n b\r\n\r\n"),
        "JSON's length too long": say(good(b"inference-header-content-length: 99999\r\n")),
        "an upgrade": say(switch),
        "redirect to a file": say(reply(b"", b"location: file:///etc/passwd\r\n", b"302 Found")),
        "redirect inside": say(reply(b"", b"location: http://169.254.169.254/\r\n", b"307 X")),
        "retry after a year": say(reply(b"", b"retry-after: 31536000\r\n", b"503 X")),
        "retry after 5,000 digits": say(
            reply(b"", b"retry-after-ms: " + b"9" * 5000 + b"\r\n", b"429 X")
        ),
        "retry after letters": say(reply(b"", b"retry-after: soon\r\n", b"503 X")),
        "an error with escapes": say(reply(b"EDGE-\x1b[2J-001", b"", b"500 \x1b[31m")),
        "an error of 8 MB": say(reply(b"x" * (8 << 20), b"", b"500 X")),
    }
    statuses = (100, 199, 201, 202, 204, 206, 299, 300, 301, 304, 400, 401, 403, 404, 408, 410, 413)
    for status in (*statuses, 418, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 507, 599, 999):
        found[f"status {status}"] = say(reply(b"{}", b"", b"%d X" % status))
    for status in (b"0", b"20", b"2000", b"-200", b"abc", b""):
        found[f"status {status!r}"] = say(reply(b"{}", b"", status + b" X"))
    for part in range(1, 16):  # cut off, or silent from there on
        at = end * part // 8 if part < 8 else end + (len(whole) - end) * (part - 8) // 8
        found[f"cut after {at} bytes"] = say(whole[:at])
        found[f"silent after {at} bytes"] = _stalled(whole[:at])
    return found


@contextmanager
def endpoint(act: Act, listens: bool = True) -> Iterator[str]:
    """A server on this machine that behaves so once it has read a request; the value is its URL.

    Without ``listens`` it does not wait for a request.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.settimeout(3)
            if listens:
                _read_request(sock)
            act(sock)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def _read_request(sock: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    while len(body) < length and (piece := sock.recv(65536)):
        body += piece


def asked(act: Act, deadline_ms: float) -> tuple[str, float, str]:
    """Who answered, after how many milliseconds, and what is noted; an error's name for nobody."""
    with endpoint(act) as url:
        contract = Fallback(url, when="always", deadline_ms=deadline_ms)
        router, _ = pilot_of(_Wall(), contract, 7)
        began = time.monotonic()
        try:
            ran_on = router.answer(FEED).ran_on
            where, note = ran_on.where, ran_on.note
        except Exception as error:
            where, note = type(error).__name__, str(error)
        took = 1e3 * (time.monotonic() - began)
        router.close()
    return where, took, note


def wrong(deadline_ms: float, late_ms: float = LATE_MS) -> tuple[int, list[str]]:
    """How many behaviours there are, and a line for each that cost the answer or the time."""
    found, lines = behaviours(), []
    for name, act in found.items():
        where, took, note = asked(act, deadline_ms)
        if where != "device" or took > deadline_ms + late_ms or not note.isprintable():
            lines.append(f"{name}: {where} after {took:.0f} ms, {note!r:.200}")
    return len(found), lines


def main() -> int:
    """Print what is wrong; exit 1 if anything is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deadline-ms", type=float, default=300.0)
    deadline = parser.parse_args().deadline_ms
    assert asked(say(good()), deadline)[0] == "cloud"
    count, lines = wrong(deadline)
    print(*lines, f"{count} endpoints, {len(lines)} wrong", sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
