"""The command itself, as an operator starts and ends it; TLS; options."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeserve import Wrapper
from edgeserve.durations import Throughput
from edgeserve.errors import ServeError
from edgeserve.serve import ServeOptions
from edgeserve.serve.auth import read_keys
from edgeserve.serve.loaded_model import ConcurrencyPlan, best_plan, concurrency_plans
from edgeserve.wrapper.fallback import Fallback


def test_the_command_serves_until_it_is_told_to_end(tagger: str) -> None:
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", tagger, "--port", "0"]
    command += ["--threads", "1", "--workers", "1", "--drain-s", "0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        events = [json.loads(process.stderr.readline()) for _ in range(2)]
        assert [event["event"] for event in events] == ["load", "serving"]
        link = http.client.HTTPConnection("127.0.0.1", events[1]["port"], timeout=30)
        link.request("GET", "/v2/health/ready")
        assert link.getresponse().read() == b'{"ready":true}'
        link.close()
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line)["event"] for line in process.stderr]
        assert process.wait(30) == 0
    assert rest == ["draining", "ended"]


def test_an_option_that_cannot_be_says_so(tagger: str) -> None:
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", tagger, "--queue", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "EDGE-SERVE-002" in done.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"bundles": ()},
        {"queue": 0},
        {"batch": 0},
        {"port": -1},
        {"deadline_ms": float("nan")},
        {"tls_cert": "x"},
        {"threads": 0},
        {"drain_s": -1.0},
        {"body_mb": 0},
        {"port": 99_999},
        {"grpc_port": 65_536},
        {"body_s": 0},
        {"port": 81, "grpc_port": 81},
    ],
)
def test_options_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(ServeError) as error:
        ServeOptions(**({"bundles": ("x",)} | fields))
    assert error.value.code == "EDGE-SERVE-002"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_control_is_allowed_on_this_machine(host: str) -> None:
    assert ServeOptions(bundles=("x",), host=host).controllable
    assert not ServeOptions(bundles=("x",), host=host, control=False).controllable


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu.example.com"])
def test_control_is_not_where_others_are(host: str) -> None:
    assert not ServeOptions(bundles=("x",), host=host).controllable
    assert ServeOptions(bundles=("x",), host=host, keys="keys").controllable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "phone\n",
        "phone short\n",
        "a abcdefghijklmnop x\n",
        "a abcdefghijklmnop 0\n",
        "a b c d\n",
    ],
)
def test_key_files_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ServeError) as error:
        read_keys(str(tmp_path / "keys"))
    assert error.value.code == "EDGE-SERVE-004"


def test_threads_are_measured_not_counted() -> None:
    assert concurrency_plans(None, None, 1) == [ConcurrencyPlan(1, 1)]
    assert concurrency_plans(2, 3, 4) == [ConcurrencyPlan(2, 3)]
    assert all(plan.threads * plan.workers <= 8 for plan in concurrency_plans(None, None, 8))
    slow_together = {
        ConcurrencyPlan(4, 1): Throughput(100, 0.01),
        ConcurrencyPlan(1, 4): Throughput(90, 0.044),
    }
    assert best_plan(slow_together) == ConcurrencyPlan(4, 1)
    fast_together = {
        ConcurrencyPlan(4, 1): Throughput(100, 0.01),
        ConcurrencyPlan(1, 4): Throughput(300, 0.0133),
    }
    assert best_plan(fast_together) == ConcurrencyPlan(1, 4)
    about_the_same = {
        ConcurrencyPlan(4, 1): Throughput(100, 0.01),
        ConcurrencyPlan(1, 4): Throughput(105, 0.04),
    }
    assert best_plan(about_the_same) == ConcurrencyPlan(4, 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for this machine and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls(live: Callable[..., Any], tagger: str, models: Any, pair: tuple[str, str]) -> None:
    end = live(tagger, tls_cert=pair[0], tls_key=pair[1])
    link = http.client.HTTPSConnection(
        "127.0.0.1",
        end.running.port,
        timeout=30,
        context=ssl.create_default_context(cafile=pair[0]),
    )
    link.request("GET", "/v2")
    assert json.loads(link.getresponse().read())["name"] == "edgeserve"
    link.close()
    url = f"https://127.0.0.1:{end.running.port}"
    trusting = Fallback(url, when="always", ca=pair[0], deadline_ms=20_000)
    with Wrapper(tagger, fallback=trusting) as tagged:
        assert tagged.predict(models.pixels(3)).ran_on.where == "cloud"
    with Wrapper(tagger, fallback=Fallback(url, when="always", deadline_ms=20_000)) as tagged:
        ran_on = tagged.predict(models.pixels(3)).ran_on
    assert ran_on.where == "device"
    assert "its certificate is not trusted" in ran_on.note


def test_a_certificate_that_is_none(live: Callable[..., Any], tagger: str, tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    with pytest.raises(ServeError) as error:
        live(tagger, tls_cert=str(tmp_path / "x.pem"), tls_key=str(tmp_path / "x.pem"))
    assert error.value.code == "EDGE-SERVE-005"


def test_what_would_end_it_later_is_found_before_a_model_is_loaded(
    live: Callable[..., Any], tagger: str, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from edgeserve.serve.repository import Repository

    async def never(self: Repository) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(Repository, "start", never)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        with pytest.raises(ServeError) as error:
            live(tagger, grpc_port=other.getsockname()[1])
    assert error.value.code == "EDGE-SERVE-001"
    assert "--grpc-port" in error.value.hint
    with pytest.raises(ServeError) as error:
        live(tagger, tls_cert=pair[1], tls_key=pair[0])
    assert error.value.code == "EDGE-SERVE-005"
    with pytest.raises(ServeError) as error:
        live(tagger, host="nosuchhost.invalid", no_keys=True)
    assert error.value.code == "EDGE-SERVE-001"
    assert "--host" in error.value.hint


@pytest.mark.parametrize(
    "words",
    [
        ["--replicas", "2"],
        ["--max-replicas", "2"],
        ["--models-per-replica", "1"],
        ["--address", "auto"],
        ["--cpus", "2"],
        ["--gpus", "1"],
        ["-o", "x"],
        ["--force"],
        ["--image", "x"],
        ["--emit", "docker", "--address", "auto"],
        ["--emit", "docker", "-o", ""],
        ["--emit", "docker", "--engine", "ray"],
        ["--engine", "horse"],
        ["--emit", "docker", "--port", "99999"],
        ["--pin", "nope", "--lazy"],
    ],
)
def test_an_option_that_nobody_would_read_is_refused(words: list[str], tagger: str) -> None:
    from typer.testing import CliRunner

    from edgeserve.cli.app import app

    before = signal.getsignal(signal.SIGTERM)
    try:
        said = CliRunner().invoke(app, ["serve", tagger, *words, "--json"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said.exit_code == 3
    assert json.loads(said.stdout)["error"]["code"] == "EDGE-SERVE-002"


def test_an_interrupted_start_promises_no_resuming(
    tagger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from edgeserve.cli.app import app

    def stopped(options: ServeOptions) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("edgeserve.serve.serve", stopped)
    try:
        said = CliRunner().invoke(app, ["serve", tagger, "--json"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said.exit_code == 130
    error = json.loads(said.stdout)["error"]
    assert error["code"] == "EDGE-USAGE-007"
    assert "resume" not in error["hint"]


def test_slow_senders_are_let_go(live: Callable[..., Any], tagger: str) -> None:
    import socket

    end = live(tagger, body_s=0.3)
    with socket.create_connection(("127.0.0.1", end.running.port), timeout=20) as link:
        link.sendall(
            b"POST /v2/models/tagger/predict HTTP/1.1\r\nhost: localhost\r\n"
            b"content-length: 9\r\n\r\nab"
        )
        began = time.monotonic()
        said = link.recv(65536)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"EDGE-SERVE-015" in said
    assert time.monotonic() - began < 15
