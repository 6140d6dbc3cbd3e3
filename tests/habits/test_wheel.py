"""The wheel: built from the source archive, installed elsewhere, and put through tests there.

The checkout's own packages are found by a finder that an editable install puts in place; what a
user gets is this wheel. It is installed into a fresh environment that sees the libraries of the
running one, and whose edgeserve can only be the wheel's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

#: Rooms whose tests are run against the wheel: all that run without torch.
ROOMS = ("core", "types", "processing", "bundle", "tasks", "data", "profiles")


class Built(NamedTuple):
    """The two archives of a release."""

    sdist: Path
    wheel: Path


def call(*command: object, cwd: Path, **more: str) -> str:
    """Run a command as a user in another folder would; its output, or a failure that shows it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | more,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both archives, built from a copy: a build leaves folders that could slip into the next."""
    place = tmp_path_factory.mktemp("build")
    # Anchored at the root: a package may well be called `build` further down.
    private = {".git", ".venv", "build", "dist", "demo-out", "zoo-out", "bench-out"}

    def ignore(folder: str, names: list[str]) -> set[str]:
        mine = private if Path(folder) == root else set()
        return {
            n
            for n in names
            if n in mine or n == "__pycache__" or n.endswith((".egg-info", "_cache"))
        }

    shutil.copytree(root, place / "tree", symlinks=True, ignore=ignore)
    call(
        sys.executable,
        "-P",
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        place / "dist",
        place / "tree",
        cwd=place,
    )
    return Built(*(next((place / "dist").glob(kind)) for kind in ("*.tar.gz", "*.whl")))


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that holds the wheel and sees the libraries of this one."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    call(sys.executable, "-P", "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    pip = (sys.executable, "-P", "-m", "pip", "--python", python)
    call(*pip, "install", "--no-index", "--no-deps", "--quiet", built.wheel, cwd=home.parent)
    site = next(home.glob("lib/python*/site-packages"))
    # A folder named in a .pth is searched, but its own .pth files (the finder's) do not run.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def test_the_wheel_holds_the_packages_and_nothing_else(
    built: Built, packages: Mapping[str, Path], root: Path
) -> None:
    wanted = {
        f"{package.replace('.', '/')}/{file.relative_to(folder).as_posix()}"
        for package, folder in packages.items()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
        if file.suffix != ".py" or file.parent == folder
    }
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
        licence = next(n for n in names if n.endswith("licenses/LICENSE"))
        assert wheel.read(licence) == (root / "LICENSE").read_bytes()
    assert {n for n in names if ".dist-info/" not in n} == wanted
    assert built.wheel.stat().st_size < 5_000_000, "edgeserve's own share of a runtime-only install"


def test_the_source_archive_can_be_tested(built: Built, root: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tests = {p.relative_to(root).as_posix() for p in (root / "tests").rglob("*.py")}
    assert tests - names == set()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "docs/decisions"} <= names
    assert not any(part in name for name in names for part in (".venv", "__pycache__", "demo-out"))


def test_the_installed_package_is_the_wheel(python: Path, packages: Mapping[str, Path]) -> None:
    script = (
        "import importlib, json, sys\n"
        "from importlib.metadata import distribution\n"
        f"found = [importlib.import_module(p).__file__ for p in {sorted(packages)!r}]\n"
        "described = str(distribution('edgeserve').locate_file('edgeserve'))\n"
        "print(json.dumps([sys.prefix, described, *found]))"
    )
    said = call(python, "-P", "-c", script, cwd=python.parent)
    prefix, *files = json.loads(said.splitlines()[-1])
    assert Path(prefix) == python.parents[1]
    assert all(Path(file).is_relative_to(prefix) for file in files), files


def test_the_command_runs(python: Path, tmp_path: Path) -> None:
    assert "convert" in call(python.parent / "edgeserve", "--help", cwd=tmp_path)
    said = call(python.parent / "edgeserve", "explain", "EDGE-FILES-001", cwd=tmp_path)
    assert "EDGE-FILES-001" in said
    assert "convert" in call(python, "-P", "-m", "edgeserve", "--help", cwd=tmp_path)


def test_the_tests_pass_against_the_wheel(python: Path, built: Built, tmp_path: Path) -> None:
    """The source archive's tests, in a folder where no checkout can be imported by accident."""
    wanted = re.compile(r"[^/]+/(?:tests/|docs/|dev/|spec/|pyproject\.toml)")
    with tarfile.open(built.sdist) as archive:
        members = [m for m in archive.getmembers() if wanted.match(m.name)]
        archive.extractall(tmp_path, members, filter="data")
    [folder] = tmp_path.iterdir()
    (folder / "tests/core/test_here.py").write_text(
        "import sys\n\nimport edgeserve\n\n\n"
        "def test_here():\n    assert edgeserve.__file__.startswith(sys.prefix)\n"
    )
    rooms = [f"tests/{room}" for room in ROOMS if (folder / "tests" / room).is_dir()]
    said = call(
        python,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *rooms,
        cwd=folder,
    )
    assert " passed" in said
    assert "failed" not in said
