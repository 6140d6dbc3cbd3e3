"""The harness of the attacks catches what it is there for."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.benchmarks.attacks.endpoint import Endpoint, Served, started
from dev.benchmarks.attacks.registry import Attack, Tally, load
from dev.benchmarks.attacks.runner import Outcome, Settings, run
from dev.benchmarks.attacks.watch import Sampler, latency
from dev.benchmarks.attacks.wire import AnswerReader
from dev.benchmarks.serve import _free

#: A server that keeps so many bytes of each request, and answers `health` after so many seconds.
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, leak, wait, status = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
kept = []
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(wait * ("health" in self.path))
        kept.append(bytearray(leak))
        body = b'{"answer":{"label":"cat"}}'
        live = "health" in self.path or self.command == "POST"
        self.send_response(200 if live else status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()
    def log_message(self, *words):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 128
Server(("127.0.0.1", port), Handler).serve_forever()
"""


def tried(folder: Path, leak: int = 0, wait: float = 0.0, status: int = 200) -> Outcome:
    """The outcome of one attack on such a server, with 16 + 64 MB allowed."""

    @contextmanager
    def start(attack: Attack, where: Path) -> Iterator[Endpoint]:
        port = _free()
        words = [sys.executable, "-c", SERVER, str(port), str(leak), str(wait), str(status)]
        with (where / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as process:
            try:
                made = Endpoint(
                    process, port, 0, Served("", "m", b"x", "cat"), False, has_grpc=False
                )
                started(made)
                yield made
            finally:
                process.kill()

    settings = Settings(seconds=1.0, after_s=0.2, inflight_mb=16)
    attack = load()["protocol: another path in every request"]
    return run(attack, start, folder, settings, threading.Lock())


def test_a_good_server_passes(tmp_path: Path) -> None:
    outcome = tried(tmp_path)
    assert outcome.statuses["200"] > 0
    # How long others wait depends on what else runs on the machine.
    assert [one for one in outcome.failures if not one.startswith("others wait ")] == []


def test_a_server_that_leaks_and_stalls_and_has_no_codes_is_caught(tmp_path: Path) -> None:
    outcome = tried(tmp_path, leak=2 << 20, wait=0.4, status=404)
    memory, stall, *uncoded = outcome.failures
    assert memory.endswith("MB above the warm-up, 80 are allowed")
    assert stall.startswith("others wait ")
    assert uncoded
    assert all(line.startswith("404 ") for line in uncoded)


@pytest.mark.parametrize("depth", [0, 1])
def test_the_sampler_sees_memory_of_the_whole_tree(depth: int) -> None:
    hold = "import time; held = bytearray(100 << 20); time.sleep(30)"
    words = [sys.executable, "-c", hold]
    for _ in range(depth):
        words = [sys.executable, "-c", f"import subprocess; subprocess.run({words!r})"]
    with subprocess.Popen(words) as process:
        sampler = Sampler(process.pid, ceiling_mb=90)
        sampler.start()
        try:
            end = time.monotonic() + 10
            while not sampler.killed and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            sampler.end()
    assert 90 < sampler.peak_mb(0.0) < 150  # killed while it was still being filled, or after
    assert sampler.killed


def test_a_stall_counts_for_the_probes_that_it_prevents() -> None:
    calm = latency([0.001] * 1000)
    assert calm.p99 == pytest.approx(1.0)
    stalled = latency([0.001] * 1000 + [5.0])
    assert stalled.p50 == pytest.approx(1.0)
    assert stalled.p99 > 4000
    assert stalled.longest == pytest.approx(5000)


def test_answers_are_counted_however_they_are_cut() -> None:
    coded = b'{"code":"EDGE-SERVE-012"}'
    stream = b"HTTP/1.1 100 Continue\r\n\r\n"
    for status, body in ((200, b"{}"), (400, coded), (503, coded), (500, coded), (404, b"no")):
        stream += b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    tally = Tally()
    reader = AnswerReader(tally)
    for i in range(len(stream)):
        reader.feed(stream[i : i + 1])
    assert tally.statuses == {"200": 1, "400": 1, "503": 1, "500": 1, "404": 1}
    assert [line[:3] for line in tally.wrong] == ["500", "404"]


def test_there_are_many_attacks_of_many_kinds() -> None:
    attacks = load().values()
    assert len(attacks) >= 60
    kinds = [kind for kind, _ in itertools.groupby(attacks, lambda one: one.kind)]
    assert len(kinds) == len(set(kinds)) >= 13
