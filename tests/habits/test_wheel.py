"""The wheel: built from the source archive, installed elsewhere, and put through tests there.

What tests import is the checkout; what a user gets is this wheel. It is installed into a fresh
environment that sees the libraries of the running one, and whose edgeserve can only be the wheel's.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.distribution import Archives, build, clean_environment, run
from edgeserve.installation import DISTRIBUTION

pytestmark = pytest.mark.slow

#: What is run against the wheel, all of it without torch: enough to see that its modules, data
#: files and worker processes are found. That it holds every module is compared elsewhere.
TESTED = (
    "types",
    "bundle",
    "tasks",
    "data",
    "profiles",
    "core/test_fork_server.py",
    "core/test_here.py",
)


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Both archives of this tree."""
    return build(tmp_path_factory.mktemp("dist"), root)


@pytest.fixture(scope="module")
def python(built: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that holds the wheel and sees the libraries of this one."""
    return clean_environment(built.wheel, tmp_path_factory.mktemp("installed") / "venv")


def test_the_wheel_holds_the_packages_and_nothing_else(
    built: Archives, packages: Mapping[str, Path], root: Path
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


def test_the_source_archive_can_be_tested(built: Archives, root: Path) -> None:
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
        f"described = str(distribution({DISTRIBUTION!r}).locate_file('edgeserve'))\n"
        "print(json.dumps([sys.prefix, described, *found]))"
    )
    said = run(python, "-P", "-c", script, cwd=python.parent)
    prefix, *files = json.loads(said.splitlines()[-1])
    assert Path(prefix) == python.parents[1]
    assert all(Path(file).is_relative_to(prefix) for file in files), files


def test_the_command_runs(python: Path, tmp_path: Path) -> None:
    assert "convert" in run(python.parent / "edgeserve", "--help", cwd=tmp_path)
    said = run(python.parent / "edgeserve", "explain", "EDGE-FILES-001", cwd=tmp_path)
    assert "EDGE-FILES-001" in said
    assert "convert" in run(python, "-P", "-m", "edgeserve", "--help", cwd=tmp_path)


def test_a_hint_names_the_wheel_and_works(python: Path, built: Archives, tmp_path: Path) -> None:
    """PEP 610: pip has recorded the file, so the hint can install from it again."""
    script = "from edgeserve.installation import install_command as c; print(c('onnx', 'text'))"
    pip, *words = shlex.split(run(python, "-P", "-c", script, cwd=tmp_path))
    assert (pip, words) == ("pip", ["install", f"{built.wheel}[onnx,text]"])
    tool = (sys.executable, "-P", "-m", "pip", "--python", python, "--disable-pip-version-check")
    said = run(*tool, *words, "--no-index", "--dry-run", cwd=tmp_path)
    assert "onnxruntime" in said
    assert "error" not in said.lower()


@pytest.mark.dist
def test_the_tests_pass_against_the_wheel(python: Path, built: Archives, tmp_path: Path) -> None:
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
    tested = [f"tests/{part}" for part in TESTED if (folder / "tests" / part).exists()]
    said = run(
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
        *tested,
        cwd=folder,
    )
    assert " passed" in said
    assert "failed" not in said
