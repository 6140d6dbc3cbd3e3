"""Figures: what the gate costs over the bare running of reference and artifact; its invariants.

The bare side prepares each photo once with Pillow and numpy, runs the exported program with PyTorch
and the file with its own runtime, in batches of eight, as the model allows, and compares nothing.
The gate prepares, asks the reference and stores its answers, then judges the file: everything is
counted but what the invariants take, which is reported apart. Both sides alternate; CPU time
counts, over all threads.

    python -m dev.benchmarks.gate [demo-out/tagger] [demo-out/photos/data.jsonl] [--format onnx]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from dev.benchmarks.agreement import prepared, runner
from edgeserve.backends.torch.program.run import torch_threads
from edgeserve.bundle.workspace import Workspace
from edgeserve.environment import usable_cores
from edgeserve.types.base import plain
from edgeserve.types.reports import Report
from edgeserve.types.samples import Sample
from edgeserve.validate.collect import collect_answers
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import AnswersRequest, JudgeRequest

_BATCH = 8
_WANTED_RATIO, _WANTED_SECONDS = 1.3, 15.0


def cpu(run: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of a call, over all threads, and what it gave."""
    started = time.process_time()
    given = run()
    return time.process_time() - started, given


class Bare:
    """The same work by hand.

    Args:
        workspace: What convert wrote.
        format: Which of its fp32 files.
    """

    def __init__(self, workspace: Path, format: str) -> None:
        self.program = torch.export.load(workspace / "source" / "model.pt2").module()
        (file,) = (workspace / "artifacts" / f"{format}-fp32").glob("model.*")
        self.run = runner(file.read_bytes(), format)

    def __call__(self, paths: list[Path]) -> None:
        """Prepare, run both, forget the answers."""
        for start in range(0, len(paths), _BATCH):
            batch = np.stack([prepared(path) for path in paths[start : start + _BATCH]])
            with torch.no_grad(), torch_threads(usable_cores()):  # as many as the gate's
                self.program(torch.from_numpy(batch))
            self.run(batch)


class Gate:
    """The gate's own verbs, in this process."""

    def __init__(self, workspace: Path, data: Path, format: str, out: Path) -> None:
        opened = Workspace(workspace)
        artifact = opened.manifest.artifact(f"{format}-fp32")
        if artifact is None:
            raise SystemExit(f"{workspace} holds no {format}-fp32; run `make demo` first")
        source = str(opened.source.absolute())
        self.asked = AnswersRequest(
            source_folder=source,
            out=str(out),
            data=str(data.absolute()),
            reference="pt2",
            golden=0,
            refresh=True,
        )
        self.judging = JudgeRequest(
            artifact=artifact,
            root=str(workspace.absolute()),
            source_folder=source,
            samples=str(out),
        )
        self.samples: tuple[Sample, ...] = ()

    def __call__(self) -> tuple[float, float]:
        """CPU seconds of the decision runs, and of the invariants."""
        asking, answers = cpu(lambda: collect_answers(self.asked))
        self.samples = answers.samples  # type: ignore[attr-defined]
        apart = plain(answers.invariant_seconds)  # type: ignore[attr-defined]
        judging, report = cpu(lambda: judge(self.judging))
        assert isinstance(report, Report)
        assert report.judgement.verdict == "pass", report.judgement
        own = plain(report.invariant_seconds)
        return asking - apart + judging - own, apart + own


def measure(workspace: Path, data: Path, format: str, rounds: int) -> dict[str, float]:
    """Both sides in turn; medians by name."""
    ours, bare, invariants = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        gate, hand = Gate(workspace, data, format, Path(folder, "samples")), Bare(workspace, format)
        gate()
        paths = [Path(sample.path) for sample in gate.samples]
        hand(paths[:_BATCH])
        for _ in range(rounds):
            decision, apart = gate()
            ours.append(decision)
            invariants.append(apart)
            bare.append(cpu(lambda: hand(paths))[0])
    return {
        "inputs": len(paths),
        "rounds": rounds,
        "ratio": statistics.median(a / b for a, b in zip(ours, bare, strict=True)),
        "decision_cpu_s": statistics.median(ours),
        "bare_cpu_s": statistics.median(bare),
        "invariants_cpu_s": statistics.median(invariants),
    }


def main() -> int:
    """Print the figures, or JSON; exit status 1 where one is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workspace", type=Path, nargs="?", default=Path("demo-out/tagger"))
    parser.add_argument("data", type=Path, nargs="?", default=Path("demo-out/photos/data.jsonl"))
    parser.add_argument("--format", choices=("onnx", "tflite"), default="onnx")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.workspace, options.data, options.format, options.rounds)
    print(json.dumps(found) if options.json else _said(found))
    within = found["ratio"] <= _WANTED_RATIO and found["invariants_cpu_s"] <= _WANTED_SECONDS
    return 0 if within else 1


def _said(found: dict[str, float]) -> str:
    return (
        f"gate on {found['inputs']} inputs, median of {found['rounds']}: decision runs"
        f" {found['decision_cpu_s']:.1f} s CPU, bare {found['bare_cpu_s']:.1f} s, ratio"
        f" {found['ratio']:.2f} (wanted <= {_WANTED_RATIO}); invariants"
        f" {found['invariants_cpu_s']:.1f} s CPU (wanted <= {_WANTED_SECONDS:g})"
    )


if __name__ == "__main__":
    sys.exit(main())
