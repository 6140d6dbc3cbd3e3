"""The fallback contract's fault cells over real sockets in real time: see `faults`."""

from __future__ import annotations

import random
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from dev.benchmarks.faults import DEADLINE_MS, Cell, good_reply, pilot_of, played
from edgeserve.oip.client import EndpointReply
from edgeserve.wrapper.fallback.policy import Fallback

CELLS = (("rst", 0.5), ("black hole", 0.1), ("slow body", 0.5), ("garbage", 1.0))


class _Faulty(socketserver.BaseRequestHandler):
    """A real endpoint with one real fault."""

    server: Any

    def handle(self) -> None:
        while self._request():
            self.server.requests += 1
            if self.server.rng.random() < self.server.share:
                if not getattr(self, self.server.fault)():
                    return
                continue
            self.request.sendall(_wire(200, good_reply()))

    def _request(self) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.request.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self.request.recv(65536)
        return True

    def rst(self) -> bool:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()
        return False

    def black_hole(self) -> bool:
        self.server.over.wait(2)
        return False

    def slow_body(self) -> bool:
        whole = _wire(200, good_reply())
        for byte in whole[:-1]:
            if self.server.over.wait(0.02):
                return False
            try:
                self.request.sendall(bytes([byte]))
            except OSError:
                return False
        return False

    def garbage(self) -> bool:
        self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\0{]")
        return True


def _wire(status: int, reply: EndpointReply) -> bytes:
    lines = "".join(f"{k}: {v}\r\n" for k, v in reply.headers.items())
    head = f"HTTP/1.1 {status} OK\r\ncontent-length: {len(reply.body)}\r\n{lines}\r\n"
    return head.encode() + reply.body


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


@contextmanager
def faulty(fault: str, share: float, seed: int = 7) -> Iterator[Any]:
    """A real endpoint while the block runs; `share` of it may be changed."""
    server: Any = _Server(("127.0.0.1", 0), _Faulty)
    server.fault, server.share, server.requests = fault.replace(" ", "_"), share, 0
    server.rng, server.over = random.Random(seed), threading.Event()
    server.handle_error = lambda request, address: None
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _RealWorld:
    """What `dev.benchmarks.faults.World` is, with the clock on the wall and a real endpoint."""

    now = staticmethod(time.monotonic)
    spend = staticmethod(time.sleep)

    def __init__(self, server: Any) -> None:
        self._server = server

    def wait(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    @property
    def requests(self) -> int:
        return int(self._server.requests)

    @property
    def share(self) -> float:
        return float(self._server.share)

    @share.setter
    def share(self, share: float) -> None:
        self._server.share = share


def live(fault: str, share: float, calls: int, seed: int = 7) -> Cell:
    """`dev.benchmarks.faults.cell` over real sockets, in real time."""
    with faulty(fault, share, seed) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        contract = Fallback(url, when="always", deadline_ms=DEADLINE_MS)
        world = _RealWorld(server)
        pilot, caller = pilot_of(world, contract, seed)
        try:
            return played(world, pilot, caller, calls)
        finally:
            pilot.close()


def _live(cell: tuple[str, float, int]) -> Cell:
    return live(*cell)


def all_live(calls: int) -> list[Cell]:
    """`CELLS`, each in a process of its own and all at once, since they mostly wait."""
    with ProcessPoolExecutor(len(CELLS)) as pool:
        return list(pool.map(_live, [(*cell, calls) for cell in CELLS]))
