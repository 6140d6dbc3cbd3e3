"""``python -m dev.mutants``: try the mutants and print the figures.

Exit code 1: a mutant was not refused, fewer than nine of ten are named, or a right file failed.

python -m dev.mutants               all of them, resuming what was interrupted
python -m dev.mutants --fresh       all of them anew
python -m dev.mutants --only TEXT   those whose name (``format/mutant``) holds TEXT, anew
python -m dev.mutants --summary     only the figures of what is done
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from dev.mutants.runner import Outcome, run_program
from dev.mutants.table import MUTANTS

OUT = Path("mutants-out") / "results.jsonl"
#: Share of the mutants whose operator is to be named.
_NAMED = 0.9


def main() -> int:
    """Run as asked."""
    asked = _arguments()
    names = [f"{f}/{name}" for name, mutant in MUTANTS.items() for f in mutant.formats]
    names = [name for name in names if asked.only in name]
    known = {} if asked.fresh else _known()
    wanted = [n for n in names if asked.only or n not in known] if not asked.summary else []
    for outcome in _run(wanted, asked.workers):
        known[outcome.name] = outcome
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_bytes(b"\n".join(map(msgspec.json.encode, known.values())) + b"\n")
        print(_line(outcome), flush=True)
    return _summary([known[name] for name in names if name in known], len(names))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.mutants", description=__doc__)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--workers", type=int, default=2, choices=(1, 2))
    return parser.parse_args()


def _known() -> dict[str, Outcome]:
    lines = OUT.read_bytes().splitlines() if OUT.is_file() else []
    found = [msgspec.json.decode(line, type=Outcome) for line in lines]
    return {outcome.name: outcome for outcome in found}


def _run(wanted: list[str], workers: int) -> Iterable[Outcome]:
    """The outcomes of these, as they come: one program at a time in each process."""
    formats: dict[str, list[str]] = {}
    for name in wanted:
        format, _, mutant = name.partition("/")
        formats.setdefault(mutant, []).append(format)
    if not formats:
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = {pool.submit(run_program, n, tuple(some)): n for n, some in formats.items()}
        for job in as_completed(jobs):
            try:
                yield from job.result()
            except Exception as error:
                print(f"{jobs[job]}: {error!r:.300}", file=sys.stderr, flush=True)


def _line(outcome: Outcome) -> str:
    words = "named" if outcome.named else "NOT NAMED"
    head = f"{outcome.name:22} right file {outcome.honest}, wrong file {outcome.verdict}, {words}"
    return f"{head}, {outcome.seconds} s: {outcome.message[:200]}"


def _summary(found: list[Outcome], count: int) -> int:
    failed = sum(outcome.verdict == "fail" for outcome in found)
    named = sum(outcome.named for outcome in found)
    right = sum(outcome.honest != "fail" for outcome in found)
    print(f"{len(found)} of {count} mutants: {failed} refused, {named} named")
    print(f"{right} of {len(found)} right files kept")
    complete = len(found) == failed == right == count
    return 0 if complete and named >= _NAMED * count else 1


if __name__ == "__main__":
    sys.exit(main())
