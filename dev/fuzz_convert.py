"""``make fuzz-convert``: random programs in three formats, compared with eager PyTorch.

    python -m dev.fuzz_convert --seeds 0:100            # exit code 1: wrong, crash, uncoded
    python -m dev.fuzz_convert --seed 7 --show          # the program, and its faults made small

Rows are kept in ``fuzz-out/rows.jsonl``. A row of other code is measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev.zoo.revision import FORMATS, ROOT, revision
from dev.zoo.run import Worker

if TYPE_CHECKING:
    from dev.fuzz.program import Program

OUT = ROOT / "fuzz-out"
STATUSES = ("right", "refused", "wrong", "crash", "timeout", "uncoded")

#: Statuses that a converter must not have.
FAULTS = STATUSES[2:]

#: Seconds for one program in one format.
_LIMIT = 90.0

Row = dict[str, Any]


def rows_of(path: Path) -> dict[tuple[int, str], Row]:
    """The last row of each seed and format."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["seed"], row["format"]): row for row in map(json.loads, lines)}


def answer(worker: Worker, asked: Row) -> Row:
    """A worker's row; one with status crash or timeout where it gives none."""
    found = worker.ask(json.dumps(asked))
    if isinstance(found, dict):
        return found
    if found is None:
        return {"format": asked["format"], "status": "timeout", "said": f"{_LIMIT:.0f} s"}
    return {
        "format": asked["format"],
        "status": "crash",
        "code": found,
        "said": f"exit code {found}",
    }


def worker_of(format: str) -> Worker:
    """A worker for a format."""
    OUT.mkdir(exist_ok=True)
    return Worker(OUT / f"{format}.log", "dev.fuzz.judge", _LIMIT)


def run(
    seeds: Iterable[int], formats: Sequence[str], path: Path, workers: int, keep: bool = False
) -> None:
    """Judge what has no row of this code yet, or none at all; a row is written at once."""
    held, lock, slots = rows_of(path), threading.Lock(), threading.Semaphore(workers)
    revisions = {format: revision("fuzz", format) for format in formats}

    def serve(format: str) -> None:
        worker = worker_of(format)
        for seed in seeds:
            if (row := held.get((seed, format))) and (keep or row["revision"] == revisions[format]):
                continue
            with slots:
                row = answer(worker, {"seed": seed, "format": format})
            row |= {"seed": seed, "revision": revisions[format]}
            with lock, path.open("a") as out:
                out.write(json.dumps(row) + "\n")
                print(shown(row), flush=True)
        worker.close()

    path.parent.mkdir(exist_ok=True)
    threads = [threading.Thread(target=serve, args=(format,)) for format in formats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def shown(row: Row) -> str:
    """A row in one line."""
    said = "" if row["status"] == "right" else " ".join(str(row["said"]).split())[:150]
    parts = (
        row["seed"],
        row["format"],
        row["status"],
        row.get("code", ""),
        row.get("op", ""),
        said,
    )
    return " ".join(str(part) for part in parts if part != "")


def summary(rows: Iterable[Row]) -> str:
    """Counts by format and status, refusals by code and operator, and the seeds of faults."""
    rows = list(rows)
    counts = Counter((row["format"], row["status"]) for row in rows)
    lines = [f"{'':8}" + "".join(f"{status:>9}" for status in STATUSES)]
    for format in dict.fromkeys(row["format"] for row in rows):
        lines.append(f"{format:8}" + "".join(f"{counts[format, s]:9}" for s in STATUSES))
    refused = [row for row in rows if row["status"] == "refused"]
    for (format, code, op), count in Counter(
        (row["format"], row["code"], row["op"]) for row in refused
    ).most_common():
        lines.append(f"{count:4} refused: {format} {code} {op}")
    faults = [row for row in rows if row["status"] in FAULTS]
    return "\n".join([*lines, *(f"fault: {shown(row)}" for row in faults)])


def smallest(program: Program, format: str) -> tuple[Row, Program]:
    """The program's row in a format, and the smallest program that has the same fault."""
    from dev.fuzz.shrink import shrink, valid
    from edgeserve.types.base import encode

    worker = worker_of(format)

    def row_of(candidate: Program) -> Row:
        return answer(worker, {"format": format, "program": json.loads(encode(candidate))})

    def fails(candidate: Program) -> bool:
        if not (candidate.steps and valid(candidate)):
            return False
        found = row_of(candidate)
        return all(found.get(key) == first.get(key) for key in ("status", "code", "op"))

    first = row_of(program)
    small = program if first["status"] == "right" else shrink(program, fails)
    worker.close()
    return first, small


def show(seed: int, formats: Sequence[str]) -> int:
    """Print a seed's program, and for each format that is not right a smaller one."""
    from dev.fuzz.generate import generate
    from dev.fuzz.program import source

    program, faults = generate(seed), 0
    print(source(program), flush=True)
    for format in formats:
        row, small = smallest(program, format)
        print(f"# {shown(row | {'seed': seed})}", flush=True)
        if small != program:
            print(source(small), flush=True)
        faults += row["status"] in FAULTS
    return int(faults > 0)


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def main() -> int:
    """Judge the seeds asked for, or show one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=_range, default=range(100), help="FIRST:LAST, without LAST")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--show", action="store_true", help="print the program of --seed")
    parser.add_argument("--format", action="append", choices=FORMATS)
    parser.add_argument("--keep", action="store_true", help="take rows of other code as they are")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    formats = options.format or FORMATS
    if options.show and options.seed is not None:
        return show(options.seed, formats)
    seeds = options.seeds if options.seed is None else [options.seed]
    run(seeds, formats, OUT / "rows.jsonl", options.workers, options.keep)
    rows = rows_of(OUT / "rows.jsonl")
    found = [rows[seed, format] for format in formats for seed in seeds]
    print(summary(found))
    return int(any(row["status"] in FAULTS for row in found))


if __name__ == "__main__":
    sys.exit(main())
