"""What is declared in pyproject.toml and what lies on disk are the same."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import edgeserve
from edgeserve.installation import DISTRIBUTION

#: Top-level folders with Python in them that are not part of the installed package.
NOT_INSTALLED = {"dev", "docs", "spec", "tests"}

#: Libraries that are installed under another name, or that another one always brings.
INSTALLED_AS = {
    "PIL": "pillow",
    "onnx_ir": "onnx-ir",
    "markupsafe": "jinja2",
    "litert_torch": "litert-torch",
    "ai_edge_litert": "ai-edge-litert",
    "ai_edge_quantizer": "ai-edge-quantizer",
    "grpc": "grpcio",
    "google": "protobuf",
    "prometheus_client": "prometheus-client",
    "simdjson": "pysimdjson",
    "opentelemetry": "opentelemetry-api",
}


#: What a build must not carry.
_CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info")


def test_every_room_is_a_folder_behind_its_link(root: Path, pyproject: Mapping[str, Any]) -> None:
    """What lies at the root and holds a package is linked; nothing else is."""
    source = root / "src" / "edgeserve"
    if not any(path.is_symlink() for path in source.iterdir()):
        pytest.skip("a source archive holds no links")
    linked = {path.name: path.readlink() for path in source.iterdir() if path.is_symlink()}
    rooms = {p.parent.name for p in root.glob("*/__init__.py")} - NOT_INSTALLED
    assert rooms | {"wrapper"} == set(linked)
    measured = {Path(each).name for each in pyproject["tool"]["coverage"]["run"]["source"]}
    assert measured == {"edgeserve", *linked}, "coverage follows no links"
    assert all(not target.is_absolute() for target in linked.values())
    assert all((source / name).resolve().is_relative_to(root) for name in linked)


def test_every_folder_with_modules_is_a_package(packages: Mapping[str, Path]) -> None:
    """A folder without ``__init__.py`` is left out of the wheel without a word."""
    for folder in packages.values():
        for child in folder.iterdir():
            if child.is_dir() and any(child.glob("*.py")):
                assert (child / "__init__.py").is_file(), child


@pytest.mark.parametrize("lost", ["backends", "wrapper"])
def test_a_checkout_without_links_is_not_built(root: Path, tmp_path: Path, lost: str) -> None:
    """Git writes a link as a file that holds its target where links are switched off."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "src", tmp_path / "src", symlinks=False, ignore=_CACHES)
    shutil.rmtree(tmp_path / "src" / "edgeserve" / lost)
    (tmp_path / "src" / "edgeserve" / lost).write_text(f"../../{lost}")
    command = [sys.executable, "setup.py", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"src/edgeserve/{lost} is not a folder" in done.stderr
    assert "core.symlinks=true" in done.stderr


def test_package_data_and_files_on_disk_are_the_same(
    packages: Mapping[str, Path], pyproject: Mapping[str, Any]
) -> None:
    """A pattern without a match is a slip; a file that no pattern names is lost in the wheel."""
    declared = pyproject["tool"]["setuptools"]["package-data"]
    named: set[Path] = set()
    for package, patterns in declared.items():
        for pattern in patterns:
            matched = {p for p in packages[package].glob(pattern) if p.is_file()}
            assert matched, f"{package}: {pattern} matches nothing"
            named |= matched
    on_disk = {
        file
        for folder in packages.values()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert on_disk == named


def test_one_version(pyproject: Mapping[str, Any], root: Path) -> None:
    assert pyproject["project"]["version"] == edgeserve.__version__
    assert f"[{edgeserve.__version__}]" in (root / "CHANGELOG.md").read_text("utf-8")


def test_the_distribution_has_a_name_of_its_own(pyproject: Mapping[str, Any]) -> None:
    """On PyPI "edgeserve" is another author's package, which a hint must never install."""
    assert pyproject["project"]["name"] == DISTRIBUTION != "edgeserve"


#: What would install the other author's package. Written so that it does not match itself.
OTHERS = re.compile(r"edgeserv[e]\[[a-z]|pip3? install[^`\n\"]*(?<![\w/.-])edgeserv[e](?![\w/.-])")


def test_nothing_tells_to_install_the_other_package(texts: Mapping[Path, str]) -> None:
    found = [f"{path}: {hit[0]}" for path, text in texts.items() for hit in OTHERS.finditer(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "pip install '{}[onnx]'",
        "pip install -U {}",
        "pip install {}==0.1",
        "`pip install {}`",
        "with {}[gpu] for CUDA",
    ],
)
def test_a_planted_install_line_is_found(text: str) -> None:
    assert OTHERS.search(text.format("edge" + "serve"))
    assert not OTHERS.search(text.format(DISTRIBUTION))


def requirements(pyproject: Mapping[str, Any]) -> dict[str, list[Requirement]]:
    """The base ("") and each extra."""
    project = pyproject["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: [Requirement(text) for text in texts] for name, texts in lists.items()}


def test_the_base_is_small(pyproject: Mapping[str, Any]) -> None:
    base = {r.name for r in requirements(pyproject)[""]}
    assert base == {"numpy", "msgspec", "filelock", "platformdirs"}


def test_extras_are_sound(pyproject: Mapping[str, Any]) -> None:
    wanted = requirements(pyproject)
    for extra, items in wanted.items():
        names = [r.name for r in items]
        assert len(set(names)) == len(names), f"[{extra}] names something twice"
        for item in items:
            assert item.specifier or item.name == DISTRIBUTION, (
                f"[{extra}]: {item} has no lowest version"
            )
            unknown = item.extras - wanted.keys() if item.name == DISTRIBUTION else set()
            assert not unknown, f"[{extra}]: {item} names an unknown extra"
    own = [r for r in wanted["dev"] if r.name == DISTRIBUTION]
    assert own[0].extras == wanted.keys() - {"", "dev", "gpu"}, (
        "[dev] brings all that can be together"
    )


def test_everything_imported_can_be_installed(
    pyproject: Mapping[str, Any], trees: Mapping[str, ast.Module]
) -> None:
    offered = {r.name for items in requirements(pyproject).values() for r in items}
    imported = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    third = imported - sys.stdlib_module_names - {"edgeserve"}
    assert "numpy" in third
    assert {INSTALLED_AS.get(name, name) for name in third} - offered == set()


def test_the_command_exists(pyproject: Mapping[str, Any]) -> None:
    module, _, name = pyproject["project"]["scripts"]["edgeserve"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_type_marker_is_there(packages: Mapping[str, Path]) -> None:
    assert (packages["edgeserve"] / "py.typed").read_bytes() == b""


def test_the_licence_is_whole(root: Path) -> None:
    text = (root / "LICENSE").read_text("utf-8")
    assert "Version 2.0, January 2004" in text
    assert re.findall(r"^   (\d)\. ", text, re.MULTILINE) == list("123456789")
    assert "END OF TERMS AND CONDITIONS" in text
