"""Conversions under faults, for `fault_loops`: recorded workers, random kills, a full disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import edgeserve.jobs
from dev.benchmarks.fault_injection import Injector
from edgeserve.types.base import Value, decode, encode

_SOURCE = '''"""A classifier of colours; of many weights where the environment says how many."""

import os

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        wide = int(os.environ.get("FAULT_WIDE", "8"))
        self.wide = torch.nn.Linear(12, wide)
        self.back = torch.nn.Linear(wide, 4)

    def forward(self, x):
        return self.back(torch.relu(self.wide(x)))


def build():
    return Net().eval(), (torch.rand(2, 12),), {"input_names": ["x"], "output_names": ["y"]}
'''
#: A classifier's weights of 24 MB: source, artifact and samples do not fit into 32 MB.
_WIDE = str(24_000_000 // 4 // 17)


class WorkerRecording:
    """Results of workers, and the files that they wrote below a folder.

    Args:
        folder: Where records are kept.
        below: The folder that a command works in; its name is the same at each run.
    """

    def __init__(self, folder: Path, below: Path) -> None:
        self._folder, self._below, self._lock = folder, below, threading.Lock()

    def record(self, real: Callable[..., Value]) -> Callable[..., Value]:
        """`edgeserve.jobs.run` as it is, each call recorded."""

        def run(verb: str, request: Value, result: type[Value], log: Path, **how: Any) -> Value:
            with self._lock:
                before = self._state()
                answer = real(verb, request, result, log, **how)
                place = self._folder / log.name
                for path, state in self._state().items():
                    if before.get(path) != state:
                        kept = place / "files" / path.relative_to(self._below)
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy(path, kept)
                place.mkdir(parents=True, exist_ok=True)
                (place / "result.json").write_bytes(encode(answer))
                return answer

        return run

    def replay(self, injector: Injector) -> Callable[..., Value]:
        """What gives recorded results; the files are not the pipeline's own and meet no fault."""

        def run(verb: str, request: Value, result: type[Value], log: Path, **how: Any) -> Value:
            place = self._folder / log.name
            with injector.paused():
                if (place / "files").exists():
                    shutil.copytree(place / "files", self._below, dirs_exist_ok=True)
                return decode((place / "result.json").read_bytes(), result)

        return run

    def _state(self) -> dict[Path, tuple[int, ...]]:
        found = {}
        for path in self._below.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if path.is_file():
                    found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found


@contextlib.contextmanager
def workers(run: Callable[..., Value]) -> Iterator[None]:
    """`edgeserve.jobs.run` is ``run`` in the block."""
    real, edgeserve.jobs.run = edgeserve.jobs.run, run  # type: ignore[assignment]
    try:
        yield
    finally:
        edgeserve.jobs.run = real


def convert(folder: Path) -> None:
    """Convert the source in ``folder`` to ONNX."""
    from edgeserve.pipeline.convert import convert as stage
    from edgeserve.types.options import ConvertOptions

    os.chdir(folder)
    stage(ConvertOptions(source="net:build", out=str(folder / "out"), to=("onnx",)))


def artifacts(out: Path) -> str:
    """What a workspace's manifest says passed, its files held to their hashes."""
    manifest = json.loads((out / "manifest.json").read_bytes())
    for each in manifest["files"]:
        data = (out / each["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"], each["path"]
    passed = [
        (a["format"], a["precision"], a["verdict"]) for a in map(_told, manifest["artifacts"])
    ]
    return f"{passed}, refused {[r['format'] for r in manifest.get('refused', [])]}"


def _told(artifact: dict[str, Any]) -> dict[str, Any]:
    return artifact | {"verdict": (artifact.get("judgement") or {}).get("verdict")}


def template(folder: Path) -> Path:
    """A folder with the source, and nothing made of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text(_SOURCE)
    return folder


def _command(folder: Path, out: str) -> list[str]:
    words = [sys.executable, "-P", "-m", "edgeserve", "convert", "net:build", "-o", out]
    return [*words, "--to", "onnx"]


def random_kills(count: int, seed: int = 7) -> list[str]:
    """Kill the real command at random, then run it to its end; what is wrong, one line each."""
    wrong, rng = [], random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fault-kills-") as work:
        folder = template(Path(work))
        env = os.environ | {"EDGESERVE_CACHE": str(folder / "cache")}
        how: dict[str, Any] = {"cwd": folder, "env": env, "capture_output": True, "text": True}
        began = time.monotonic()
        subprocess.run(_command(folder, "out"), check=True, timeout=300, **how)
        whole, right = time.monotonic() - began, artifacts(folder / "out")
        for number in range(count):
            shutil.rmtree(folder / "out", ignore_errors=True)
            after = whole * rng.random()
            with contextlib.suppress(subprocess.TimeoutExpired):  # which kills
                subprocess.run(_command(folder, "out"), timeout=after, **how)
            time.sleep(0.5)  # workers end with their parent
            done = subprocess.run(_command(folder, "out"), timeout=300, **how)
            left = [path.name for path in folder.rglob(".tmp-*")]
            got = artifacts(folder / "out") if done.returncode == 0 else done.stderr[-500:]
            if got != right or left:
                wrong.append(f"kill {number} after {after:.2f} s: {got}, left behind: {left}")
    return wrong


def full_file_system(size: str = "32m") -> list[str]:
    """Convert weights that do not fit; then make room, and convert again. What is wrong."""
    namespace = ["unshare", "--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    with tempfile.TemporaryDirectory(prefix="fault-full-") as work:
        folder = template(Path(work))
        small = folder / "small"
        small.mkdir()
        convert_it = " ".join(_command(folder, f"{small}/out"))
        script = (
            f"mount -t tmpfs -o size={size} tmpfs {small} || exit 9\n{convert_it}; echo code=$?\n"
            f"find {small} -name '.tmp-*'\nmount -o remount,size=1g {small}\n"
            f"{convert_it}; echo then=$?\nfind {small} -name '.tmp-*'"
        )
        env = os.environ | {"FAULT_WIDE": _WIDE, "EDGESERVE_CACHE": str(folder / "cache")}
        done = subprocess.run(
            [*namespace, "sh", "-c", script],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode == 9:
        print("no file system could be mounted here: not done")
        return []
    held = "code=3" in done.stdout and "EDGE-FILES-00" in done.stderr and "then=0" in done.stdout
    clean = ".tmp-" not in done.stdout
    return [] if held and clean else [f"full file system: {done.stdout} {done.stderr[-1500:]}"]
