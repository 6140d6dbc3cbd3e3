"""What the endpoint costs beside the model, and what it does when too much is asked of it.

    python -m dev.benchmarks.serve [--seconds 60] [--requests 400]

The server runs on one core, the load on another (Linux, two cores or more). A request is a tensor
of 588 KB in binary. Rounds of the server and of the bare runtime are interleaved, and both are
measured by the processor time of their process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from edgeserve import oip

SHAPE = (1, 3, 224, 224)
#: What the flood sends: bytes of a photo's order, so that the flood is one of work, not of bytes.
SMALL = (1, 3, 32, 32)
BARE = f"""
import sys, time, numpy as np
from edgeserve import Wrapper
wrapper = Wrapper(sys.argv[1], threads=1)
feed = {{"x": np.random.default_rng(1).random({SHAPE!r}, np.float32)}}
for line in sys.stdin:
    start = time.process_time()
    for _ in range(int(line)):
        wrapper.engine.run(feed)
    print(1e3 * (time.process_time() - start) / int(line), flush=True)
"""


def bundle(folder: Path, name: str, most: int = 1) -> str:
    """A workspace of a model without processing: ``identity``, or some convolutions.

    Args:
        folder: Where to write it.
        name: Which: ``identity``, ``convs`` or ``small``.
        most: Largest batch; 1: the batch is fixed.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from edgeserve.bundle.rules import Identity
    from edgeserve.files import describe, sha256_bytes
    from edgeserve.types.artifact import Artifact, Judgement
    from edgeserve.types.base import encode
    from edgeserve.types.manifest import FORMAT_VERSION, Manifest
    from edgeserve.types.processing import Processing
    from edgeserve.types.tensors import IO, Signature, TensorSpec

    rng = np.random.default_rng(3)
    first: int | str = "n" if most > 1 else 1
    shape = (first, *(SMALL if name == "small" else SHAPE)[1:])
    sizes = {"identity": [], "convs": [3, 32, 64, 128, 256], "small": [3, 256, 160]}[name]
    strides = [1, 1] if name == "small" else [2, 2]
    weights = {f"w{i}": rng.normal(size=(b, a, 3, 3)) for i, (a, b) in enumerate(pairwise(sizes))}
    nodes, last = [], "x"
    for i, weight in enumerate(weights):
        nodes.append(
            helper.make_node("Conv", [last, weight], [f"c{i}"], strides=strides, pads=[1] * 4)
        )
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        last = f"r{i}"
    nodes.append(helper.make_node("GlobalAveragePool" if weights else "Identity", [last], ["y"]))
    out = (first, sizes[-1], 1, 1) if weights else shape
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(w.astype(np.float32) / 30, k) for k, w in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    root = folder / name
    (root / "artifacts/onnx-fp32").mkdir(parents=True)
    entry = "artifacts/onnx-fp32/model.onnx"
    (root / entry).write_bytes(made.SerializeToString())
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=shape),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=out),),
        dims={"n": (1, most)} if most > 1 else {},
    )
    artifact = Artifact(
        format="onnx",
        precision="fp32",
        entry=entry,
        files=(describe(root, entry),),
        io=IO(inputs=signature.inputs, outputs=signature.outputs),
        judgement=Judgement(verdict="pass"),
    )
    identity = encode(
        Identity(
            weights=(), graph_sha256="0" * 64, processing=Processing(), labels=(), task="tensors"
        )
    )
    (root / "identity.json").write_bytes(identity)
    files = (describe(root, entry), describe(root, "identity.json"))
    manifest = Manifest(
        edgeserve=FORMAT_VERSION,
        name=name,
        version=1,
        min_wrapper="0.1.0",
        task="tensors",
        model_id=sha256_bytes(identity),
        signature=signature,
        processing=Processing(),
        artifacts=(artifact,),
        files=files,
    )
    (root / "manifest.json").write_bytes(encode(manifest))
    return str(root)


@contextmanager
def server(
    root: str, *options: str, one_core: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The endpoint, on the first core or on all; gives its process and port."""
    port = _free()
    command = [
        sys.executable,
        "-P",
        "-m",
        "edgeserve",
        "serve",
        root,
        "--port",
        str(port),
        *options,
    ]
    if one_core:
        command = ["taskset", "-c", "0", *command]
    env = os.environ | ({"OMP_NUM_THREADS": "1"} if one_core else {})
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env) as process:
        try:
            _until_ready(port)
            yield process, port
        finally:
            process.terminate()


@contextmanager
def bare(root: str) -> Iterator[subprocess.Popen[str]]:
    """The runtime alone on the first core: a number of runs in, milliseconds a run out."""
    command = ["taskset", "-c", "0", sys.executable, "-P", "-c", BARE, root]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.terminate()


def _runs(process: subprocess.Popen[str], count: int) -> float:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _free() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until_ready(port: int) -> None:
    for _ in range(400):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready")
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the endpoint did not start")


def cpu_ms(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client:
    """Requests over kept connections, with as little work of its own as can be.

    Args:
        port: Of the endpoint.
        model: Of these benchmarks.
        deadline_ms: What each request asks for; 0: nothing.
        binary: Tensors behind the JSON; False: as numbers in it.
        feed: Of another model, one sample by input.
    """

    def __init__(
        self,
        port: int,
        model: str,
        deadline_ms: int = 0,
        binary: bool = True,
        feed: dict[str, np.ndarray] | None = None,
    ) -> None:
        shape = SMALL if model == "small" else SHAPE
        feed = feed or {"x": np.random.default_rng(1).random(shape, np.float32)}
        tensors = [oip.Tensor(name, array) for name, array in feed.items()]
        body, head = oip.write_request(tensors, binary=binary)
        lines = f"X-Request-Deadline-Ms: {deadline_ms}\r\n" if deadline_ms else ""
        lines += f"Inference-Header-Content-Length: {head}\r\n" if head else ""
        self.request = (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Content-Type: application/{'octet-stream' if binary else 'json'}\r\n{lines}\r\n"
        ).encode() + body
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self) -> tuple[int, float]:
        """Status, and seconds to the whole answer."""
        began = time.perf_counter()
        link, kept = (self._idle.pop(), True) if self._idle else (await self._open(), False)
        reader, writer = link
        writer.write(self.request)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not kept or error.partial:
                raise
            return await self.ask()  # it was kept longer than the server keeps one
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        self._idle.append(link)
        return int(head[9:12]), time.perf_counter() - began

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def closed_loop(client: Client, count: int, at_once: int) -> list[float]:
    """Ask so often, so many at a time; the seconds of each."""
    took: list[float] = []
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            status, seconds = await client.ask()
            assert status == 200, status
            took.append(seconds)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return took


@dataclass
class Flood:
    """What came of an open loop: seconds of what was answered, and of what was turned away."""

    answered: list[float] = field(default_factory=list)
    shed: list[float] = field(default_factory=list)
    failed: int = 0


async def open_loop(client: Client, rate: float, seconds: float) -> Flood:
    """Ask at a rate that does not wait for answers."""
    found, tasks = Flood(), set()

    async def one() -> None:
        try:
            status, took = await asyncio.wait_for(client.ask(), 30)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            found.failed += 1
            return
        (found.answered if status == 200 else found.shed).append(took)

    start = time.perf_counter()
    for i in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + i / rate - time.perf_counter()))
        task = asyncio.ensure_future(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.sleep(0.05)
    return found


def overhead(root: str, model: str, requests: int, rounds: int = 5, binary: bool = True) -> None:
    """Print the server's processor time a request beyond the bare run's."""
    with server(root, "--workers", "1", "--threads", "1") as (process, port), bare(root) as runtime:
        _runs(runtime, 20)
        client = Client(port, model, binary=binary)
        title = model if binary else f"{model} in JSON"
        asyncio.run(_rounds(client, process.pid, runtime, title, requests, rounds))


async def _rounds(
    client: Client, pid: int, runtime: subprocess.Popen[str], model: str, requests: int, rounds: int
) -> None:
    await closed_loop(client, 20, 1)
    for at_once in (1, 8, 32):
        served, alone, walls = [], [], []
        for _ in range(rounds):
            alone.append(_runs(runtime, max(20, requests // 4)))
            before = cpu_ms(pid)
            walls += await closed_loop(client, requests, at_once)
            served.append((cpu_ms(pid) - before) / requests)
        more = statistics.median(s - a for s, a in zip(served, alone, strict=True))
        print(
            f"{model:13} c={at_once:2}: server {statistics.median(served):6.2f} ms CPU a request, "
            f"bare {statistics.median(alone):6.2f}, overhead {more:5.2f} ms; "
            f"p50 {1e3 * statistics.median(walls):.1f} ms"
        )
    client.close()


def overload(root: str, model: str, seconds: float, deadline_ms: int) -> None:
    """Print what is answered in time at twice and five times what can be answered."""
    with server(root, "--workers", "1", "--threads", "1") as (_, port):
        asyncio.run(_floods(port, model, seconds, deadline_ms))


async def _floods(port: int, model: str, seconds: float, deadline_ms: int) -> None:
    plain, hurried = Client(port, model), Client(port, model, deadline_ms)
    await closed_loop(plain, 50, 4)
    began = time.perf_counter()
    await closed_loop(plain, 400, 4)
    peak = 400 / (time.perf_counter() - began)
    calm = 1e3 * statistics.median(await closed_loop(plain, 50, 1))
    for times in (2, 5):
        flood = await open_loop(hurried, times * peak, seconds)
        good = [t for t in flood.answered if 1e3 * t <= deadline_ms]
        p99 = 1e3 * float(np.percentile(flood.answered, 99))
        shed = 1e3 * float(np.percentile(flood.shed, 99)) if flood.shed else 0.0
        middle = 1e3 * statistics.median(flood.shed or [0])
        print(
            f"{model} {times} x {peak:.0f}/s for {seconds:.0f} s, deadline {deadline_ms} ms: "
            f"goodput {len(good) / seconds / peak:.1%} of peak, p99 of accepted {p99:.0f} ms, "
            f"shed {len(flood.shed)} (p99 {shed:.1f} ms, median {middle:.1f}), "
            f"failed {flood.failed}"
        )
        began = time.perf_counter()
        while 1e3 * statistics.median(await closed_loop(plain, 5, 1)) > 1.5 * calm:
            pass
        print(f"  normal again after {time.perf_counter() - began:.2f} s")
    plain.close()
    hurried.close()


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--deadline-ms", type=int, default=250)
    parser.add_argument("--only", choices=["overhead", "json", "overload"])
    given = parser.parse_args()
    os.sched_setaffinity(0, {1})
    print(json.dumps({"load": os.getloadavg(), "cores": os.cpu_count()}))
    with tempfile.TemporaryDirectory() as folder:
        roots = {name: bundle(Path(folder), name) for name in ("identity", "convs", "small")}
        if given.only in (None, "overhead"):
            for name in ("identity", "convs"):
                overhead(roots[name], name, given.requests)
        if given.only in (None, "json"):
            overhead(roots["convs"], "convs", max(40, given.requests // 5), binary=False)
        if given.only in (None, "overload"):
            overload(roots["small"], "small", given.seconds, given.deadline_ms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
