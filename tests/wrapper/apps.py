"""Environments of apps: edgeserve and a few distributions linked from this one, nothing else."""

from __future__ import annotations

import importlib
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import edgeserve

__all__ = ["make_app"]

_ROOMS = (
    "backends",
    "convert",
    "measure",
    "package",
    "profiles",
    "report",
    "serve",
    "validate",
    "wrapper",
)


def make_app(folder: Path, names: tuple[str, ...]) -> str:
    """The Python of an environment with edgeserve, these distributions and what they require."""
    venv.create(folder / "app", with_pip=False)
    [site] = (folder / "app").glob("lib/python*/site-packages")
    for name in sorted(_closure(names)):
        _link_distribution(name, site)
    _link_edgeserve(site / "edgeserve")
    return str(folder / "app/bin/python")


def _closure(names: tuple[str, ...]) -> set[str]:
    """The distributions with all that they require (without extras)."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for needed in map(Requirement, metadata.requires(name) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                todo.append(needed.name.lower())
    return found


def _link_distribution(name: str, site: Path) -> None:
    for file in metadata.files(name) or ():
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not (site / top).exists():
            (site / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))


def _link_edgeserve(target: Path) -> None:
    """The package as a wheel would lay it out, from a checkout or an installation."""
    target.mkdir()
    for file in Path(edgeserve.__file__).parent.iterdir():
        if file.name != "__pycache__":
            (target / file.name).symlink_to(file)
    for room in _ROOMS:
        if not (target / room).exists():
            folder = Path(str(importlib.import_module(f"edgeserve.{room}").__file__)).parent
            (target / room).symlink_to(folder)
