"""Memory of a process tree and the latency of somebody else, while an attack goes on."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

#: Seconds between two looks at the memory, and between two probes of `health/live`.
SAMPLE_S, PROBE_S = 0.05, 0.02
_PROBE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#: A probe that has no answer by then is made again; its time goes on.
_GIVE_UP_S = 20.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MB = 1 << 20
#: Of the repository, where processes of this package start.
ROOT = Path(__file__).parents[3]


def tree_mb(pid: int) -> float:
    """Resident memory of a process and all below it, MB; pages that they share count for each."""
    total, left = 0, [pid]
    while left:
        one = Path(f"/proc/{left.pop()}")
        with suppress(OSError, IndexError, ValueError):
            total += int((one / "statm").read_text().split()[1])
            for task in (one / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
    return total * _PAGE / _MB


class Sampler(threading.Thread):
    """Looks at the memory of a process tree every 50 ms.

    A process that takes more than the ceiling is killed, so that an attack cannot take the
    machine.

    Args:
        pid: Of the process.
        ceiling_mb: What it may take at most.
    """

    def __init__(self, pid: int, ceiling_mb: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._ceiling = pid, ceiling_mb
        self._ended = threading.Event()
        self.samples: list[tuple[float, float]] = []
        self.killed = False

    def run(self) -> None:
        """Sample until `end`."""
        while not self._ended.wait(SAMPLE_S):
            held = tree_mb(self._pid)
            self.samples.append((time.monotonic(), held))
            if held > self._ceiling and not self.killed:
                self.killed = True
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def end(self) -> None:
        """Stop, and wait until it has."""
        self._ended.set()
        self.join()

    def peak_mb(self, since: float, until: float = float("inf")) -> float:
        """The most that was seen in that time."""
        return max((held for at, held in self.samples if since <= at <= until), default=0.0)


class Latency(NamedTuple):
    """Milliseconds that somebody else waited, and how many probes there were."""

    p50: float
    p99: float
    longest: float
    probes: int


def latency(waits: Sequence[float]) -> Latency:
    """Figures of waits in seconds, corrected for the probes that a long wait kept from being made.

    A prober that waits for an answer makes no further probes, so that a stall of 5 s would count
    once. Each wait therefore stands also for those that would have begun during it, as in
    HdrHistogram's correction for coordinated omission.
    """
    every = []
    for wait in waits:
        every.append(wait)
        every += [wait - i * PROBE_S for i in range(1, int(wait / PROBE_S))]
    every.sort()
    if not every:
        return Latency(float("inf"), float("inf"), float("inf"), 0)
    middle, high = (every[min(len(every) - 1, int(len(every) * q))] for q in (0.5, 0.99))
    return Latency(1e3 * middle, 1e3 * high, 1e3 * every[-1], len(waits))


class Prober:
    """Waits of a process of its own that asks `health/live` over new connections.

    Attributes:
        waits: When each probe began, on the monotonic clock, and the seconds until its answer.
    """

    def __init__(self) -> None:
        self.waits: list[tuple[float, float]] = []

    def between(self, since: float, until: float) -> Latency:
        """Figures of what was asked in that time."""
        return latency([wait for began, wait in self.waits if since <= began <= until])


@contextmanager
def probing(port: int, tls: bool = False) -> Iterator[Prober]:
    """Probe while the block runs; the waits are there after it."""
    command = [sys.executable, "-m", "dev.benchmarks.attacks.watch", str(port)]
    command += ["--tls"] if tls else []
    made = Prober()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield made
        finally:
            out, _ = process.communicate(timeout=60)
            made.waits = [(began, wait) for began, wait in json.loads(out or "[]")]


def _probe_until_told(port: int, tls: bool) -> None:
    """Probe until standard input ends; the probe that is under way then counts as it stands."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waits: list[tuple[float, float]] = []
    print("ready", flush=True)
    while not ended.is_set():
        began = time.monotonic()
        while not ended.is_set() and not _answered(port, tls, ended):
            time.sleep(PROBE_S)
        waits.append((began, time.monotonic() - began))
        time.sleep(PROBE_S)
    print(json.dumps(waits))


def _answered(port: int, tls: bool, ended: threading.Event) -> bool:
    """Whether `health/live` answers 200 over a new connection."""
    import socket
    import ssl

    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_GIVE_UP_S) as plain:
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                link: socket.socket = context.wrap_socket(plain)
            else:
                link = plain
            link.sendall(_PROBE)
            link.settimeout(0.5)
            said, end = b"", time.monotonic() + _GIVE_UP_S
            while len(said) < 12 and time.monotonic() < end and not ended.is_set():
                with suppress(TimeoutError):
                    piece = link.recv(4096)
                    said += piece
                    if not piece:
                        break
            return said[9:12] == b"200"
    except OSError:
        return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    _probe_until_told(given.port, given.tls)
