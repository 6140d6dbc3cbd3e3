"""Attack a whole endpoint, and print what each attack costs memory and others.

    python -m dev.benchmarks.attacks [--quick] [--only TEXT] [--json] [--list]

Each attack has an endpoint of its own: `edgeserve serve` with REST and gRPC on one core, the
attacker on another. Exit code 1: the memory of the process tree rose by more than ``--inflight-mb``
+ 64 MB, others waited more than 250 ms (p99 of `health/live`), the endpoint ended, an answer had no
code, or a good request was answered wrong afterwards. Attacks whose outcome stands in
``hostile-out/attacks.jsonl`` are not repeated; ``--fresh`` repeats all, ``--only`` those that it
names.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from dev.benchmarks.attacks.endpoint import Models, endpoint
from dev.benchmarks.attacks.registry import chosen, load
from dev.benchmarks.attacks.runner import Outcome, Settings, run_all

OUT = Path("hostile-out/attacks.jsonl")
_QUICK_S, _QUICK_AFTER_S = 4.0, 1.0


def main() -> int:
    """Run as asked; 1 if an attack does what it must not."""
    given = _arguments()
    every = load()
    attacks = [every[name] for name in chosen(every, given.only)]
    if given.list:
        print("\n".join(one.name for one in attacks))
        return 0
    known = {} if given.fresh else _known(given.quick)
    left = [one for one in attacks if given.only or one.name not in known]
    settings = Settings(
        seconds=_QUICK_S if given.quick else given.seconds,
        after_s=_QUICK_AFTER_S if given.quick else given.after,
        inflight_mb=given.inflight_mb,
    )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder, "models"))
        start = partial(endpoint, models, settings.inflight_mb, settings.body_mb)
        for outcome in run_all(left, start, Path(folder), settings, given.budget):
            known[outcome.name] = msgspec.structs.replace(outcome, quick=given.quick)
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_bytes(b"".join(msgspec.json.encode(o) + b"\n" for o in known.values()))
            if not given.json:
                print(line(outcome), flush=True)
    return _summary([known[one.name] for one in attacks if one.name in known], len(attacks), given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.benchmarks.attacks", description=__doc__)
    parser.add_argument("--only", action="append", help="attacks whose name holds this")
    parser.add_argument("--quick", action="store_true", help="4 s each, and 1 s after it")
    parser.add_argument("--fresh", action="store_true", help="repeat what is done")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON alone")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--after", type=float, default=60.0)
    parser.add_argument("--inflight-mb", type=int, default=128)
    parser.add_argument("--budget", type=float, default=float("inf"), help="stop after seconds")
    return parser.parse_args()


def _known(quick: bool) -> dict[str, Outcome]:
    """What is done; a quick outcome does not stand for a full one."""
    lines = OUT.read_bytes().splitlines() if OUT.is_file() else []
    found = [msgspec.json.decode(one, type=Outcome) for one in lines]
    return {one.name: one for one in found if quick or not one.quick}


def line(outcome: Outcome) -> str:
    """An outcome in one line and a line for each failure."""
    more = outcome.peak_mb - outcome.warm_mb
    head = (
        f"{'FAIL' if outcome.failures else 'ok  '} {outcome.name:58.58} +{more:5.0f} MB, "
        f"p50 {outcome.p50_ms:5.0f}, p99 {outcome.p99_ms:6.0f}, "
        f"longest {outcome.longest_ms:6.0f} ms, {outcome.sent_mb:5.0f} MB sent"
    )
    return "\n      ".join([head, *outcome.failures])


def _summary(outcomes: list[Outcome], wanted: int, given: argparse.Namespace) -> int:
    failed = [one for one in outcomes if one.failures]
    if given.json:
        print(msgspec.json.encode(outcomes).decode())
    else:
        print(f"{wanted} attacks, {len(outcomes)} done, {len(failed)} failed")
        print("".join(f"FAIL {one.name}\n" for one in failed), end="")
    return 1 if failed or len(outcomes) < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
