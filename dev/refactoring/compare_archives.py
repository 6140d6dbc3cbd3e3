"""Prove that a release holds every module that an older revision's release held.

    python -m dev.refactoring.compare_archives OLD_REVISION

Both revisions are built into a wheel and a source archive, the old one from git, the new one from
this tree. Every module of the old wheel must lie in the new one where ``renames.toml`` says that it
went; the package data (``py.typed``, codes, profiles, templates) must be there under their old
paths; and each source archive must hold the modules of its wheel. What is missing is listed and the
command exits with 1; modules that no old one became are counted as new.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dev.distribution import ROOT, Archives, build
from dev.refactoring.compare_definitions import Renames

#: Where the parts of a module went that a later move divided.
Divided = Mapping[str, list[str]]


class Contents(NamedTuple):
    """What a release holds: dotted names of modules, and paths of the package's other files."""

    modules: frozenset[str]
    data: frozenset[str]
    source: frozenset[str]


def contents(archives: Archives) -> Contents:
    """Read a wheel and a source archive."""
    with zipfile.ZipFile(archives.wheel) as wheel:
        paths = [name for name in wheel.namelist() if ".dist-info/" not in name]
    with tarfile.open(archives.sdist) as sdist:
        files = [member.name.partition("/")[2] for member in sdist if member.isfile()]
    return Contents(
        modules=frozenset(map(_module, _python(paths))),
        data=frozenset(path for path in paths if not path.endswith(".py")),
        source=frozenset(map(_module, _python(files))),
    )


def _python(paths: Iterable[str]) -> Iterable[str]:
    return (path for path in paths if path.endswith(".py"))


def _module(path: str) -> str:
    """The dotted name, of an old revision's rooms too, which lay outside the package's folder."""
    parts = path.removeprefix("src/").removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts and parts[0] == "edgeserve" else ["edgeserve", *parts])


def targets(module: str, renames: Renames, divided: Divided) -> list[str]:
    """Where an old module went: one place, or several where a later move divided it."""
    where = renames.module(module)
    return divided.get(where, [where])


def compare(old: Contents, new: Contents, renames: Renames, divided: Divided) -> list[str]:
    """A line for everything of the old release that the new one lacks."""
    lost = [
        f"module {module} is not at {where}"
        for module in sorted(old.modules)
        for where in targets(module, renames, divided)
        if where not in new.modules
    ]
    lost += [f"file {path} is gone" for path in sorted(old.data - new.data)]
    for what, each in (("old", old), ("new", new)):
        missing = sorted(each.modules - each.source)
        lost += [f"{module} is not in the {what} source archive" for module in missing]
    return lost


def _tree(revision: str, folder: Path) -> Path:
    """A revision's files, from git."""
    data = subprocess.check_output(["git", "archive", revision], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> int:
    """Build both revisions and print what the new release lacks."""
    table = Path(__file__).with_name("renames.toml")
    renames, divided = Renames.read(table), tomllib.loads(table.read_text())["divided"]
    with tempfile.TemporaryDirectory(prefix="edgeserve-archives-") as folder:
        top = Path(folder)
        old = contents(build(top / "old", _tree(sys.argv[1], top / "tree")))
        new = contents(build(top / "new"))
    lost = compare(old, new, renames, divided)
    came = {where for module in old.modules for where in targets(module, renames, divided)}
    print(*lost, sep="\n", end="\n" if lost else "")
    print(
        f"{len(old.modules)} old modules went to {len(came & new.modules)} of {len(new.modules)}; "
        f"{len(new.modules - came)} are new, {len(lost)} modules or files are lost"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
