"""The endpoint beside others' servers: processor time a request beyond the bare run's.

    python -m dev.benchmarks.serve_peers --setup peers      # once: their environments, from
    peers.txt python -m dev.benchmarks.serve_peers peers [--requests 60] [--rounds 5] [--leave-out
    KServe]

All serve the same ONNX file on one core; the load runs on another. A request is a tensor of 588 KB,
in binary where a server takes that and as JSON where it takes that; rounds of all servers and of
the bare runtime are interleaved. MLServer and KServe speak the Open Inference Protocol; Ray Serve
gets the plain bytes, LitServe an upload of them, both else the protocol's JSON. Then
the Wrapper falls back to MLServer and KServe: servers that are not ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dev.benchmarks.processes import descendants
from dev.benchmarks.serve import (
    SHAPE,
    Client,
    _free,
    _runs,
    bare,
    bundle,
    closed_loop,
    cpu_ms,
    server,
)
from edgeserve import Wrapper, oip
from edgeserve.wrapper.fallback import Fallback

PEERS = Path(__file__).parent / "peers"
#: Of Ray's many processes those that a request passes.
_ON_THE_WAY = ("ray::ProxyActor", "ray::ServeReplica", "ray::HTTPProxy")


@dataclass
class Peer:
    """A server under test.

    Attributes:
        pid: Its process; those below it count as well.
        encodings: "binary", "json": what is sent to it.
        path: Of a request.
        body: What its binary body is: the "protocol" with the tensor behind it, the tensor's
            "bytes" alone, or a "form" that uploads them.
    """

    pid: int
    port: int
    encodings: tuple[str, ...]
    path: str
    body: str = "protocol"

    def cpu_ms(self) -> float:
        """Processor time so far of all that a request passes."""
        pids = [self.pid, *descendants(self.pid)]
        on_the_way = [pid for pid in pids if _name(pid).startswith(_ON_THE_WAY)]
        return sum(_spent(pid) for pid in on_the_way or pids)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _spent(pid: int) -> float:
    try:
        return cpu_ms(pid)
    except OSError:
        return 0.0


class PeerClient(Client):
    """The same tensor, in one of a server's encodings."""

    def __init__(self, peer: Peer, encoding: str) -> None:
        super().__init__(peer.port, "convs")
        x = np.random.default_rng(1).random(SHAPE, np.float32)
        binary = encoding == "binary"
        body, head = oip.write_request([oip.Tensor("x", x)], binary=binary)
        lines = {"Content-Type": "application/octet-stream" if binary else "application/json"}
        if binary and peer.body == "bytes":
            body = x.tobytes()
        elif binary and peer.body == "form":
            part = b'Content-Disposition: form-data; name="x"; filename="x"\r\n\r\n'
            body = b"--edge\r\n" + part + x.tobytes() + b"\r\n--edge--\r\n"
            lines["Content-Type"] = "multipart/form-data; boundary=edge"
        elif head is not None:
            lines["Inference-Header-Content-Length"] = str(head)
        lines["Content-Length"] = str(len(body))
        told = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.request = f"POST {peer.path} HTTP/1.1\r\nHost: localhost\r\n{told}\r\n".encode() + body

    async def ask(self) -> tuple[int, float]:
        """Status, and seconds to the whole answer, which may come in chunks."""
        began = time.perf_counter()
        reader, writer, head = await self._head()
        if b"transfer-encoding: chunked" in head:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        else:
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
        if b"connection: close" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return int(head[9:12]), time.perf_counter() - began

    async def _head(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Ask; again on a new connection where a server had closed the idle one meanwhile."""
        while self._idle:
            reader, writer = self._idle.pop()
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                writer.write(self.request)
                return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower()
            writer.close()
        reader, writer = await self._open()
        writer.write(self.request)
        return reader, writer, (await reader.readuntil(b"\r\n\r\n")).lower()


def setup(folder: Path) -> None:
    """Make the peers' environments; those that are there stay."""
    for line in (PEERS / "peers.txt").read_text("utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, *packages = line.split()
        if not (folder / name).exists():
            subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        pip = [folder / name / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *packages], check=True)


@contextmanager
def started(command: list[str], folder: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A server on the first core."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "."}
    with subprocess.Popen(
        ["taskset", "-c", "0", *command],
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and the processes it made, which some leave behind."""
    below = descendants(process.pid)
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def mlserver(python: str, model: str, name: str, folder: Path) -> Iterator[Peer]:
    """MLServer, without worker processes."""
    port = _free()
    folder.mkdir()
    (folder / "onnx_runtime.py").write_text((PEERS / "onnx_runtime.py").read_text("utf-8"))
    settings = {
        "debug": False,
        "parallel_workers": 0,
        "http_port": port,
        "grpc_port": _free(),
        "metrics_port": _free(),
        "host": "127.0.0.1",
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    said = {"name": name, "implementation": "onnx_runtime.Onnx", "parameters": {"uri": model}}
    (folder / "model-settings.json").write_text(json.dumps(said))
    command = [str(Path(python).parent / "mlserver"), "start", "."]
    with started(command, str(folder)) as process:
        yield Peer(process.pid, port, ("json",), f"/v2/models/{name}/infer")


@contextmanager
def script(python: str, what: str, words: list[str], peer: Peer) -> Iterator[Peer]:
    """One of the servers in ``benchmarks/peers``."""
    command = [python, str(PEERS / f"{what}_server.py"), *words, str(peer.port)]
    with started(command) as process:
        peer.pid = process.pid
        yield peer


def _others(
    folder: Path, root: str, name: str
) -> dict[str, contextlib.AbstractContextManager[Peer]]:
    """All peers, each of which starts when it is entered."""
    model = f"{root}/artifacts/onnx-fp32/model.onnx"
    theirs = str(folder.absolute() / "others/bin/python")
    infer, both = f"/v2/models/{name}/infer", ("binary", "json")
    place = Path(root).parent / f"mlserver-{name}"
    first = str(folder.absolute() / "mlserver/bin/python")

    def of(python: str, what: str, word: str, peer: Peer) -> Any:
        return script(python, what, [model, word], peer)

    return {
        "MLServer": mlserver(first, model, name, place),
        "KServe": of(theirs, "kserve", name, Peer(0, _free(), both, infer)),
        "LitServe": of(
            theirs, "litserve", "binary", Peer(0, _free(), ("binary",), "/predict", "form")
        ),
        "LitServe (JSON)": of(theirs, "litserve", "json", Peer(0, _free(), ("json",), "/predict")),
        "Ray Serve": of(sys.executable, "ray", name, Peer(0, _free(), both, "/", "bytes")),
    }


def _until_answering(name: str, peer: Peer) -> None:
    """Wait for an answer of 200 to the very request that is measured."""
    client = PeerClient(peer, peer.encodings[0])
    _, _, rest = client.request.partition(b"\r\n")
    head, _, body = rest.partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    lines.pop("Host")
    told = "nothing"
    for _ in range(300):
        try:
            url = f"http://127.0.0.1:{peer.port}{peer.path}"
            urllib.request.urlopen(urllib.request.Request(url, body, lines), timeout=30).read()
            return
        except OSError as error:
            told = str(error)
            time.sleep(0.2)
    raise TimeoutError(f"{name} did not answer: {told}")


async def _compare(
    model: str, peers: dict[str, Peer], runtime: subprocess.Popen[str], requests: int, rounds: int
) -> None:
    for encoding in ("binary", "json"):
        clients = {
            name: PeerClient(peer, encoding)
            for name, peer in peers.items()
            if encoding in peer.encodings
        }
        for client in clients.values():
            await closed_loop(client, 10, 1)
        for at_once in (1, 8, 32):
            more: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(rounds):
                alone = _runs(runtime, max(20, requests // 2))
                for name, client in clients.items():
                    before = peers[name].cpu_ms()
                    await closed_loop(client, requests, at_once)
                    more[name].append((peers[name].cpu_ms() - before) / requests - alone)
            told = ", ".join(f"{n} {statistics.median(ms):.2f}" for n, ms in more.items())
            print(f"{model:8} {encoding:6} c={at_once:2}: overhead in ms: {told}", flush=True)
        for client in clients.values():
            client.close()


def compare(
    folder: Path, root: str, name: str, requests: int, rounds: int, without: Sequence[str] = ()
) -> None:
    """Print the overhead of each server, then what falling back to the protocol's two gives."""
    with contextlib.ExitStack() as stack:
        ours, port = stack.enter_context(server(root, "--workers", "1", "--threads", "1"))
        mine = Peer(ours.pid, port, ("binary", "json"), f"/v2/models/{name}/infer")
        peers = {"edgeserve": mine}
        for who, other in _others(folder, root, name).items():
            if who not in without:
                peers[who] = stack.enter_context(other)
        runtime = stack.enter_context(bare(root))
        for who, peer in peers.items():
            _until_answering(who, peer)
        _runs(runtime, 20)
        asyncio.run(_compare(name, peers, runtime, requests, rounds))
        for who, binary in (("MLServer", False), ("KServe", True), ("KServe", False)):
            if who in peers:
                _fall_back(root, who, peers[who].port, binary)


def _fall_back(root: str, who: str, port: int, binary: bool) -> None:
    """The contract against another server, its answer beside the device's."""
    x = {"x": np.random.default_rng(1).random(SHAPE, np.float32)}
    url = f"http://127.0.0.1:{port}"
    contract = Fallback(url, when="always", binary=binary, deadline_ms=10_000)
    with Wrapper(root) as device, Wrapper(root, fallback=contract) as cloud:
        here, there = device.predict(x), cloud.predict(x)
    assert there.ran_on is not None
    off = np.abs(here["y"] - there["y"]).max()
    kind = "binary" if binary else "JSON"
    told = f"{there.ran_on.where}, difference {off:.1e}, {there.ran_on.note}"
    print(f"fallback to {who} ({kind}): {told}", flush=True)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peers", help="folder of the peers' environments")
    parser.add_argument("--setup", action="store_true", help="make them, and measure nothing")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--leave-out", action="append", default=[], help="a peer by name")
    parser.add_argument("--model", choices=["identity", "convs"], action="append")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no server is left behind
    if given.setup:
        setup(Path(given.peers))
        return 0
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as folder:
        for name in given.model or ("identity", "convs"):
            root = bundle(Path(folder), name)
            compare(Path(given.peers), root, name, given.requests, given.rounds, given.leave_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
