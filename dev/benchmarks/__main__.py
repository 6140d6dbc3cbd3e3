"""Print every figure that this repository claims, one after the other: ``make bench``.

Needs ``make demo`` first: the figures are about its bundle and photos. ``install_size`` downloads
the runtime packages; leave it out with ``--offline``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

#: What is run, in order, and what each one's figure is.
FIGURES: dict[str, tuple[str, ...]] = {
    "fp32 files against PyTorch on the demo's crops": (
        "-m",
        "dev.benchmarks.agreement",
        "demo-out/tagger.edge",
        "demo-out/photos",
    ),
    "precisions of the tagger: decisions and times": (
        "-m",
        "dev.benchmarks.precisions",
        "demo-out/tagger.edge",
        "demo-out/photos",
    ),
    "text encoder against transformers": (
        "-m",
        "dev.benchmarks.embeddings",
        "demo-out/minilm.edge",
        "demo-out/sentences",
    ),
    "Core ML interpreter against PyTorch on whole models": ("-m", "dev.benchmarks.mil"),
    "three formats with the gate against three plain scripts": (
        "-m",
        "dev.benchmarks.conversion",
        "demo-out/photos",
    ),
    "the gate's time against bare runs of both sides": (
        "-m",
        "dev.benchmarks.gate",
        "demo-out/tagger",
        "demo-out/photos/data.jsonl",
    ),
    "processing against Pillow on every conformance case": ("tests/spec/run.py", "processing"),
    "processing against naive code": ("-m", "dev.benchmarks.processing"),
    "the endpoint beside the bare run, and under too much load": ("-m", "dev.benchmarks.serve"),
    "the fallback contract under every fault": ("-m", "dev.benchmarks.faults", "--live", "10000"),
    "photos answered by the device and by the endpoint": (
        "-m",
        "dev.benchmarks.endpoint_agreement",
        "demo-out/tagger",
        "demo-out/photos",
    ),
    "a node of two killed under load": ("-m", "dev.benchmarks.ray_kill"),
    "Wrapper against the bare session, photo to label against its bare sum": (
        "-m",
        "dev.benchmarks.wrapper",
        "demo-out/tagger.edge",
    ),
    "start of the command line": ("-m", "dev.benchmarks.startup"),
    "size of a runtime-only install": ("-m", "dev.benchmarks.install_size"),
}
_DOWNLOADS = frozenset({"size of a runtime-only install"})


def main() -> int:
    """Run all; exit 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offline", action="store_true", help="leave out what downloads")
    offline = parser.parse_args().offline
    if not Path("demo-out/tagger.edge").exists():
        print("run `make demo` first: the figures are about demo-out/tagger.edge", file=sys.stderr)
        return 2
    failed = 0
    for title, words in FIGURES.items():
        if offline and title in _DOWNLOADS:
            continue
        print(f"\n== {title}", flush=True)
        failed += subprocess.run([sys.executable, *words], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
