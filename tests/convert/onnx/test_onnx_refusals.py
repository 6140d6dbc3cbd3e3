"""ONNX files that are broken, hostile or no source: each is refused before anything runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.errors import ConvertError, FilesError
from edgeserve.types.source import Exported

FLOAT = TensorProto.FLOAT

Dense = Callable[..., onnx.ModelProto]
Write = Callable[..., Path]
Export = Callable[..., tuple[Exported, Path]]
Refused = Callable[[Path], ConvertError]


def value(name: str, shape: list[Any] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def refused(export: Export) -> Refused:
    """The error that a file is refused with."""

    def refused(path: Path) -> ConvertError:
        with pytest.raises(ConvertError) as error:
            export(path)
        assert "\n" not in error.value.message + error.value.hint
        return error.value

    return refused


@pytest.mark.parametrize("data", [b"", b"noise" * 99, b"\x08\x09"])
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes, refused: Refused) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "model.onnx").write_bytes(data)
    assert refused(tmp_path / "user" / "model.onnx").code == "EDGE-CONVERT-072"


def test_an_invalid_graph_is_refused_by_the_users_own_name(
    tmp_path: Path, write: Write, dense: Dense, refused: Refused
) -> None:
    unsorted = dense()
    unsorted.graph.node.insert(0, unsorted.graph.node.pop())
    absent = dense([helper.make_node("Relu", ["nowhere"], ["y"])])
    for model in (unsorted, absent):
        error = refused(path := write(model).rename(tmp_path / "mine.onnx"))
        assert (error.code, error.thing) == ("EDGE-CONVERT-072", path.name)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"opset": 6}, "7 to"),
        ({"opset": 99}, "99"),
        (
            {
                "nodes": [helper.make_node("Foo", ["x"], ["y"], domain="my.ops")],
                "domains": ["my.ops"],
            },
            "my.ops::Foo",
        ),
    ],
)
def test_operators_nobody_has_are_refused(
    write: Write, dense: Dense, refused: Refused, model: dict[str, Any], said: str
) -> None:
    error = refused(write(dense(**model)))
    assert (error.code, said in error.message) == ("EDGE-CONVERT-073", True)


HALF = numpy_helper.from_array(np.ones((6, 4), np.float16), "w")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"inputs": [value("x", ["n", 6], TensorProto.BFLOAT16)]}, "bfloat16"),
        ({"inputs": [value("x", ["n", 6], TensorProto.FLOAT16)]}, "float16"),
        ({"inputs": [value("x", ["n", 6], TensorProto.STRING)]}, "string"),
        ({"inputs": [value("x", ["n", 6], TensorProto.COMPLEX64)]}, "complex64"),
        ({"inputs": [value("x", None)]}, "a shape"),
        ({"inputs": [value("x", [0, 6])]}, "a size of 0"),
        ({"inputs": [helper.make_tensor_sequence_value_info("x", FLOAT, None)]}, "sequence"),
        ({"weights": [HALF]}, "weight 'w'"),
        (
            {"nodes": [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]},
            "quantized",
        ),
        ({"nodes": [helper.make_node("ConvInteger", ["x", "w"], ["y"])]}, "ConvInteger"),
    ],
)
def test_what_cannot_be_a_source_is_refused(
    write: Write, dense: Dense, refused: Refused, model: dict[str, Any], said: str
) -> None:
    error = refused(write(dense(**model)))
    assert error.code == "EDGE-CONVERT-074"
    assert said in error.message


def test_a_model_without_inputs_is_refused(write: Write, dense: Dense, refused: Refused) -> None:
    node = helper.make_node("Relu", ["w"], ["y"])
    model = dense([node], outputs=[value("y", [6, 4])])
    del model.graph.input[:]
    assert refused(write(model)).code == "EDGE-CONVERT-074"


def test_a_model_that_answers_nothing_is_refused(
    write: Write, dense: Dense, refused: Refused
) -> None:
    """Valid, and no generated input fits it: it wants as many rows as its weight has."""
    shape = numpy_helper.from_array(np.array([-1, 1009]), "shape")
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = dense(nodes, [value("x", ["n", "t"])], [value("y", ["m", 1009])], [shape])
    error = refused(write(model))
    assert (error.code, error.thing) == ("EDGE-CONVERT-075", "generated inputs")


# external data


SIZE = 6 * 4 * 4  # bytes of the weight


def located(dense: Dense, location: str) -> onnx.ModelProto:
    """A model whose weight says that it lies there."""
    model = dense()
    (weight,) = model.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(SIZE))):
        weight.external_data.add(key=key, value=text)
    return model


@pytest.mark.parametrize("place", ["absolute", "../secret", "s/../../secret", "a\\..\\secret", ""])
def test_data_outside_the_folder_are_refused(
    write: Write, tmp_path: Path, place: str, dense: Dense, refused: Refused
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(SIZE))
    path = write(located(dense, str(secret) if place == "absolute" else place))
    assert refused(path).code == "EDGE-CONVERT-065"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_to_data_elsewhere_are_refused(
    write: Write, tmp_path: Path, link: Any, dense: Dense, refused: Refused
) -> None:
    """ONNX Runtime follows both."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(SIZE))
    path = write(located(dense, "w.data"))
    link(secret, path.parent / "w.data")
    error = refused(path)
    assert error.code == "EDGE-CONVERT-065"
    assert "link" in error.message


def test_data_hidden_in_an_attribute_are_seen(
    write: Write, tmp_path: Path, dense: Dense, refused: Refused
) -> None:
    """In a constant of a branch, where only a walk through the whole model finds it."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(SIZE))
    (weight,) = located(dense, str(secret)).graph.initializer
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=weight)], "b", [], [value("c", [6, 4])]
    )
    flag = numpy_helper.from_array(np.array(True), "flag")
    nodes = [
        helper.make_node("If", ["flag"], ["w2"], then_branch=branch, else_branch=branch),
        helper.make_node("MatMul", ["x", "w2"], ["y"]),
    ]
    assert refused(write(dense(nodes, weights=[flag]))).code == "EDGE-CONVERT-065"


def test_missing_and_cut_data_are_refused(write: Write, dense: Dense, refused: Refused) -> None:
    path = write(dense(), "w.data")
    data = path.parent / "w.data"
    data.write_bytes(data.read_bytes()[:-1])
    error = refused(path)
    assert (error.code, "95" in error.message) == ("EDGE-CONVERT-064", True)
    data.unlink()
    assert refused(path).code == "EDGE-CONVERT-064"


def test_the_cache_of_the_hub_links_to_its_blobs(
    write: Write, tmp_path: Path, dense: Dense
) -> None:
    path = write(dense(), "model.onnx_data")
    entry = tmp_path / "models--a--b"
    folder = entry / "snapshots" / "0f1e" / "onnx"
    folder.mkdir(parents=True)
    (entry / "blobs").mkdir()
    for number, name in enumerate(("model.onnx", "model.onnx_data")):
        (path.parent / name).rename(entry / "blobs" / f"{number:040x}")
        (folder / name).symlink_to(f"../../../blobs/{number:040x}")
    source = parse_source("model.onnx", folder)
    exported = export_source(ExportRequest(source=source, out=str(tmp_path / "out")))
    assert [f.path for f in exported.program_data] == ["onnx/model.onnx_data"]
    assert not (tmp_path / "out" / "onnx" / "model.onnx_data").is_symlink()


def test_names_no_bundle_may_hold_are_refused(write: Write, dense: Dense, export: Export) -> None:
    path = write(dense(), "w data")
    with pytest.raises(FilesError) as error:
        export(path)
    assert error.value.code == "EDGE-FILES-004"
