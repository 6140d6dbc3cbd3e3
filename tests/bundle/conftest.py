"""Bundles and workspaces made without edgeserve: by the generator of the conformance cases."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFORMANCE = Path(__file__).resolve().parents[2] / "spec" / "conformance" / "bundle"
sys.path.append(str(CONFORMANCE))

from bundlecases import content  # noqa: E402
from bundlecases.parts import apply  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `good_case` each conformance case that opens."""
    if "good_case" in metafunc.fixturenames:
        listed = json.loads((CONFORMANCE / "cases.json").read_bytes())["cases"]
        found = [case for case in listed if "error" not in case]
        metafunc.parametrize("good_case", found, ids=[case["id"] for case in found])


@pytest.fixture
def colour(tmp_path: Path) -> Path:
    """A small bundle: one ONNX model, one golden case."""
    path = tmp_path / "colour.edge"
    path.write_bytes((CONFORMANCE / "bases" / "colour.edge").read_bytes())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle with artifacts of several files."""
    path = tmp_path / "folder.edge"
    path.write_bytes((CONFORMANCE / "bases" / "folder.edge").read_bytes())
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with what the bundle `colour` holds."""
    return content.write_workspace(
        tmp_path / "out", content.colour_manifest(), content.colour_files()
    )


@pytest.fixture(scope="session")
def bases() -> dict[str, bytes]:
    """The base bundles of the cases, by name."""
    return {path.stem: path.read_bytes() for path in (CONFORMANCE / "bases").glob("*.edge")}


@pytest.fixture
def write_case(tmp_path: Path, bases: dict[str, bytes]) -> Callable[[dict[str, Any]], Path]:
    """Write a case's file; long runs of zeros become holes."""

    def write(case: dict[str, Any]) -> Path:
        path = tmp_path / "case.edge"
        with open(path, "wb") as out:
            for piece in apply(case["parts"], bases[case["base"]]):
                if isinstance(piece, int):
                    out.truncate(out.seek(piece, 1))
                else:
                    out.write(piece)
        return path

    return write
