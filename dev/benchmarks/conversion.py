"""Figure: three formats with the gate, against three plain scripts that convert and compare.

Both sides start from nothing: a fresh workspace, fresh processes. The plain scripts run one after
the other, as people run them, and compare their ONNX and TFLite files with PyTorch on the very
photos that the gate judges on. Interleaved; medians of CPU and wall time.

    python -m dev.benchmarks.conversion demo-out/photos --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FORMATS = "onnx,tflite,coreml"
_WANTED_CPU, _WANTED_WALL = 1.1, 0.75


@dataclass(frozen=True)
class Cost:
    """Seconds that something took."""

    cpu: float
    wall: float


def _run(words: Sequence[str]) -> Cost:
    """Run a command to its end; it has to succeed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall)


def _ours(photos: Path, out: Path) -> tuple[Cost, dict[str, float]]:
    """The side of edgeserve, and the CPU seconds of each of its workers."""
    cost = _run(
        [
            "-P",
            "-m",
            "edgeserve",
            "convert",
            "dev.demo.tagger:efficientnet_lite0",
            "-o",
            str(out),
            "--to",
            _FORMATS,
            "--data",
            str(photos / "data.jsonl"),
        ]
    )
    usage = {
        path.parent.name: json.loads(path.read_text())["cpu_s"]
        for path in sorted((out / "logs").glob("*/usage.json"))
    }
    return cost, usage


def _judged(out: Path, folder: Path) -> Path:
    """A list of the photos that the gate judged on."""
    answers = json.loads((out / "samples" / "answers.json").read_text())
    listed = folder / "photos.json"
    listed.write_text(json.dumps([sample["path"] for sample in answers["samples"]]))
    return listed


def _plain(listed: Path, out: Path) -> Cost:
    out.mkdir()
    parts = [
        _run(["-m", "dev.benchmarks.plain.to_onnx", str(listed), str(out)]),
        _run(["-m", "dev.benchmarks.plain.to_tflite", str(listed), str(out)]),
        _run(["-m", "dev.benchmarks.plain.to_coreml", str(out)]),
    ]
    return Cost(sum(part.cpu for part in parts), sum(part.wall for part in parts))


def measure(photos: Path, rounds: int) -> dict[str, object]:
    """Both sides, in turn; figures by name."""
    ours, plain, workers = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(rounds):
            out = Path(folder, f"ours-{i}")
            cost, usage = _ours(photos, out)
            ours.append(cost)
            workers.append(usage)
            plain.append(_plain(_judged(out, Path(folder)), Path(folder, f"plain-{i}")))
    gate = ("answers", "validate-", "golden")
    without = [sum(s for name, s in each.items() if not name.startswith(gate)) for each in workers]
    return {
        "rounds": rounds,
        "cpu_ratio": statistics.median(a.cpu / b.cpu for a, b in zip(ours, plain, strict=True)),
        "wall_ratio": statistics.median(a.wall / b.wall for a, b in zip(ours, plain, strict=True)),
        "ours_cpu_s": statistics.median(cost.cpu for cost in ours),
        "ours_wall_s": statistics.median(cost.wall for cost in ours),
        "plain_cpu_s": statistics.median(cost.cpu for cost in plain),
        "plain_wall_s": statistics.median(cost.wall for cost in plain),
        "ours_cpu_s_without_gate": statistics.median(without),
        "workers_cpu_s": workers[-1],
    }


def main() -> None:
    """Print the figures, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path, nargs="?", default=Path("demo-out/photos"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.photos, arguments.rounds)
    if arguments.json:
        print(json.dumps(found))
        return
    print(
        f"three formats with the gate, median of {found['rounds']}: "
        f"CPU {found['ours_cpu_s']:.1f} s against {found['plain_cpu_s']:.1f} s, "
        f"ratio {found['cpu_ratio']:.2f} (wanted <= {_WANTED_CPU}); "
        f"wall {found['ours_wall_s']:.1f} s against {found['plain_wall_s']:.1f} s, "
        f"ratio {found['wall_ratio']:.2f} (wanted <= {_WANTED_WALL})"
    )
    print(f"CPU without the gate: {found['ours_cpu_s_without_gate']:.1f} s")
    print("CPU seconds of each worker:", json.dumps(found["workers_cpu_s"]))


if __name__ == "__main__":
    main()
