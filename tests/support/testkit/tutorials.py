"""Runs the Python blocks of a tutorial in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import edgeserve

__all__ = ["TutorialRun", "run_tutorial"]

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", re.DOTALL)
_EDIT = re.compile(r"```diff\n# (\S+\.py)\n(.*?)```", re.DOTALL)


class TutorialRun(NamedTuple):
    """What a page did: files added to the package, lines added to its files, tests that passed."""

    added: list[str]
    lines: int
    passed: int


def run_tutorial(page: str, folder: Path) -> TutorialRun:
    """Lay a page's blocks where their first lines say, and run its tests.

    A block ``python`` is a file; a block ``diff`` adds its lines with ``+`` after its line before.
    """
    text = (ROOT / "docs" / "tutorials" / page).read_text("utf-8")
    package = folder / "src" / "edgeserve"
    installed = Path(edgeserve.__file__).parent
    shutil.copytree(installed, package, ignore=shutil.ignore_patterns("__pycache__"))
    added, lines, tests = [], 0, []
    for name, body in _BLOCK.findall(text):
        path = folder / name
        assert not path.exists(), f"{name} is in the package already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")
        (added if name.startswith("src/") else tests).append(name)
    for name, body in _EDIT.findall(text):
        path = folder / name
        before, *plus = body.splitlines()
        whole = path.read_text("utf-8")
        assert whole.count(before[1:] + "\n") == 1, before
        new = "".join(line[1:] + "\n" for line in plus)
        path.write_text(whole.replace(before[1:] + "\n", before[1:] + "\n" + new), "utf-8")
        lines += len(plus)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    paths = os.pathsep.join([str(folder / "src"), str(folder)])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout
    return TutorialRun(added, lines, int(found[1]))
