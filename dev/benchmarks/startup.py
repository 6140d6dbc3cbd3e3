"""Figure: what ``edgeserve --help`` costs before it says a word: CPU time and peak memory.

The command is run by itself, ``python -m edgeserve --help``, many times; the median counts. A bare
``python -c pass`` is run the same way and shown beside it: that share is Python's own. CPU time is
what is limited, since wall time says more about what else the machine does.

    python -m dev.benchmarks.startup [--json] [--runs N]
"""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

_CPU_MS, _RSS_MB = 100.0, 30.0
_HELP = ("-P", "-m", "edgeserve", "--help")
_BARE = ("-P", "-c", "pass")

#: ru_maxrss counts KiB on Linux and bytes on macOS.
_PER_MB = 1024.0**2 if sys.platform == "darwin" else 1024.0


def cost(arguments: Sequence[str]) -> tuple[float, float]:
    """CPU milliseconds (user + system) and peak resident MiB of one run of Python.

    The peak cannot read lower than this process's own memory, which a child has before it becomes
    another program; so nothing heavy is imported here.
    """
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_environment())
    _, status, usage = os.wait4(process.pid, 0)  # this child's own usage, not that of all before it
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"python {' '.join(arguments)} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / _PER_MB


@functools.cache
def _environment() -> dict[str, str]:
    """As after an installation: bytecode is there (in a folder of our own), nothing is preset."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    folder = tempfile.mkdtemp(prefix="edgeserve-startup-")
    atexit.register(shutil.rmtree, folder)
    return kept | {"PYTHONPYCACHEPREFIX": folder}


def median_cost(arguments: Sequence[str], runs: int) -> dict[str, float]:
    """Medians over ``runs`` runs, after one that warms the file cache and writes the bytecode."""
    cost(arguments)
    found = [cost(arguments) for _ in range(runs)]
    cpu, rss = zip(*found, strict=True)
    return {"cpu_ms": statistics.median(cpu), "rss_mb": statistics.median(rss)}


def _table(figures: dict[str, dict[str, float]], runs: int) -> str:
    titles = {"help": "edgeserve --help", "bare": "python -c pass", "limit": "limit"}
    rows = [
        f"{title:18} {figures[name]['cpu_ms']:6.1f} ms CPU {figures[name]['rss_mb']:6.1f} MB peak"
        for name, title in titles.items()
    ]
    return "\n".join([*rows, f"median of {runs} runs"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print both costs, and whether they are within the limits; exit status 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    figures = {
        "help": median_cost(_HELP, options.runs),
        "bare": median_cost(_BARE, options.runs),
        "limit": {"cpu_ms": _CPU_MS, "rss_mb": _RSS_MB},
    }
    print(json.dumps(figures) if options.json else _table(figures, options.runs))
    within = all(figures["help"][what] <= figures["limit"][what] for what in ("cpu_ms", "rss_mb"))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
