"""One artifact from an export: routes in order, precisions and formats that are not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from edgeserve.backends import Backend
from edgeserve.backends.torch import TorchBackend
from edgeserve.convert import ExportRequest, TargetRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.convert.target import convert_target, recipe_of, try_routes
from edgeserve.errors import BackendError, ConvertError, QuantizeError, UnsupportedOp
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode, encode
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


@pytest.mark.parametrize("precision", ["w8a16", "w4"])
def test_precisions_that_a_format_is_not_made_in(precision: Any, tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format="onnx", precision=precision, out=str(tmp_path / "made")
    )
    with pytest.raises(ConvertError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-CONVERT-021"
    assert precision in error.value.message
    assert "fp32, fp16, w8, w8a8" in error.value.message
    assert not (tmp_path / "made").exists()


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format="onnx", precision="fp32", out=str(tmp_path / "made")
    )
    request = msgspec.structs.replace(request, format="ncnn")
    with pytest.raises(BackendError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-BACKEND-001"


# Precisions that are derived


NET = """
import torch
from torch import nn

def factory():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return net, (torch.ones(2, 3, 8, 8),), {
        "dynamic_shapes": ({0: ("batch", 1, 8)},), "input_names": ["image"],
        "output_names": ["logits"],
    }
"""


@dataclass
class Asker:
    """Requests for precisions of one net, exported once; its fp32 artifact, made once."""

    root: Path
    parent: Artifact

    @property
    def data(self) -> str:
        return str(self.root / "data.npz")

    def __call__(self, precision: Any, name: str = "", derive: bool = True, **more: Any) -> Any:
        out = str(self.root / (name or precision))
        if derive:
            more = {"parent": str(self.root / "fp32"), "parent_artifact": self.parent, **more}
        return TargetRequest(
            source_folder=str(self.root / "source"),
            format="onnx",
            precision=precision,
            out=out,
            **more,
        )


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    root = tmp_path_factory.mktemp("target")
    (root / "target_net.py").write_text(NET)
    source = parse_source("target_net:factory", root)
    export_source(ExportRequest(source=source, out=str(root / "source")))
    data = np.random.default_rng(0).normal(size=(24, 3, 8, 8)).astype(np.float32)
    np.savez(root / "data.npz", image=data)
    request = TargetRequest(
        source_folder=str(root / "source"), format="onnx", precision="fp32", out=str(root / "fp32")
    )
    return Asker(root, convert_target(request))


def test_a_precision_is_derived_with_and_without_a_parent(ask: Asker) -> None:
    """The same bytes either way, the fp32 file's hash as parent, and nothing left lying about."""
    alone = convert_target(ask("w8a8", "alone", derive=False, data=ask.data, calibration=10))
    given = convert_target(ask("w8a8", "given", data=ask.data, calibration=10))
    assert alone.files == given.files
    assert alone.provenance.parent == given.provenance.parent == ask.parent.sha256
    for folder in ("alone", "given"):
        assert [p.name for p in (ask.root / folder).iterdir()] == ["model.onnx"]
    recipe = given.provenance.recipe
    assert recipe is not None
    assert recipe.options["samples"] == "10"
    assert recipe.options["seed"] == "0"
    assert set(recipe.options) == {"samples", "seed", "activation", "reduce_range"}
    assert given.provenance.weights["int8"] >= 4 * 3 * 9 + 144 * 5


def test_wishes_reach_the_recipe(ask: Asker) -> None:
    made = convert_target(
        ask("w8a8", data=ask.data, activation="s8", reduce_range=True, keep_float=("0",))
    )
    recipe = made.provenance.recipe
    assert recipe is not None
    assert (recipe.options["activation"], recipe.options["reduce_range"]) == ("s8", "true")
    assert recipe.keep_float == ("0",)
    assert made.provenance.weights["int8"] < 4 * 3 * 9 + 144 * 5
    again = recipe_of(ask("w8a8", reduce_range=False), 9)
    assert again.options == {"samples": "9", "seed": "0", "reduce_range": "false"}


def test_only_what_calibrates_needs_data(ask: Asker) -> None:
    for precision in ("fp16", "w8"):
        artifact = convert_target(ask(precision))
        assert artifact.provenance.recipe is not None
        assert artifact.provenance.recipe.options == {}
    with pytest.raises(QuantizeError) as error:
        convert_target(ask("w8a8", "no-data"))
    assert error.value.code == "EDGE-QUANTIZE-001"


def test_a_parent_of_another_kind_is_refused(ask: Asker) -> None:
    half = msgspec.structs.replace(ask.parent, precision="fp16")
    with pytest.raises(QuantizeError) as error:
        convert_target(ask("w8", "orphan", parent_artifact=half))
    assert error.value.code == "EDGE-QUANTIZE-007"
    assert "onnx-fp16" in error.value.message


def test_a_parent_whose_bytes_changed_is_refused(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes((ask.root / "fp32/model.onnx").read_bytes() + b"more")
    with pytest.raises(BackendError) as error:
        convert_target(ask("w8", "changed", parent=str(tmp_path)))
    assert error.value.code == "EDGE-BACKEND-011"


def test_requests_travel(ask: Asker) -> None:
    """Between processes, with a parent and all wishes in them."""
    request = ask("w8a8", activation="u8", reduce_range=True, keep_float=("0",), options={"a": "b"})
    assert decode(encode(request), TargetRequest) == request


def test_an_export_that_is_not_there_is_refused(tmp_path: Path) -> None:
    request = TargetRequest(
        source_folder=str(tmp_path), format="onnx", precision="fp32", out=str(tmp_path / "made")
    )
    with pytest.raises(ConvertError) as error:
        convert_target(request)
    assert error.value.code == "EDGE-CONVERT-024"
