"""A whole endpoint under requests that nobody sends by accident: 60,000 by machine, 400 by hand.

    python -m dev.benchmarks.hostile [--properties 50000] [--schema 10000]

The endpoint is a process of its own, asked over REST and gRPC: first by the tests' hand-made cases,
then by hypothesis (near-valid JSON, any bytes, the binary extension, paths, messages), then by
schemathesis out of the endpoint's own OpenAPI document. Every answer must be one that the contract
allows: an internal error, an error without a code, a word about the inside, a connection that dies
unanswered, or an answer that the document does not describe is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Unsatisfiable

from dev.benchmarks.raw_clients import INNER, RawHttpClient, grpc_asker
from dev.benchmarks.serve import _free, _until_ready

_TESTS = Path(__file__).parents[2] / "tests"
# The tests' own cases are asked, and import what tests share.
sys.path.append(str(_TESTS / "support"))
from testkit.modules import load  # noqa: E402

#: Answers of 5xx that are no faults: they have a code and say that it is the load or the state.
_BUSY = {"EDGE-SERVE-018", "EDGE-SERVE-020", "EDGE-SERVE-027", "EDGE-SERVE-028"}
_GRPC = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
}


class RequestCounter:
    """What came back, and what should not have."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.wrong: list[str] = []

    def rest(self, asked: Any, status: int, body: bytes) -> None:
        """Count an answer of HTTP; status 0: the connection was closed without one."""
        self.statuses[str(status)] += 1
        if INNER.search(body):
            self.wrong.append(f"tells of the inside: {asked!r}: {body[:300]!r}")
        if 200 <= status < 400:
            return
        try:
            code = json.loads(body)["code"] if body else "none: HEAD"
        except (ValueError, KeyError, TypeError):
            code = ""
        if not code or (status >= 500 and code not in _BUSY):
            self.wrong.append(f"{status} {code}: {asked!r}"[:600])

    def grpc(self, asked: Any, status: str, details: str) -> None:
        """Count an answer of gRPC."""
        self.statuses[status] += 1
        coded = status == "OK" or re.match(r"EDGE-[A-Z]+-\d{3} ", details)
        if status not in _GRPC or not coded or INNER.search(details.encode()):
            self.wrong.append(f"{status} {details[:200]}: {asked!r}"[:600])


@contextmanager
def endpoint(root: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """The command in a process of its own; gives that, its port, and that of gRPC."""
    port, other = _free(), _free()
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", root, "--port", str(port)]
    command += ["--grpc-port", str(other), "--body-mb", "4", "--no-control"]
    command += ["--threads", "1", "--workers", "1", "--deadline-ms", "30000"]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            _until_ready(port)
            yield process, port, other
        finally:
            process.terminate()


def memory_mb(pid: int) -> tuple[float, float]:
    """What a process holds, and the most it ever held."""
    said = Path(f"/proc/{pid}/status").read_text()
    held, most = (re.search(rf"{name}:\s+(\d+) kB", said) for name in ("VmRSS", "VmHWM"))
    assert held
    assert most
    return int(held[1]) / 1024, int(most[1]) / 1024


def by_hand(
    tally: RequestCounter, wire: RawHttpClient, ask_grpc: Callable[[str, bytes], tuple[str, str]]
) -> int:
    """The tests' own cases, over the wire."""
    parts = [load(_TESTS / f"serve/{n}.py", f"sweep_{n}") for n in ("hostile", "hostile_tensors")]
    cases = [*parts[0].cases(), *parts[1].tensor_cases()]
    for name, method, path, body, headers in cases:
        whole = body if isinstance(body, bytes) else b"".join(body)
        tally.rest(name, *wire.ask(method, path, whole, headers))
    calls = load(_TESTS / "serve/hostile_grpc.py", "sweep_grpc").grpc_cases()
    for name, call, data in calls:
        tally.grpc(name, *ask_grpc(call, data))
    return len(cases) + len(calls)


def by_hypothesis(
    tally: RequestCounter,
    wire: RawHttpClient,
    ask_grpc: Callable[[str, bytes], tuple[str, str]],
    count: int,
) -> int:
    """Requests of the tests' strategies, seven of ten over REST."""
    found = load(_TESTS / "serve/properties.py", "sweep_properties")
    done = 0

    def many(strategy: Any, number: int, each: Callable[[Any], None]) -> None:
        how = settings(
            max_examples=number,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )

        def one(asked: Any) -> None:
            nonlocal done
            done += 1
            each(asked)

        how(given(strategy)(one))()

    many(found.REST, count * 7 // 10, lambda asked: tally.rest(asked, *wire.ask(*asked)))
    many(found.GRPC, count * 3 // 10, lambda asked: tally.grpc(asked, *ask_grpc(*asked)))
    return done


def by_schema(tally: RequestCounter, port: int, count: int) -> int:
    """Right and wrong requests out of the OpenAPI document; answers must be as it says."""
    import requests
    import schemathesis
    from schemathesis import checks

    url = f"http://127.0.0.1:{port}"
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    kept = [
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]
    session, done = requests.Session(), 0

    def one(case: Any) -> None:
        nonlocal done
        done += 1
        try:
            response = case.call(base_url=url, session=session, timeout=60)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL):
            done -= 1  # what the client itself does not send
            return
        tally.rest(f"{case.method} {case.formatted_path}", response.status_code, response.content)
        try:
            case.validate_response(response, checks=kept)
        except BaseExceptionGroup as error:
            tally.wrong.append(f"{case.method} {case.formatted_path}: {error.exceptions[0]}"[:600])

    def some(operation: Any, mode: Any, number: int) -> None:
        how = settings(
            max_examples=number,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        with suppress(Unsatisfiable):  # a question without parameters cannot be asked wrongly
            how(given(operation.as_strategy(generation_mode=mode))(one))()

    every = [found.ok() for found in schema.get_all_operations()]
    modes = list(schemathesis.GenerationMode)
    for operation in every:
        for mode in modes:
            some(operation, mode, max(1, count // (4 * len(every))))
    asking = [one for one in every if one.path.endswith(("/infer", "/predict"))]
    while done < count:
        for operation in asking:
            for mode in modes:
                left = max(1, min(500, (count - done) // (2 * len(asking)) + 1))
                some(operation, mode, left)
    return done


def main() -> int:
    """Print what came back; 1 if anything should not have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--properties", type=int, default=50_000)
    parser.add_argument("--schema", type=int, default=10_000)
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    tally, began = RequestCounter(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        models = load(_TESTS / "wrapper/conftest.py", "sweep_models")
        root = str(models.Make(Path(folder), lambda workspace: None).workspace())
        log = Path(folder, "log")
        with endpoint(root, log) as (process, port, other), grpc_asker(other) as ask_grpc:
            wire = RawHttpClient(port)
            steps: list[tuple[str, Callable[[], int]]] = [
                ("by hand", lambda: by_hand(tally, wire, ask_grpc)),
                ("by hypothesis", lambda: by_hypothesis(tally, wire, ask_grpc, given.properties)),
                ("by schemathesis", lambda: by_schema(tally, port, given.schema)),
            ]
            print("at the start: {:.0f} MB held, {:.0f} at most".format(*memory_mb(process.pid)))
            for title, step in steps:
                count = step()
                if process.poll() is not None:
                    print(f"{title}: the endpoint has ended with {process.returncode}")
                    return 1
                held, most = memory_mb(process.pid)
                told = f"{held:.0f} MB held, {most:.0f} at most, {len(tally.wrong)} wrong so far"
                print(f"{title}: {count} requests; {told}", flush=True)
        faults = log.read_text().count('"event":"fault"')
    print(", ".join(f"{status}: {n}" for status, n in sorted(tally.statuses.items())))
    for one in tally.wrong[:20]:
        print(f"WRONG {one}")
    print(
        f"the endpoint lived, internal errors in the log {faults}, "
        f"wrong answers {len(tally.wrong)}, {time.monotonic() - began:.0f} s"
    )
    return 1 if tally.wrong or faults else 0


if __name__ == "__main__":
    sys.exit(main())
