"""Clients that send whatever they are given: odd paths and lies in HTTP, any bytes in gRPC."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from edgeserve.serve.grpc_messages import SERVICE

#: What a remote caller must never see.
INNER = re.compile(
    rb'Traceback|File "|\.py\b|/tmp/|/home/|/usr/|site-packages|onnxruntime::|0x[0-9a-f]{8}'
)
_PLAIN = re.compile(rb"[!-~]+")


class RawHttpClient:
    """HTTP over a socket, as it comes: nothing is checked or escaped.

    Args:
        port: Of the endpoint, on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._link: socket.socket | None = None

    def ask(
        self, method: str, path: bytes, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Status and body; status 0: closed without an answer, though nothing was malformed."""
        given = {"host": "x", "content-length": str(len(body))} | dict(headers)
        lines = b"".join(f"{k}: {v}\r\n".encode("latin-1") for k, v in given.items())
        head = method.encode() + b" " + path + b" HTTP/1.1\r\n" + lines + b"\r\n"
        # After what is no HTTP, or lies about its length, the connection is of no more use.
        sound = bool(_PLAIN.fullmatch(path)) and "content-length" not in headers
        try:
            return self._exchange(head + body, method, sound)
        finally:
            if not sound:
                self.close()

    def _exchange(self, data: bytes, method: str, sound: bool) -> tuple[int, bytes]:
        for _ in range(2):
            kept = self._link is not None
            try:
                status, answer = self._once(data, method, sound)
            except (ConnectionError, TimeoutError):
                status, answer = 0, b""
            if status:
                return status, answer
            self.close()
            if not kept or not sound:
                break
        return (0, b'{"code":""}') if sound else (400, b'{"code":"closed"}')

    def _once(self, data: bytes, method: str, sound: bool) -> tuple[int, bytes]:
        if self._link is None:
            self._link = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        self._link.sendall(data)
        if not sound:
            self._link.shutdown(socket.SHUT_WR)
        said = b""
        while b"\r\n\r\n" not in said:
            piece = self._link.recv(65536)
            if not piece:
                return 0, b""
            said += piece
        head, _, body = said.partition(b"\r\n\r\n")
        lines = head.lower()
        length = int(lines.partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        while method != "HEAD" and len(body) < length:
            body += self._link.recv(65536)
        if b"connection: close" in lines:
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        """Let go of the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None


@contextmanager
def grpc_asker(port: int) -> Iterator[Callable[[str, bytes], tuple[str, str]]]:
    """A function of a call and a message's bytes that gives status and details."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

        def ask(call: str, data: bytes) -> tuple[str, str]:
            try:
                channel.unary_unary(f"/{SERVICE}/{call}")(data, timeout=60)
            except grpc.RpcError as error:
                return error.code().name, str(error.details())
            return "OK", ""

        yield ask
