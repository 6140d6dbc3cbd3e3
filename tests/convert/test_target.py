"""One artifact from an export: routes in order, precisions and formats that are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from edgeserve.backends import Backend
from edgeserve.backends.torch import TorchBackend
from edgeserve.convert import TargetRequest
from edgeserve.convert.target import convert_target, try_routes
from edgeserve.errors import BackendError, ConvertError, UnsupportedOp
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Exported

Export = Callable[[str], Exported]


class Routed(TorchBackend):
    """A backend with three routes, of which some fail as their names say."""

    failing: ClassVar[dict[str, Exception]] = {}

    def routes(self) -> tuple[str, ...]:
        return ("first", "second", "third")

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        (out / f"{route}.tmp").write_text("left by a route")
        if route in self.failing:
            raise self.failing[route]
        return super()._export(exported, root, out, route)


def unsupported(op: str) -> UnsupportedOp:
    return UnsupportedOp("EDGE-OP-001", op, got="x", hint="y")


@pytest.fixture
def exported(export: Export) -> Exported:
    return export("good:factory")


def backend(**failing: Exception) -> Backend:
    made = Routed()
    made.failing = failing  # type: ignore[misc]
    return made


def test_the_first_route_that_works_wins(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = ConvertError("EDGE-CONVERT-020", "two", got="", hint="")
    made = backend(first=unsupported("one"), second=failed)
    artifact = try_routes(made, exported, tmp_path / "out", tmp_path / "made")
    assert artifact.provenance.route == "third"
    said = capsys.readouterr().out
    order = [said.index(words) for words in ("'first' failed", "'second' failed", "'third' worked")]
    assert order == sorted(order)
    assert [p.name for p in (tmp_path / "made").iterdir()] == ["model.pt2"]
    assert artifact.files[0].size == (tmp_path / "made" / "model.pt2").stat().st_size


def test_when_none_works_the_first_one_speaks(exported: Exported, tmp_path: Path) -> None:
    made = backend(**{name: unsupported(name) for name in ("first", "second", "third")})
    with pytest.raises(UnsupportedOp) as error:
        try_routes(made, exported, tmp_path / "out", tmp_path / "made")
    assert error.value.thing == "first"
    assert not list((tmp_path / "made").iterdir())


def test_routes_can_be_named(exported: Exported, tmp_path: Path) -> None:
    artifact = try_routes(backend(), exported, tmp_path / "out", tmp_path / "made", ("second",))
    assert artifact.provenance.route == "second"
    with pytest.raises(BackendError) as error:
        try_routes(backend(), exported, tmp_path / "out", tmp_path / "made", ("fourth",))
    assert error.value.code == "EDGE-BACKEND-015"


def test_other_errors_are_not_mistaken_for_a_route_that_failed(
    exported: Exported, tmp_path: Path
) -> None:
    made = backend(first=MemoryError("no more"))
    with pytest.raises(MemoryError):
        try_routes(made, exported, tmp_path / "out", tmp_path / "made")
    assert not list((tmp_path / "made").iterdir())


@pytest.mark.parametrize("precision", ["fp16", "w8", "w8a8", "w8a16", "w4"])
def test_precisions_of_later_versions_are_refused(precision: Any, tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format="onnx", precision=precision, out=str(tmp_path / "made")
    )
    with pytest.raises(ConvertError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-CONVERT-021"
    assert precision in error.value.message
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("format", ["tflite", "coreml"])
def test_formats_of_later_versions_are_refused(format: Any, tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format=format, precision="fp32", out=str(tmp_path / "made")
    )
    with pytest.raises(BackendError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-BACKEND-002"


def test_an_export_that_is_not_there_is_refused(tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format="onnx", precision="fp32", out=str(tmp_path / "made")
    )
    with pytest.raises(ConvertError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-CONVERT-024"
