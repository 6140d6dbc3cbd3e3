"""Our connection over uvicorn beside uvicorn alone, granian and hypercorn, under the same attacks.

    pip install granian hypercorn                 # in another environment
    python -m dev.benchmarks.attacks.peers FOLDER [--app plain|served] [--speed]
        [--only TEXT] [--server NAME]

FOLDER is that environment's ``site-packages``. Each server has one core and one process of Python,
the attackers the other core. Prints a table of memory and of what others wait; ``--speed`` prints
the CPU time of a request and its latency instead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from dev.benchmarks.attacks.endpoint import OTHER_CORE, Endpoint, Models, Served, pinned, started
from dev.benchmarks.attacks.registry import Attack, chosen, load
from dev.benchmarks.attacks.runner import EXTRA_MB, Outcome, Settings, run
from dev.benchmarks.attacks.wire import head
from dev.benchmarks.processes import descendants
from dev.benchmarks.serve import Client, _free, bundle, closed_loop, cpu_ms

_MODULE = "dev.benchmarks.attacks.peer_apps"
_HYPERCORN = "--worker-class uvloop --workers 1 --backlog 2048".split()
SERVERS = ("edgeserve", "uvicorn", "granian", "hypercorn")
#: The attacks that are HTTP's own, whatever the application is.
ATTACKS = (
    "pipelining: GET, 8 connections",
    "pipelining: POST, 8 connections",
    "pipelining: large answers, 20 connections",
    "head: endless value of a header",
    "head: endless extension of a chunk",
    "head: endless chunks of one byte",
    "head: endless value of a trailer",
    "head: nearly whole and held, 1000 connections",
    "slow: heads, a byte a second, 500 connections",
    "slow: body of a GET, a byte in 0.5 s, 200 connections",
    "slow: fast body of a GET that has an answer, 8 connections",
    "slow: bodies held before their last byte, 20 of 60 MB",
    "connections: 2000 idle",
    "protocol: Expect: 100-continue, pipelined without reading",
)


def command(name: str, app: str, port: int) -> list[str]:
    """How a server is started."""
    if name != "hypercorn":
        return [sys.executable, "-m", _MODULE, name, app, str(port)]
    where = f"{_MODULE}:{app}"
    return [sys.executable, "-m", "hypercorn", *_HYPERCORN, "--bind", f"127.0.0.1:{port}", where]


@contextmanager
def peer(
    name: str, app: str, served: Served, site: str, attack: Attack, folder: Path
) -> Iterator[Endpoint]:
    """A server with the application, as `endpoint` gives the product."""
    port = _free()
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), site])
    env = os.environ | {"PYTHONPATH": path, "ATTACKED_BUNDLE": served.root}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*pinned(attack.files), *command(name, app, port)], stderr=log, env=env
        ) as process,
    ):
        below: list[int] = []
        try:
            made = Endpoint(process, port, 0, served, False, has_grpc=False)
            started(made)
            below = descendants(process.pid)
            yield made
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
            for pid in below:
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)


def attacked(
    servers: list[str], site: str, app: str, only: list[str] | None, models: Models, folder: Path
) -> None:
    """Print a line for each attack with what each server holds."""
    served = models["photo"] if app == "served" else Served("", "tagger", b"x")
    every, settings = load(), Settings(seconds=3, after_s=0.5)
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    print("| attack | " + " | ".join(servers) + " |\n|---|" + "---|" * len(servers))
    for name in chosen(ATTACKS, only):
        row = []
        for server in servers:
            start = partial(peer, server, app, served, site)
            row.append(_cell(run(every[name], start, folder, settings, threading.Lock())))
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


def _cell(found: Outcome) -> str:
    """Memory that was taken and p99 of others; in bold what is beyond the limits."""
    more = found.peak_mb - found.warm_mb
    memory, wait = f"{more:.0f} MB", f"{found.p99_ms:.0f} ms"
    memory = f"**{memory}**" if more > Settings.inflight_mb + EXTRA_MB else memory
    wait = f"**{wait}**" if found.p99_ms > 250 else wait
    marks = {"afterwards": "lost", "has ended": "ended", "killed": "killed"}
    found_marks = [
        f", **{mark}**" for word, mark in marks.items() if any(word in f for f in found.failures)
    ]
    return f"{memory}, {wait}{''.join(found_marks)}"


def speed(
    servers: list[str], site: str, folder: Path, requests: int = 400, rounds: int = 5
) -> None:
    """Print CPU time and latency of a request, rounds of all servers interleaved."""
    root = bundle(folder, "identity")
    served = Served(root, "identity", b"")
    attack = Attack("none", lambda target, tally: None)
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    for title in ("GET /v2/health/live", "588 KB in and out"):
        for server in servers:
            with peer(server, "served", served, site, attack, folder) as made:
                client = Client(made.port, "identity")
                if title.startswith("GET"):
                    client.request = head("GET", "/v2/health/live")
                for at_once in (1, 32):
                    asyncio.run(_measure(client, made, title, server, at_once, requests, rounds))


async def _measure(
    client: Client, made: Endpoint, title: str, server: str, at_once: int, count: int, rounds: int
) -> None:
    await closed_loop(client, 50, at_once)
    pids = [made.process.pid, *descendants(made.process.pid)]
    costs, walls = [], []
    for _ in range(rounds):
        before = sum(map(cpu_ms, pids))
        walls += await closed_loop(client, count, at_once)
        costs.append((sum(map(cpu_ms, pids)) - before) / count)
    p50, p99 = (1e3 * float(np.percentile(walls, q)) for q in (50, 99))
    cost = statistics.median(costs)
    times = f"{cost:.2f} ms CPU, p50 {p50:.2f}, p99 {p99:.2f} ms"
    print(f"{title}, {at_once} at once, {server}: {times}", flush=True)
    client.close()
    client._idle.clear()


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site")
    parser.add_argument("--app", choices=("plain", "served"), default="plain")
    parser.add_argument("--only", action="append", help="attacks whose name holds this")
    parser.add_argument("--server", action="append", choices=SERVERS, help="this alone")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    servers = given.server or list(SERVERS)
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder, "models"))
        if given.speed:
            speed(servers, given.site, Path(folder))
        else:
            attacked(servers, given.site, given.app, given.only, models, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
