"""Figure: what an app's environment weighs with edgeserve and one runtime in it.

A fresh virtual environment without pip gets the wheel of this checkout with the extras of one
runtime (and of text); what lies in it then is summed up. The limits are for the packages' own
files; the bytecode that Python makes of them stands beside, because an image that minds its size
leaves it out (``pip install --no-compile``). Packages are downloaded by pip, so this is no test.

    python -m dev.benchmarks.install_size [--json]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from dev.distribution import build
from edgeserve.installation import DISTRIBUTION

#: Extras of one runtime-only install each, and the most it may weigh in megabytes.
_SETS = {"onnx": 165.0, "onnx,text": 205.0, "tflite,text": 205.0}
_OWN_MB = 5.0


def install(wheel: Path, folder: Path, extra: str) -> Path:
    """Install the wheel and what its extras ask for into a fresh environment; its site-packages."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    _pip("--python", str(python), "install", f"{wheel}[{extra}]")
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def weigh(site: Path) -> tuple[dict[str, float], float]:
    """Megabytes (10^6 bytes) by top-level name, libraries included; and of bytecode."""
    sizes: dict[str, float] = {}
    bytecode = 0.0
    for file in site.rglob("*"):
        if file.suffix == ".pyc":
            bytecode += file.stat().st_size / 1e6
        elif file.is_file():
            top = re.split(r"-[0-9]|\.libs", file.relative_to(site).parts[0].lower())[0]
            sizes[top] = sizes.get(top, 0.0) + file.stat().st_size / 1e6
    return dict(sorted(sizes.items(), key=lambda item: -item[1])), bytecode


def _pip(*words: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *quiet, *words], check=True)


def measure(extras: tuple[str, ...] = tuple(_SETS)) -> dict[str, dict[str, object]]:
    """Figures of each set of extras: megabytes in all, edgeserve's own, bytecode, the largest."""
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="edgeserve-install-") as folder:
        wheel = build(Path(folder)).wheel
        for extra in extras:
            sizes, bytecode = weigh(install(wheel, Path(folder, "venv-" + extra), extra))
            found[extra] = {
                "total_mb": sum(sizes.values()),
                "own_mb": sizes.get("edgeserve", 0.0),
                "bytecode_mb": bytecode,
                "largest_mb": dict(list(sizes.items())[:8]),
            }
    return found


def main() -> int:
    """Print the sizes, or JSON; 1 when one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure()
    if arguments.json:
        print(json.dumps(found))
    over = False
    for extra, figures in found.items():
        total, own = float(str(figures["total_mb"])), float(str(figures["own_mb"]))
        over |= total > _SETS[extra] or own > _OWN_MB
        if not arguments.json:
            print(f"{DISTRIBUTION}[{extra}]: {total:.1f} MB (wanted <= {_SETS[extra]:.0f})")
            print(f"  own {own:.2f} MB (wanted <= {_OWN_MB:.0f})")
            print(f"  bytecode beside that {figures['bytecode_mb']:.1f} MB")
            print("  largest:", ", ".join(f"{n} {mb:.1f}" for n, mb in _largest(figures)))
    return int(over)


def _largest(figures: dict[str, object]) -> list[tuple[str, float]]:
    largest = figures["largest_mb"]
    assert isinstance(largest, dict)
    return list(largest.items())


if __name__ == "__main__":
    sys.exit(main())
