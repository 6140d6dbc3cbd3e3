"""Figure: what an app's environment weighs with edgeserve and one runtime in it.

A fresh virtual environment without pip gets the wheel of this checkout with the extra ``[onnx]``;
what lies in it then is summed up. The limits are for the packages' own files; the bytecode that
Python makes of them stands beside, because an image that minds its size leaves it out (``pip
install --no-compile``). Packages are downloaded by pip, so this is no test.

    python -m benchmarks.install_size [--json]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parent.parent
_TOTAL_MB, _OWN_MB = 165.0, 5.0
_LEFT_OUT = (
    ".git",
    ".venv",
    "build",
    "demo-out",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built from a copy: a stale build folder would end up in it."""
    copy = folder / "source"
    shutil.copytree(_ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(copy))
    [wheel] = folder.glob("edgeserve-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel and its runtime into a fresh environment; its site-packages."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    _pip("--python", str(python), "install", f"{wheel}[onnx]")
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


def main() -> int:
    """Print the sizes, or JSON; 1 when one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes, bytecode = weigh(install(build_wheel(Path(folder)), Path(folder) / "app"))
    total, own = sum(sizes.values()), sizes["edgeserve"]
    holds = total <= _TOTAL_MB and own <= _OWN_MB
    if arguments.json:
        told = {"total_mb": total, "own_mb": own, "bytecode_mb": bytecode, "by_package": sizes}
        print(json.dumps(told | {"holds": holds}))
        return 0 if holds else 1
    for name, size in sizes.items():
        print(f"{size:9.2f} MB  {name}")
    print(f"{total:9.2f} MB  in all, limit {_TOTAL_MB:g}")
    print(f"{own:9.2f} MB  of which edgeserve's own, limit {_OWN_MB:g}")
    print(f"{bytecode:9.2f} MB  of bytecode beside")
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
