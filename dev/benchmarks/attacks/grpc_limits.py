"""What grpcio's own limits bound: a server that knows nobody's key, with one limit at a time.

    python -m dev.benchmarks.attacks.grpc_limits [--only TEXT]

Prints the memory that each attack takes from each server. Resource quotas are not among them:
`grpc.resource_quota` takes a pointer that Python cannot make.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dev.benchmarks.attacks.endpoint import OTHER_CORE, Endpoint, Served, pinned, started
from dev.benchmarks.attacks.registry import Attack, chosen, load
from dev.benchmarks.attacks.runner import Settings, run
from dev.benchmarks.serve import _free
from edgeserve.serve.grpc_messages import SERVICE

_MB = 1 << 20
_MOST = [("grpc.max_receive_message_length", 64 * _MB)]
#: Options of the server, and whether a call's key is looked at before its message is read.
SERVERS: dict[str, tuple[list[tuple[str, Any]], bool]] = {
    "message of 64 MB at most": (_MOST, False),
    "8 streams a connection": ([*_MOST, ("grpc.max_concurrent_streams", 8)], False),
    "4 connections": ([*_MOST, ("grpc.max_allowed_incoming_connections", 4)], False),
    "key before the message": (_MOST, True),
    "key before the message, 8 streams": ([*_MOST, ("grpc.max_concurrent_streams", 8)], True),
}
ATTACKS = (
    "gRPC: 60 MB, wrong key, 30 at once",
    "gRPC: 60 MB, wrong key, 10 channels",
    "gRPC: 60 MB in 60 KB, wrong key, 12 at once",
    "gRPC: messages without end in one call, 20 calls",
    "HTTP/2: messages held, wrong key, 20 connections of 60 MB",
    "HTTP/2: streams opened and left",
    "connections: 2000 idle on the port of gRPC",
)


async def _serve(title: str, grpc_port: int, port: int) -> None:
    """A server without an answer for anybody; ``port`` answers `health/live` for the prober."""
    import grpc

    options, early = SERVERS[title]

    async def refuse(message: Any, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "EDGE-SERVE-023 no key")
        return b""

    made = grpc.stream_unary_rpc_method_handler if early else grpc.unary_unary_rpc_method_handler
    handlers = {name: made(refuse) for name in ("ModelInfer", "ServerLive", "ServerMetadata")}
    server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    await asyncio.start_server(_answer, "127.0.0.1", port)
    await server.wait_for_termination()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Any request over HTTP, in the same event loop."""
    body = b'{"answer":{"label":""}}'
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 23\r\n\r\n" + body)
    await writer.drain()
    writer.close()


@contextmanager
def server(title: str, attack: Attack, folder: Path) -> Iterator[Endpoint]:
    """Such a server in a process of its own."""
    port, grpc_port = _free(), _free()
    module = "dev.benchmarks.attacks.grpc_limits"
    words = [sys.executable, "-m", module, "--serve", title, str(grpc_port), str(port)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*pinned(None), *words], stderr=log) as process,
    ):
        try:
            made = Endpoint(process, port, grpc_port, Served("", "m", b"x"), False, has_grpc=False)
            started(made)
            yield made
        finally:
            process.kill()


def main() -> int:
    """Print the table, or be one of the servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="attacks whose name holds this")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(given.serve[0], int(given.serve[1]), int(given.serve[2])))
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    every, settings = load(), Settings(seconds=3, after_s=0.5)
    print("| attack | " + " | ".join(SERVERS) + " |\n|---|" + "---|" * len(SERVERS))
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen(ATTACKS, given.only):
            row = []
            for title in SERVERS:
                start = partial(server, title)
                found = run(every[name], start, Path(folder), settings, threading.Lock())
                row.append(f"{found.peak_mb - found.warm_mb:.0f} MB, {found.p99_ms:.0f} ms")
            print(f"| {name} | " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
