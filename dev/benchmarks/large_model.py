"""Figure: memory of a conversion of gigabytes of weights, of all processes together.

A seeded model of linear layers and an embedding is converted to each format in turn. The resident
memory of the command and of all its workers is added up twenty times a second (pages that two of
them share count twice); the peak has to stay below 1.5 times the weights and 1 GB.

    python -m dev.benchmarks.large_model --gigabytes 2.5 --to onnx,coreml
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dev.benchmarks.processes import descendants

_GIGABYTE = 1e9
_EVERY = 0.05

_SOURCE = '''"""A model of many weights: an embedding and linear layers, seeded."""

import torch
from torch import nn

WIDE, WORDS, LAYERS = {wide}, {words}, {layers}


class Big(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDE)
        self.layers = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(LAYERS))
        self.head = nn.Linear(WIDE, 16)

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * 0.5
        return self.head(x.mean(1))


def build():
    torch.manual_seed(0)
    return Big().eval(), (torch.randint(0, WORDS, (1, 8)),)
'''


def main() -> int:
    """Print one line a format; exit 1 where memory passes the limit, or a conversion fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.5, help="of weights")
    parser.add_argument("--to", default="onnx,coreml")
    parser.add_argument("--keep", action="store_true", help="leave the folder, and say where it is")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="big-"))
    try:
        weights = _write(folder, options.gigabytes)
        if shutil.disk_usage(folder).free < 6 * weights:
            print(f"needs {6 * weights / _GIGABYTE:.0f} GB of disk in {folder.parent}")
            return 2
        good = [_convert(folder, format, weights) for format in options.to.split(",")]
    finally:
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(good) else 1


def _write(folder: Path, gigabytes: float) -> int:
    """Write the model's source; the bytes of its weights."""
    wide, whole = 4096, round(gigabytes * _GIGABYTE / 4)
    words = whole // 5 // wide
    layers = max(1, round((whole - words * wide) / (wide * (wide + 1))))
    (folder / "big.py").write_text(_SOURCE.format(wide=wide, words=words, layers=layers))
    return 4 * (words * wide + layers * wide * (wide + 1) + 16 * (wide + 1))


def _convert(folder: Path, format: str, weights: int) -> bool:
    out = folder / format
    began = time.perf_counter()
    command = [
        sys.executable,
        "-P",
        "-m",
        "edgeserve",
        "convert",
        "big:build",
        "-o",
        str(out),
        "--to",
        format,
    ]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        peaks = _Watch(process.pid)
        peaks.start()
        said, _ = process.communicate()
        peaks.stop.set()
        peaks.join()
    limit = 1.5 * weights + _GIGABYTE
    good = process.returncode == 0 and peaks.most <= limit
    took = time.perf_counter() - began
    print(
        f"{format}: {weights / _GIGABYTE:.2f} GB of weights, peak {peaks.most / _GIGABYTE:.2f} GB "
        f"(limit {limit / _GIGABYTE:.2f}) in {took:.0f} s, exit {process.returncode}: "
        f"{'ok' if good else 'FAIL'}",
        flush=True,
    )
    for stage, most in peaks.stages.items():
        print(f"  {stage:24} {most / _GIGABYTE:6.2f} GB")
    if process.returncode:
        print(said[-2000:])
    shutil.rmtree(out, ignore_errors=True)
    return good


@dataclass
class _Peaks:
    most: int = 0
    stages: dict[str, int] = field(default_factory=dict)


class _Watch(threading.Thread):
    """Adds up the memory of a process and all below it until told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.stop, self._pid, self._peaks = threading.Event(), pid, _Peaks()

    @property
    def most(self) -> int:
        """The largest sum so far, in bytes."""
        return self._peaks.most

    @property
    def stages(self) -> dict[str, int]:
        """The largest sum while each worker ran, in bytes."""
        return self._peaks.stages

    def run(self) -> None:
        """Look until stopped."""
        while not self.stop.wait(_EVERY):
            total, jobs = tree_memory(self._pid)
            self._peaks.most = max(self._peaks.most, total)
            for job in jobs or ["command"]:
                self._peaks.stages[job] = max(self._peaks.stages.get(job, 0), total)


def tree_memory(pid: int) -> tuple[int, list[str]]:
    """Resident bytes of a process and its descendants, and the jobs that workers among them do."""
    total, jobs = 0, []
    for each in (pid, *descendants(pid)):
        try:
            words = Path(f"/proc/{each}/statm").read_text().split()
            command = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        total += int(words[1]) * os.sysconf("SC_PAGE_SIZE")
        jobs += [Path(os.fsdecode(w)).parent.name for w in command if w.endswith(b"job.json")]
    return total, jobs


if __name__ == "__main__":
    sys.exit(main())
