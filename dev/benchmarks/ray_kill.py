"""Ray Serve over two nodes, one of them killed under load: how many requests fail.

    python -m dev.benchmarks.ray_kill [--requests 500] [--at-once 8]

Both nodes are on this machine (`ray.cluster_utils.Cluster`); requests come at the first one's
proxy, and each node holds a replica. After a fifth of the requests the second node is killed with
all that runs on it. Exit 1 if a request failed, or an answer is not the bare model's.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dev.benchmarks.processes import descendants
from dev.benchmarks.serve import SHAPE, _free, bundle
from edgeserve import Wrapper, oip


@dataclass
class Two:
    """Two nodes and an application on them."""

    cluster: Any
    second: Any
    port: int

    def kill(self) -> None:
        """End the second node as a power cut does: all that runs on it, at one moment."""
        [raylet] = self.second.all_processes["raylet"]
        for pid in (*descendants(raylet.process.pid), raylet.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(self.second, allow_graceful=False)


@contextmanager
def two_nodes(**args: Any) -> Iterator[Two]:
    """An application on two nodes of one processor each, a replica on each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from edgeserve.serve.ray import build

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        port = _free()
        options = {"host": "127.0.0.1", "port": port}
        serve.start(proxy_location="HeadOnly", http_options=options)
        serve.run(build({"replicas": 2, "cpus": 1, **args}), name="edgeserve")
        yield Two(cluster, second, port)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


def load(
    ask: Callable[[int], Any], count: int, at_once: int, halfway: Callable[[], None]
) -> list[Any]:
    """Ask so often from so many threads; ``halfway`` is called after a fifth of the answers."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(ask, i) for i in range(count)]
        concurrent.futures.wait(asked[: count // 5])
        halfway()
        return [one.result() for one in asked]


def main() -> int:
    """Print what became of the requests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    x = np.random.default_rng(1).random(SHAPE, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        root = bundle(Path(folder), "convs")
        with Wrapper(root, threads=1) as bare:
            right, model_id = bare.predict({"x": x})["y"], bare.manifest.model_id
        body, head = oip.write_request([oip.Tensor("x", x)])
        headers = {"Inference-Header-Content-Length": str(head)}
        began = time.perf_counter()
        with two_nodes(bundles=[root], deadline_ms=20_000) as two:
            print(f"two nodes and two replicas after {time.perf_counter() - began:.1f} s")
            url = f"http://127.0.0.1:{two.port}/v2/models/convs/infer"

            def ask(_: int) -> tuple[str, float]:
                sent = time.perf_counter()
                told = _ask(url, body, headers, right, model_id)
                return told, time.perf_counter() - sent

            answers = load(ask, given.requests, given.at_once, two.kill)
    told = collections.Counter(told for told, _ in answers)
    took = [1e3 * seconds for _, seconds in answers]
    print(json.dumps(told), f"median {statistics.median(took):.0f} ms, longest {max(took):.0f} ms")
    return 0 if told["right"] == given.requests else 1


def _ask(url: str, body: bytes, headers: dict[str, str], right: np.ndarray, model_id: str) -> str:
    """What became of a request: "right", or what went wrong."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=60
        ) as reply:
            answer = oip.read_response(
                reply.read(), int(reply.headers["Inference-Header-Content-Length"])
            )
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()[:100]!r}"
    except OSError as error:
        return type(error).__name__
    same = np.allclose(answer.outputs[0].array, right, rtol=1e-4, atol=1e-5)
    return "right" if same and answer.parameters["model_id"] == model_id else "another answer"


if __name__ == "__main__":
    sys.exit(main())
