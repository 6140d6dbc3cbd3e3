"""Runs cases in two processes; what is done stands in ``results.jsonl`` and is not done again."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.cases import Case
from corpus.places import OUT, REPO

__all__ = ["results", "run_all"]

Line = dict[str, Any]
_BLOCK = 12


def results(path: Path) -> dict[str, Line]:
    """What is known by case; a line that was cut off, or a fault of the corpus, does not count."""
    found: dict[str, Line] = {}
    for text in path.read_text().splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line["verdict"] == "broken":
            found.pop(line["case"], None)
        else:
            found[line["case"]] = line
    return found


def run_all(cases: Sequence[Case], path: Path, workers: int = 2) -> dict[str, Line]:
    """Run what is not done yet; a bar on stderr says how far it is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    done = results(path)
    left = [each for each in cases if each.name not in done]
    blocks: queue.SimpleQueue[list[Case]] = queue.SimpleQueue()
    for block in _blocks(left):
        blocks.put(block)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with path.open("a") as out, Progress(*columns, console=Console(stderr=True)) as bar:
        shown = bar.add_task("corpus", total=len(cases), completed=len(cases) - len(left))
        lock = threading.Lock()

        def note(line: Line) -> None:
            with lock:
                out.write(json.dumps(line) + "\n")
                out.flush()
                bar.update(shown, advance=1, description=line["case"][:48].ljust(48))

        threads = [threading.Thread(target=_serve, args=(blocks, note)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {name: line for name, line in results(path).items() if name in {c.name for c in cases}}


def _blocks(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that share what is cached, a few at a time."""
    made = []
    for _, same in itertools.groupby(cases, key=lambda each: each.net):
        held = list(same)
        made += [held[i : i + _BLOCK] for i in range(0, len(held), _BLOCK)]
    return made


def _serve(blocks: queue.SimpleQueue[list[Case]], note: Any) -> None:
    worker: subprocess.Popen[str] | None = None
    while not blocks.empty():
        try:
            block = blocks.get_nowait()
        except queue.Empty:
            break
        for each in block:
            worker = worker or _start()
            line = _ask(worker, each)
            if line is None:
                worker.wait()
                line = _crash(each, worker.returncode)
                worker = None
            note(line)
    if worker is not None:
        _stop(worker)


def _start() -> subprocess.Popen[str]:
    OUT.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with (OUT / "worker.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "corpus.worker"], cwd=REPO, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip


def _stop(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait()


def _ask(worker: subprocess.Popen[str], case: Case) -> Line | None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(case.name + "\n")
        worker.stdin.flush()
        text = worker.stdout.readline()
    except BrokenPipeError:
        return None
    found: Line | None = json.loads(text) if text.endswith("\n") else None
    return found


def _crash(case: Case, code: int) -> Line:
    """A judge that an artifact takes down; the pipeline fails such an artifact."""
    from corpus.kinds import KINDS

    return {
        "case": case.name, "task": case.of.task, "format": case.format,
        "precision": case.precision, "kind": case.kind, "place": KINDS[case.kind].place,
        "severity": case.severity, "value": case.value, "reasons": [], "verdict": "crash",
        "why": f"the process ended with {code}",
    }  # fmt: skip
