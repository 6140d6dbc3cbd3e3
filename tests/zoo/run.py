"""``make zoo``: the whole zoo, two at a time, to ``zoo-out/*.jsonl`` and ``docs/zoo.md``.

What has a row already is not measured again: delete ``zoo-out/``, or name models, to start anew.
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
    """A process that measures models, started when it is needed, ended when it hangs."""

    def __init__(self, log: Path) -> None:
        self._log, self._process, self._turns = log, None, 0

    def measure(self, name: str, formats: Sequence[str] = ()) -> dict[str, Any]:
        """One row; code TIMEOUT or CRASHED where the process gave none."""
        if self._process is None or self._turns >= _TURNS:
            self._start()
        process: Any = self._process
        self._turns += 1
        process.stdin.write(" ".join((name, *formats)) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _LIMIT)
        line = process.stdout.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        self.close()
        code = "CRASHED" if ready else "TIMEOUT"
        return {"name": name, "export": {"ok": False, "code": code, "said": str(self._log)}}

    def _start(self) -> None:
        self.close()
        self._turns = 0
        with self._log.open("a") as log:
            self._process = subprocess.Popen(  # type: ignore[assignment]
                [sys.executable, "-P", str(HERE / "measure.py")], text=True, cwd=ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def close(self) -> None:
        """End the process."""
        process: Any = self._process
        if process is not None:
            process.kill()
            process.communicate()
        self._process = None


def rows_of(group: str) -> dict[str, dict[str, Any]]:
    """The rows measured so far, by name; the last of a name counts."""
    path = OUT / f"{group}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def run(group: str, names: list[str], workers: int, limit: float) -> Iterator[dict[str, Any]]:
    """Measure models, and keep each row as soon as it is there."""
    from zoo.packs import measure_pack, packs

    todo: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    for some in packs(names) if group != "transformers" else [[name] for name in names]:
        todo.put(some)
    end = time.monotonic() + limit

    def serve(log: Path) -> None:
        worker = Worker(log)
        while time.monotonic() < end:
            try:
                some = todo.get_nowait()
            except queue.Empty:
                break
            for row in measure_pack(worker.measure, some):
                done.put(row)
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
    sys.path.insert(0, str(HERE.parent))
    from zoo.catalogue import GROUPS, locations
    from zoo.table import write

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="models to measure again, as module:factory")
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--failed", action="store_true", help="measure again what was not ok")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    for group in options.group or GROUPS[:2]:
        rows = rows_of(group)
        known = locations(group)
        lacking = [n for n in known if n not in rows or (options.failed and not _good(rows[n]))]
        todo = [n for n in known if n in options.names] if options.names else lacking
        for row in run(group, todo, options.workers, options.minutes * 60):
            print(shown(row), flush=True)
    write({group: rows_of(group) for group in GROUPS}, ROOT / "docs" / "zoo.md")


def _good(row: dict[str, Any]) -> bool:
    return all(row.get(key, {}).get("ok") for key in ("export", "onnx", "tflite", "coreml"))


if __name__ == "__main__":
    main()
