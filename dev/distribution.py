"""Build the wheel and the source archive, install each in a clean environment, and try it there.

    python -m dev.distribution [OUT]        # `make dist`; OUT is dist/

Archives are built offline from a copy of the tree, without what earlier builds left. A clean
environment holds one archive and sees the libraries of the running environment, but none of its
editable installations.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

#: What lies at the root of a checkout and belongs to no archive.
_PRIVATE = {".git", ".venv", "build", "dist", "demo-out", "zoo-out", "bench-out", "corpus-out"}

#: Imports every module of the installed package, and prints how many, and which fail.
_IMPORT_ALL = """
import importlib, pkgutil, sys
import edgeserve
assert edgeserve.__file__.startswith(sys.prefix), edgeserve.__file__
failed, count = [], 0
for found in pkgutil.walk_packages(edgeserve.__path__, "edgeserve."):
    if found.name.endswith("__main__"):
        continue
    count += 1
    try:
        importlib.import_module(found.name)
    except Exception as error:
        failed.append(f"{found.name}: {type(error).__name__}: {error}")
print(f"{count} modules imported" if not failed else chr(10).join(failed))
sys.exit(bool(failed))
"""


class Archives(NamedTuple):
    """The two archives of a release."""

    sdist: Path
    wheel: Path


def run(*command: object, cwd: Path, **variables: str) -> str:
    """Run a command as a user in another folder would, without this process's Python variables.

    Returns:
        Its output, standard error included.

    Raises:
        RuntimeError: it failed; the message ends with its output.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def build(out: Path, root: Path = ROOT) -> Archives:
    """Build the source archive of a tree, and the wheel from it, into a folder."""

    def ignore(folder: str, names: list[str]) -> set[str]:
        # Only at the root: a package may well be called `build` further down.
        private = _PRIVATE if Path(folder) == root else set()
        caches = {n for n in names if n == "__pycache__" or n.endswith((".egg-info", "_cache"))}
        return private & set(names) | caches

    with tempfile.TemporaryDirectory(prefix="edgeserve-build-") as folder:
        tree, made = Path(folder, "tree"), Path(folder, "made")
        shutil.copytree(root, tree, symlinks=True, ignore=ignore)
        tool = (sys.executable, "-P", "-m", "build", "--no-isolation")
        run(*tool, "--outdir", made, tree, cwd=made.parent)
        out.mkdir(parents=True, exist_ok=True)
        kinds = ("*.tar.gz", "*.whl")
        return Archives(*(Path(shutil.copy(next(made.glob(kind)), out)) for kind in kinds))


def clean_environment(archive: Path, home: Path) -> Path:
    """Install an archive into a fresh environment that sees the libraries of this one.

    Returns:
        The environment's Python.
    """
    venv.create(home, with_pip=False)
    [site] = home.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched, but its own .pth files (editable ones) do not run.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = home / "bin" / "python"
    pip = (sys.executable, "-P", "-m", "pip", "--python", python, "--disable-pip-version-check")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
    run(*pip, "install", "--quiet", *offline, archive, cwd=home.parent)
    return python


def _try(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="edgeserve-dist-") as folder:
        python = clean_environment(archive, Path(folder, "venv"))
        version = run(python.parent / "edgeserve", "--version", cwd=Path(folder)).strip()
        imported = run(python, "-P", "-W", "ignore", "-c", _IMPORT_ALL, cwd=Path(folder))
        print(f"{archive.name}: {version}, {imported.splitlines()[-1]}")


def main() -> int:
    """Build both archives and try each."""
    out = Path(sys.argv[1]).absolute() if sys.argv[1:] else ROOT / "dist"
    for archive in build(out):
        _try(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
