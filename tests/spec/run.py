"""Runs the Python implementation through the cases of spec/conformance and prints the count.

python tests/spec/run.py [SUITE...]

A suite is named as in ``spec/conformance/index.json``, or by its first part ("processing"). Exit
code 1 when a case fails.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from conformance import cases


def main(wanted: list[str]) -> int:
    """Print the figures; exit code 1 when a case fails."""
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    failed = []
    for case in cases():
        if wanted and not {case.suite, case.suite.partition("/")[0]} & set(wanted):
            continue
        problem = case.problem()
        total[case.suite] += 1
        right[case.suite] += problem is None
        if problem:
            failed.append(f"{case.suite}: {case.id}: {problem}")
    for suite, count in total.items():
        print(f"{suite}: {right[suite]} of {count}")
    print("\n".join(failed), end="\n" if failed else "")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
