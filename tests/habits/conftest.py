"""What the habits look at: the tree's packages, modules and texts."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

#: Folders that a checkout may hold besides what is committed.
NOT_OURS = {
    ".git",
    ".venv",
    "build",
    "dist",
    "demo-out",
    "zoo-out",
    "fuzz-out",
    "gpu-out",
    "hostile-out",
    "corpus-out",
    "bench-out",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
}


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    """The project's declaration."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="session")
def packages() -> Mapping[str, Path]:
    """Each package below ``src/``, its rooms behind links, and its folder."""
    source = ROOT / "src"
    return {
        ".".join(Path(folder).relative_to(source).parts): Path(folder)
        for folder, _, names in os.walk(source, followlinks=True)
        if "__init__.py" in names
    }


@pytest.fixture(scope="session")
def modules(packages: Mapping[str, Path]) -> Mapping[str, Path]:
    """Each module of the declared packages, by the name it is imported under, and its file."""
    found = {}
    for package, folder in packages.items():
        for file in sorted(folder.glob("*.py")):
            name = package if file.stem == "__init__" else f"{package}.{file.stem}"
            found[name] = file
    assert len(found) > 40, "the modules were not found"
    return found


@pytest.fixture(scope="session")
def trees(modules: Mapping[str, Path]) -> Mapping[str, ast.Module]:
    """Each module, parsed."""
    return {name: ast.parse(file.read_text("utf-8"), file) for name, file in modules.items()}


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in NOT_OURS and not f.endswith(".egg-info"))
        yield from (Path(folder, name) for name in sorted(names) if name not in NOT_OURS)


@pytest.fixture(scope="session")
def texts() -> Mapping[Path, str]:
    """Every text file of the tree, by its path below the root."""
    found = {}
    for file in _walk(ROOT):
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            found[file.relative_to(ROOT)] = text
    assert len(found) > 60, "the texts were not found"
    return found
