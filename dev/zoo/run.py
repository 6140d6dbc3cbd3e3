"""``make zoo``: the whole zoo, two at a time.

It writes ``zoo-out/*.jsonl`` and ``docs/explanation/zoo.md``.

A cell is measured again when the code or the tools it rests on are other ones (`dev.zoo.revision`);
``--keep`` takes what is there. Name models to measure them whatever there is.
"""

from __future__ import annotations

import argparse
import json
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "zoo-out"

#: Seconds for one model; models that a process measures before a fresh one takes its place.
_LIMIT, _TURNS = 300.0, 50


class Worker:
    """A process that answers lines with JSON, started when it is needed, ended when it hangs.

    Args:
        log: File for what it prints.
        module: The program, which reads lines and answers each with one.
        limit: Seconds for one answer.
    """

    def __init__(self, log: Path, module: str = "dev.zoo.measure", limit: float = _LIMIT) -> None:
        self._log, self._process, self._turns = log, None, 0
        self._module, self._limit = module, limit

    def measure(self, name: str, formats: Sequence[str] = ()) -> dict[str, Any]:
        """One row; code TIMEOUT or CRASHED where the process gave none."""
        row = self.ask(" ".join((name, *formats)))
        if isinstance(row, dict):
            return row
        code = "TIMEOUT" if row is None else "CRASHED"
        return {"name": name, "export": {"ok": False, "code": code, "said": str(self._log)}}

    def ask(self, line: str) -> dict[str, Any] | int | None:
        """The answer to a line; the exit code of a process that ended; None: it took too long."""
        if self._process is None or self._turns >= _TURNS:
            self._start()
        process: Any = self._process
        self._turns += 1
        process.stdin.write(line + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self._limit)
        if answer := process.stdout.readline() if ready else "":
            return dict(json.loads(answer))
        code = int(process.wait()) if ready else None
        self.close()
        return code

    def _start(self) -> None:
        self.close()
        self._turns = 0
        with self._log.open("a") as log:
            self._process = subprocess.Popen(  # type: ignore[assignment]
                [sys.executable, "-m", self._module],
                text=True,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def close(self) -> None:
        """End the process."""
        process: Any = self._process
        if process is not None:
            process.kill()
            process.communicate()
        self._process = None


def rows_of(group: str) -> dict[str, dict[str, Any]]:
    """The rows measured so far, by name; of a cell the last one counts."""
    path = OUT / f"{group}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows: dict[str, dict[str, Any]] = {}
    for row in map(json.loads, lines):
        old = rows.get(row["name"], {}) if row["export"]["ok"] else {}
        revisions = {**old.get("revisions", {}), **row.get("revisions", {})}
        rows[row["name"]] = {**old, **row, "revisions": revisions}
    return rows


def run(
    group: str, wanted: dict[str, tuple[str, ...]], workers: int, limit: float
) -> Iterator[dict[str, Any]]:
    """Measure models in the formats of each, and keep each row as soon as it is there."""
    from dev.zoo.packs import measure_pack, packs
    from dev.zoo.revision import revision

    todo: queue.SimpleQueue[tuple[list[str], tuple[str, ...]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    for formats in dict.fromkeys(wanted.values()):
        names = [name for name, theirs in wanted.items() if theirs == formats]
        for some in packs(names) if group != "transformers" else [[name] for name in names]:
            todo.put((some, formats))
    end = time.monotonic() + limit

    def serve(log: Path) -> None:
        worker = Worker(log)
        while time.monotonic() < end:
            try:
                some, formats = todo.get_nowait()
            except queue.Empty:
                break
            before = {n: {f: revision(n.partition(":")[0], f) for f in formats} for n in some}
            for row in measure_pack(worker.measure, some, formats):
                done.put(row | {"revisions": before[row["name"]]})
        worker.close()
        done.put(None)

    OUT.mkdir(exist_ok=True)
    for place in range(workers):
        threading.Thread(target=serve, args=(OUT / f"worker{place}.log",), daemon=True).start()
    with (OUT / f"{group}.jsonl").open("a") as rows:
        while workers:
            row = done.get()
            if row is None:
                workers -= 1
                continue
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            yield row


def shown(row: dict[str, Any]) -> str:
    """A row in one line."""
    cells = []
    for key in ("export", "onnx", "tflite", "coreml"):
        cell = row.get(key, {})
        good = f"{cell['difference']:.0e}" if "difference" in cell else "ok"
        cells.append(f"{key} {good if cell.get('ok') else cell.get('code', '-')}")
    return f"{row['name']:32} " + "  ".join(cells)


def main() -> None:
    """Measure what is asked for, write the table; exit code 1 where a file is wrong."""
    from dev.zoo.catalogue import GROUPS, locations
    from dev.zoo.revision import FORMATS, stale
    from dev.zoo.table import write

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="models to measure again, as module:factory")
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--failed", action="store_true", help="measure again what was not ok")
    parser.add_argument("--keep", action="store_true", help="take rows of earlier code as they are")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    for group in options.group or GROUPS[:2]:
        rows, known = rows_of(group), locations(group)
        if options.names:
            todo = {name: FORMATS for name in known if name in options.names}
        elif options.keep:
            todo = {name: FORMATS for name in known if name not in rows}
        else:
            todo = {n: formats for n in known if (formats := stale(rows.get(n), n))}
        if options.failed:
            todo |= {n: FORMATS for n in known if n in rows and not _good(rows[n])}
        print(f"{group}: {len(todo)} of {len(known)} to measure", flush=True)
        for row in run(group, todo, options.workers, options.minutes * 60):
            print(shown(row), flush=True)
    found = {group: rows_of(group) for group in GROUPS}
    write(
        {g: {n: found[g][n] for n in locations(g) if n in found[g]} for g in GROUPS},
        ROOT / "docs" / "explanation" / "zoo.md",
    )


def _good(row: dict[str, Any]) -> bool:
    return all(row.get(key, {}).get("ok") for key in ("export", "onnx", "tflite", "coreml"))


if __name__ == "__main__":
    main()
