"""Whatever lies at a model's path when it is loaded again: the old one answers, others are loaded.

The models are run by the real ONNX Runtime, the trials in real child processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from edgeserve.wrapper import prober

#: What one trial may take here, seconds and megabytes.
_LIMIT_S, _LIMIT_MB = 4.0, 700
_LOAD = "/v2/repository/models/tagger/load"


@pytest.fixture
def make(models: Any, tmp_path: Path, write_reports: Callable[[Path], None]) -> Any:
    (tmp_path / "workspaces").mkdir()
    return models.Make(tmp_path / "workspaces", write_reports)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "PROBE_LIMIT_S", _LIMIT_S)
    monkeypatch.setenv("EDGESERVE_WORKER_MB", str(_LIMIT_MB))


def expanding(make: Any, elements: int) -> bytes:
    """A model of a few hundred bytes that makes a tensor of so many float32."""
    from onnx import helper

    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["huge"]),
        helper.make_node("ReduceMax", ["huge"], ["most"], keepdims=0),
        helper.make_node("Add", ["image", "most"], ["sum"]),
        helper.make_node("Flatten", ["sum"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["logits"]),
    ]
    weights = {"one": np.zeros(1, np.float32), "shape": np.array([elements], np.int64)}
    return bytes(make.model(nodes, make.batch(), {"w": make.w, "b": make.b, **weights}))


def put(path: Path, what: bytes | Path | Callable[[Path], object]) -> None:
    """Let bytes, a copy of a file or folder, or something odd lie at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if isinstance(what, bytes):
        path.write_bytes(what)
    elif isinstance(what, Path):
        (shutil.copytree if what.is_dir() else shutil.copy)(what, path)
    else:
        what(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def test_a_bad_bundle_leaves_the_old_one_answering(
    make: Any, models: Any, asgi: Any, tmp_path: Path
) -> None:
    root = make.workspace()
    good = make.bundle(root).read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1

    def changed(name: str, data: bytes | None) -> Callable[[Path], None]:
        def at(path: Path) -> None:
            shutil.copytree(root, path)
            (path / name).unlink()
            if data is None:
                os.mkfifo(path / name)
            else:
                (path / name).write_bytes(data)

        return at

    def of(data: bytes, **fields: Any) -> Path:
        return Path(make.workspace(make.made("onnx-fp32", data), **fields))

    model = "artifacts/onnx-fp32/model.onnx"
    cases: dict[str, bytes | Path | Callable[[Path], object]] = {
        "truncated": good[:-100],
        "empty": b"",
        "random": np.random.default_rng(0).bytes(10_000),
        "deleted": lambda path: None,
        "a folder": Path.mkdir,
        "a link to itself": lambda path: path.symlink_to(path),
        "a pipe": os.mkfifo,
        "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "half copied": good[: len(good) // 2],
        "another name": of(make.classifier(), name="other"),
        "a wrong golden case": of(models.classifier(sign_of_w=-1.0)),
        "endless": of(make.endless()),
        "8 GB": of(expanding(make, 2 * 10**9), golden=False),
        # Neighbours.
        "more than any memory": of(expanding(make, 1 << 62)),
        "one bit": bytes(flipped),
        "bytes behind the end": good + b"\0",
        "two bundles": good + good,
        "a socket": listening,
        "a link to a terminal's end": lambda path: path.symlink_to("/dev/ptmx"),
        "no model": of(b""),
        "a model of noise": of(np.random.default_rng(1).bytes(5000)),
        "a manifest that is a pipe": changed("manifest.json", None),
        "a model that is a pipe": changed(model, None),
        "another model": changed(model, make.classifier() + b"\0"),
        "a manifest of lists": changed("manifest.json", b"[" * 100_000),
    }
    swapped, beside = tmp_path / "swapped", of(make.classifier(), name="beside")
    put(swapped, good)
    end = asgi(str(swapped), str(beside))
    photo = models.png(models.pixels(1))
    answer = end.call("POST", "/v2/models/tagger/predict", photo).json
    for name, what in cases.items():
        put(swapped, what)
        began = time.monotonic()
        said = end.call("POST", _LOAD)
        assert (said.status, said.json["code"]) == (503, "EDGE-SERVE-018"), name
        assert "goes on answering" in said.json["error"], name
        assert time.monotonic() - began < 5 * _LIMIT_S, name
        assert end.call("POST", "/v2/models/tagger/predict", photo).json == answer, name
    assert psutil.Process().memory_info().rss < 2 << 30, "somebody else took the memory"
    put(swapped, of(make.endless()))
    began = time.monotonic()
    assert end.call("POST", _LOAD).status == 503
    assert time.monotonic() - began < 1, "what hung is remembered"
    put(swapped, good)
    assert end.call("POST", _LOAD).status == 200


def test_a_load_that_hangs_holds_nobody_up_and_can_be_stopped(
    make: Any, models: Any, asgi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "PROBE_LIMIT_S", 60.0)
    swapped = tmp_path / "swapped"
    put(swapped, make.workspace())
    end = asgi(str(swapped), str(make.workspace(name="beside")))
    bad = make.workspace(make.made("onnx-fp32", make.endless()))
    put(swapped, bad)
    photo = models.png(models.pixels(1))

    repository, cache = end.app.service.repository, Path(os.environ["EDGESERVE_CACHE"]) / "wrapper"

    async def go() -> None:
        before = set(psutil.Process().children(recursive=True))
        hanging = asyncio.ensure_future(end.ask("POST", _LOAD))
        while not list(cache.glob("*.trying")):
            await asyncio.sleep(0.05)
        began = time.monotonic()
        other = await end.ask("POST", _LOAD.replace("tagger", "beside"))
        asked = await end.ask("POST", "/v2/models/tagger/predict", photo)
        assert (other.status, asked.status) == (200, 200)
        again = asyncio.ensure_future(end.ask("POST", _LOAD))
        await asyncio.sleep(0.1)
        assert not hanging.done(), "a load of the same bundle waits for its turn"
        put(swapped, make.workspace())
        assert (await end.ask("POST", _LOAD)).status == 200, "another bundle does not"
        assert ((await hanging).status, (await again).status) == (503, 200)
        put(swapped, bad)
        hanging = asyncio.ensure_future(end.ask("POST", _LOAD))
        await asyncio.sleep(0.5)
        await end.ask("POST", _LOAD.replace("/load", "/unload"))
        stopped = await hanging
        assert (stopped.status, stopped.json["code"]) == (503, "EDGE-SERVE-018")
        assert time.monotonic() - began < 5
        while repository._opening and time.monotonic() - began < 5:
            await asyncio.sleep(0.05)
        assert not [*cache.glob("*.trying"), *cache.glob(".tmp-*")], "it would count as crashed"
        left = set(psutil.Process().children(recursive=True)) - before
        assert len([p for p in left if p.is_running()]) <= 1, "only the fork server stays"
        hanging = asyncio.ensure_future(end.ask("POST", _LOAD))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await end.app.stop()
        assert time.monotonic() - began < 2
        assert not [*cache.glob("*.trying"), *cache.glob(".tmp-*")]
        await hanging

    end.run(go())


def test_sigterm_ends_a_process_that_loads_and_answers_without_end(
    make: Any, models: Any, tmp_path: Path
) -> None:
    """Each model waits in its own thread, in the runtime's own code."""
    swapped, port = tmp_path / "swapped", _free_port()
    put(swapped, make.workspace())
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", str(swapped), "--threads", "1"]
    options = ["--workers", "1", "--port", str(port), "--drain-s", "0"]
    with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as process:
        try:
            _post(port, "/v2/models/tagger/predict", models.png(models.pixels(1)), 60)
            put(swapped, make.workspace(make.made("onnx-fp32", make.endless())))
            with pytest.raises(TimeoutError):
                _post(port, _LOAD, b"", 1.0)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert time.monotonic() - began < 3
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _post(port: int, path: str, body: bytes, seconds: float) -> int:
    """Ask, and until the endpoint listens ask again."""
    import http.client

    until = time.monotonic() + 60
    while True:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        try:
            asked.request("POST", path, body)
            return asked.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.1)
        finally:
            asked.close()
