"""Raw connections: many at once, bytes as fast as the other side takes them, or drop by drop."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import time
from collections.abc import Callable, Iterator

from dev.benchmarks.attacks.registry import Tally, Target

#: All that an attack sends at most, bytes.
MOST_BYTES = 2 << 30
#: Endless streams send pieces of this length.
PIECE = 1 << 16
_MOST_HEAD = 1 << 16


def head(method: str, path: str, *lines: str) -> bytes:
    """A request's head with its empty line."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def post(path: str, body: bytes, *lines: str) -> bytes:
    """A POST with its body."""
    return head("POST", path, f"Content-Length: {len(body)}", *lines) + body


def forever(piece: bytes) -> Iterator[bytes]:
    """Short pieces as a stream of larger ones."""
    return itertools.repeat(piece * max(1, PIECE // len(piece)))


def connect(port: int, seconds: float = 5.0) -> socket.socket:
    """A connection to this machine that blocks at most so long."""
    return socket.create_connection(("127.0.0.1", port), timeout=seconds)


class AnswerReader:
    """Counts HTTP answers in a stream of bytes; a body is kept only until it is whole."""

    def __init__(self, tally: Tally, bodies: bool = True) -> None:
        self._tally, self._bodies, self._data = tally, bodies, b""
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            lines = self._data[:end].lower()
            length = 0
            if self._bodies and b"content-length:" in lines:
                length = int(lines.partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self._data) < end + 4 + length:
                return
            status, body = int(lines[9:12]), self._data[end + 4 : end + 4 + length]
            self._data = self._data[end + 4 + length :]
            if status >= 200:
                self.count += 1
                self._tally.rest(status, body)
        if len(self._data) > _MOST_HEAD:
            self._data = b""


class Link:
    """One connection, and the pieces that it still has to send.

    Args:
        pieces: What to send.
        bodies: Whether answers have bodies; HEAD's have none.
        wait: Whether a piece waits for the answer to the one before.
    """

    def __init__(
        self, port: int, tally: Tally, pieces: Iterator[bytes], bodies: bool, wait: bool
    ) -> None:
        self.socket = connect(port)
        self.socket.setblocking(False)
        self._pieces, self._left, self._tally = pieces, memoryview(b""), tally
        self._wait, self._asked = wait, 0
        self.answers = AnswerReader(tally, bodies)
        tally.connections += 1

    def push(self) -> bool:
        """Send what goes; whether there is more to send."""
        while True:
            if not self._left:
                if self._wait and self._asked > self.answers.count:
                    return True
                piece = next(self._pieces, None)
                if piece is None:
                    return False
                if not piece:  # nothing for now
                    return True
                self._left, self._asked = memoryview(piece), self._asked + 1
            try:
                sent = self.socket.send(self._left)
            except BlockingIOError:
                return True
            self._tally.sent += sent
            self._left = self._left[sent:]

    def pull(self) -> bool:
        """Read what came; False: the other side has closed."""
        with contextlib.suppress(BlockingIOError):
            data = self.socket.recv(1 << 18)
            self.answers.feed(data)
            return bool(data)
        return True


def flood(
    target: Target,
    tally: Tally,
    count: int,
    pieces: Callable[[], Iterator[bytes]],
    *,
    port: int | None = None,
    read: bool = True,
    bodies: bool = True,
    wait: bool = False,
    pace: float = 0.0,
) -> None:
    """Keep so many connections busy until the time is over.

    A connection that the endpoint closes is made again.

    Args:
        target: The endpoint.
        tally: Where answers are counted.
        count: Connections.
        pieces: Makes what one connection sends.
        port: Another port than that of REST.
        read: Whether answers are read.
        bodies: Whether answers have bodies.
        wait: Whether a piece waits for the answer to the one before.
        pace: Seconds between two rounds over all connections; 0: as fast as it goes.
    """
    port = port or target.port
    links: list[Link] = []
    read = read or wait
    with selectors.DefaultSelector() as selector:
        while not target.over and tally.sent < MOST_BYTES:
            while len(links) < count and not target.over:
                try:
                    links.append(Link(port, tally, pieces(), bodies, wait))
                except OSError:
                    tally.statuses["refused"] += 1
                    time.sleep(0.02)
                    break
                selector.register(links[-1].socket, selectors.EVENT_READ, links[-1])
            for link in links[:]:
                if not _step(link, read):
                    tally.statuses["closed"] += 1
                    links.remove(link)
                    selector.unregister(link.socket)
                    link.socket.close()
            if pace:
                time.sleep(pace)
            else:
                selector.select(0.002) if read else time.sleep(0.002)
        for link in links:
            link.socket.close()


def _step(link: Link, read: bool) -> bool:
    try:
        link.push()
        return link.pull() if read else True
    except OSError:
        return False


def bodies(
    target: Target, tally: Tally, path: str, body: bytes, *lines: str, count: int = 4
) -> None:
    """Post a body over some connections, again after each answer."""
    request = post(path, body, *lines)
    flood(target, tally, count, lambda: itertools.repeat(request), wait=True)


def drip(
    target: Target,
    tally: Tally,
    count: int,
    first: bytes,
    drop: bytes,
    pace: float = 0.5,
    port: int | None = None,
) -> None:
    """Open connections that send their beginning at once and then a drop now and then."""
    flood(
        target,
        tally,
        count,
        lambda: itertools.chain([first], _drops(drop, pace)),
        port=port,
        pace=0.05,
    )


def _drops(drop: bytes, pace: float) -> Iterator[bytes]:
    """One drop each time the pace has passed, nothing between."""
    last = time.monotonic()
    while True:
        if time.monotonic() - last >= pace:
            last = time.monotonic()
            yield drop
        else:
            yield b""
