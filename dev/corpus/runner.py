"""Runs cases in two processes; what is done stands in ``results.jsonl`` and is not done again.

Done is what this code has judged: lines of another revision, or of another severity, are stale.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.corpus.cases import Case
from dev.corpus.paths import OUT, REPO
from dev.corpus.revision import judged_by

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


def stale(case: Case, line: Line, keep: bool = False) -> bool:
    """Whether a line is of other code (unless ``keep``), or of what the case no longer is."""
    same = json.loads(json.dumps(case.value)) == line.get("value")
    return not same or (not keep and line.get("revision") != judged_by())


def run_all(
    cases: Sequence[Case], path: Path, workers: int = 2, keep: bool = False
) -> dict[str, Line]:
    """Run what is not done yet; a bar on stderr says how far it is.

    Args:
        cases: What to run.
        path: The lines; new ones are added, and of a case the last one counts.
        workers: Processes.
        keep: Lines of another revision count as done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    done = results(path)
    left = [each for each in cases if each.name not in done or stale(each, done[each.name], keep)]
    blocks = _Blocks(_blocks(left))
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


class _Blocks:
    """Gives out blocks in order; where it can, not of a network that another worker is at.

    A network's export and its server's answers are made once, and whoever needs them meanwhile
    would wait.
    """

    def __init__(self, blocks: list[list[Case]]) -> None:
        self._left, self._lock = blocks, threading.Lock()
        self._busy: dict[int, str] = {}

    def take(self) -> list[Case] | None:
        """The next block for this thread; None: there is none left."""
        me = threading.get_ident()
        with self._lock:
            self._busy.pop(me, None)
            if not self._left:
                return None
            busy = set(self._busy.values())
            free = (i for i, held in enumerate(self._left) if held[0].net not in busy)
            block = self._left.pop(next(free, 0))
            self._busy[me] = block[0].net
        return block


def _serve(blocks: _Blocks, note: Any) -> None:
    worker: subprocess.Popen[str] | None = None
    while block := blocks.take():
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
            [sys.executable, "-m", "dev.corpus.worker"],
            cwd=REPO,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )


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
    from dev.corpus.kinds import KINDS

    return {
        "case": case.name,
        "task": case.of.task,
        "format": case.format,
        "precision": case.precision,
        "kind": case.kind,
        "place": KINDS[case.kind].place,
        "severity": case.severity,
        "value": case.value,
        "reasons": [],
        "verdict": "crash",
        "why": f"the process ended with {code}",
        "revision": judged_by(),
    }
