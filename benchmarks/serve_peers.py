"""The endpoint beside MLServer, at equal encoding: processor time a request beyond the bare run.

    python -m venv peers && peers/bin/pip install mlserver==1.7.1 onnxruntime
    python -m benchmarks.serve_peers peers/bin/python [--requests 60]

Both serve the same ONNX file on one core; the load runs on another. MLServer takes JSON only, so
that is what both get. The Wrapper then falls back to MLServer: a server that is not ours.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.serve import (
    SHAPE,
    Client,
    _free,
    _runs,
    _until_ready,
    bare,
    bundle,
    closed_loop,
    cpu_ms,
    server,
)  # fmt: skip
from edgeserve import Wrapper, oip
from edgeserve.wrapper.fallback import Fallback

__all__ = ["main"]

RUNTIME = """
import numpy as np, onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Onnx(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        [y] = self.session.run(["y"], {"x": x})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
"""


@contextmanager
def mlserver(python: str, root: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """MLServer on the first core, without worker processes; gives its process and port."""
    port = _free()
    folder.mkdir()
    (folder / "onnx_runtime.py").write_text(RUNTIME)
    settings = {
        "debug": False, "parallel_workers": 0, "http_port": port, "grpc_port": _free(),
        "metrics_port": _free(), "host": "127.0.0.1",
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    uri = f"{root}/artifacts/onnx-fp32/model.onnx"
    model = {
        "name": Path(root).name,
        "implementation": "onnx_runtime.Onnx",
        "parameters": {"uri": uri},
    }
    (folder / "model-settings.json").write_text(json.dumps(model))
    command = ["taskset", "-c", "0", str(Path(python).absolute().parent / "mlserver"), "start", "."]
    env = os.environ | {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _until_ready(port)
            yield process, port
        finally:
            process.terminate()


class JsonClient(Client):
    """The same request in JSON."""

    def __init__(self, port: int, model: str) -> None:
        super().__init__(port, model)
        x = np.random.default_rng(1).random(SHAPE, np.float32)
        body, _ = oip.write_request([oip.Tensor("x", x)], binary=False)
        self.request = (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


async def _compare(
    servers: dict[str, tuple[int, int]], runtime: subprocess.Popen[str], requests: int
) -> None:
    clients = {name: JsonClient(port, "convs") for name, (_, port) in servers.items()}
    for client in clients.values():
        await closed_loop(client, 10, 1)
    for at_once in (1, 8):
        more: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(4):
            alone = _runs(runtime, 60)
            for name, client in clients.items():
                before = cpu_ms(servers[name][0])
                await closed_loop(client, requests, at_once)
                more[name].append((cpu_ms(servers[name][0]) - before) / requests - alone)
        told = ", ".join(f"{name} {statistics.median(ms):.2f} ms" for name, ms in more.items())
        print(f"JSON, c={at_once}: overhead {told}")
    for client in clients.values():
        client.close()


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("python", help="of an environment that holds mlserver and onnxruntime")
    parser.add_argument("--requests", type=int, default=60)
    given = parser.parse_args()
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as folder:
        root = bundle(Path(folder), "convs")
        with (
            server(root, "--workers", "1", "--threads", "1") as (ours, port),
            mlserver(given.python, root, Path(folder) / "mlserver") as (theirs, other),
            bare(root) as runtime,
        ):
            _runs(runtime, 20)
            pairs = {"edgeserve": (ours.pid, port), "MLServer": (theirs.pid, other)}
            asyncio.run(_compare(pairs, runtime, given.requests))
            _fall_back(root, other)
    return 0


def _fall_back(root: str, port: int) -> None:
    """The contract against MLServer, its answer beside the device's."""
    x = {"x": np.random.default_rng(1).random(SHAPE, np.float32)}
    contract = Fallback(f"http://127.0.0.1:{port}", when="always", binary=False, deadline_ms=10_000)
    with Wrapper(root) as device, Wrapper(root, fallback=contract) as cloud:
        here, there = device.predict(x), cloud.predict(x)
    assert there.ran_on is not None
    off = np.abs(here["y"] - there["y"]).max()
    print(f"fallback to MLServer: {there.ran_on.where}, difference {off:.1e}, {there.ran_on.note}")


if __name__ == "__main__":
    sys.exit(main())
