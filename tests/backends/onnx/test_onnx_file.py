"""The file itself: valid, the same every time, without a trace of where it was made."""

from __future__ import annotations

import getpass
import inspect
import os
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn

from edgeserve import __version__, backends
from edgeserve.backends.onnx.export import save
from edgeserve.backends.onnx.inspect import io_of
from edgeserve.backends.torch.export.export import ExportOptions
from edgeserve.convert.target import try_routes
from edgeserve.errors import BackendError, UnsupportedOp
from edgeserve.files import describe

NETS = ["conv", "difference", "nested", "tied", "audio", "edges", "tower"]


@pytest.mark.parametrize("name", NETS)
def test_onnx_accepts_it(zoo: Any, name: str) -> None:
    _, root = zoo.onnx(name)
    onnx.checker.check_model(str(root / "model.onnx"), full_check=True)


@pytest.mark.parametrize("name", NETS)
def test_it_tells_nothing_of_the_machine(zoo: Any, name: str) -> None:
    _, root = zoo.onnx(name)
    data = (root / "model.onnx").read_bytes()
    private = [
        str(root),
        str(Path.home()),
        sys.prefix,
        os.getcwd(),
        "site-packages",
        "conftest",
        ".py",
        platform.node(),
        "/tmp",
        f"/{getpass.getuser()}/",
    ]
    for word in private:
        assert len(word) < 4 or word.encode() not in data, word
    model = onnx.load(root / "model.onnx")
    assert (model.producer_name, model.producer_version) == ("edgeserve", __version__)
    assert not model.doc_string + model.graph.doc_string + model.domain
    assert not model.metadata_props
    keys = {p.key for node in model.graph.node for p in node.metadata_props}
    assert keys <= {"edgeserve.source", "edgeserve.module"}
    assert not any(v.metadata_props for v in [*model.graph.input, *model.graph.value_info])


def test_it_is_the_same_every_time(zoo: Any, tmp_path: Path) -> None:
    net = zoo.net("conv")
    again = backends.get("onnx").export(net.exported, net.root, tmp_path)
    assert again.sha256 == zoo.onnx("conv")[0].sha256


class Rewritten(nn.Module):
    """Two uses that the converter gets wrong or refuses, and one that it does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.avg_pool2d(x, 2, divisor_override=3)
        return nn.functional.adaptive_max_pool2d(torch.relu(y), (2, 3))


def test_what_was_rewritten_is_recorded(
    zoo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)
    net = zoo.export("rewritten", Rewritten().eval(), (x,), ExportOptions())
    artifact = try_routes(backends.get("onnx"), net.exported, net.root, tmp_path)
    assert artifact.provenance.rewrites == ("lower_divisor", "lower_adaptive_pool")
    assert "rewritten on the way: lower_divisor, lower_adaptive_pool" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(got, Rewritten()(x).numpy(), atol=1e-6)
    plain = zoo.export("not_rewritten", nn.ReLU().eval(), (x,), ExportOptions())
    untouched = try_routes(backends.get("onnx"), plain.exported, plain.root, tmp_path / "plain")
    assert untouched.provenance.rewrites == ()


def test_its_provenance_is_recorded(zoo: Any) -> None:
    artifact, root = zoo.onnx("conv")
    tools = artifact.provenance.tools
    assert artifact.provenance.route == "dynamo"
    assert tools == backends.get("onnx").tools()
    assert tools["torch"] == torch.__version__
    assert tools["onnx"] == onnx.__version__
    model = onnx.load(root / "model.onnx")
    assert {o.domain: o.version for o in model.opset_import} == {"": int(tools["onnx-opset"])}
    graph = backends.get("onnx").inspect(artifact, root)
    assert graph.opset == {"": int(tools["onnx-opset"])}


@pytest.mark.parametrize("name", NETS)
def test_inspection_counts_what_onnx_counts(zoo: Any, name: str) -> None:
    artifact, root = zoo.onnx(name)
    graph = backends.get("onnx").inspect(artifact, root)
    model = onnx.load(root / "model.onnx")
    assert [op.type for op in graph.ops] == [node.op_type for node in model.graph.node]
    assert [op.outputs for op in graph.ops] == [tuple(n.output) for n in model.graph.node]
    sizes = {i.name: onnx.numpy_helper.to_array(i).nbytes for i in model.graph.initializer}
    assert {w.name: w.bytes for w in graph.weights} == sizes


def test_nodes_lead_back_to_ops_of_the_program(zoo: Any) -> None:
    artifact, root = zoo.onnx("tower")
    net = zoo.net("tower")
    from edgeserve.backends.torch import reference_artifact

    reference = backends.get("torch").inspect(reference_artifact(net.exported), net.root)
    known = {op.name: op.module for op in reference.ops}
    named = [op for op in backends.get("onnx").inspect(artifact, root).ops if op.source]
    assert len(named) > 30
    for op in named:
        assert op.source is not None
        assert known[op.source] == op.module
    assert {"block.self_attn", "block.norm1", "block.linear2"} <= {op.module for op in named}


def test_names_that_clash_with_inner_tensors_are_kept(zoo: Any, tmp_path: Path) -> None:
    """The exporter itself would call inner tensors "mul" and "add", a weight "linear.weight"."""

    class Clash(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.linear(x) * 2
            return y + 1, y

    wishes = ExportOptions(input_names=("mul",), output_names=("linear.weight", "add"))
    net = zoo.export("clash", Clash().eval(), (torch.ones(1, 3),), wishes)
    artifact = backends.get("onnx").export(net.exported, net.root, tmp_path)
    with backends.get("onnx").load(artifact, tmp_path) as session:
        got = session.run(net.feed)
    for name, right in net.oracle(net.feed).items():
        np.testing.assert_allclose(got[name], right, rtol=0, atol=1e-6)


def test_dimensions_bear_the_users_names(zoo: Any) -> None:
    model = onnx.load(zoo.onnx("audio")[1] / "model.onnx")
    words = {
        dim.dim_param
        for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]
        for dim in value.type.tensor_type.shape.dim
        if dim.dim_param
    }
    assert {"batch", "length", "output_dim2"} <= words
    assert not any(
        word.strip("()").startswith(("s", "u")) and word[1:2].isdigit() for word in words
    )


def test_foreign_dimension_names_are_made_readable() -> None:
    """A file of another tool may call a dimension anything, or nothing."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["N", None, "2*a + 1", 4])],
        [value("y", onnx.TensorProto.FLOAT, None)],
    )
    io = io_of(ir.from_proto(onnx.helper.make_model(graph)))
    assert io.inputs[0].shape == ("N", "x_dim1", "x_dim2", 4)
    with pytest.raises(BackendError) as error:
        io_of(ir.from_proto(_float8()))
    assert error.value.code == "EDGE-BACKEND-017"


def _float8() -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT8E4M3FN, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT8E4M3FN, [1])
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value], [out]))


# weights beside the file


def test_a_file_may_not_read_weights_that_no_hash_covers(zoo: Any, tmp_path: Path) -> None:
    artifact, root = zoo.onnx("conv")
    save(ir.load(root / "model.onnx"), tmp_path, external_above=0)
    alone = msgspec.structs.replace(artifact, files=(describe(tmp_path, "model.onnx"),))
    with pytest.raises(BackendError) as error:
        backends.get("onnx").load(alone, tmp_path)
    assert error.value.code == "EDGE-BACKEND-012"
    both = tuple(describe(tmp_path, name) for name in ("model.onnx", "model.onnx.data"))
    whole = msgspec.structs.replace(artifact, files=both)
    backends.get("onnx").load(whole, tmp_path).close()
    (tmp_path / "other.data").write_bytes(b"x")
    with pytest.raises(BackendError) as error:
        backends.get("onnx").load(whole, tmp_path)
    assert error.value.code == "EDGE-BACKEND-016"
    assert "other.data" in error.value.message


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin"])
def test_weights_outside_the_folder_are_not_read(zoo: Any, tmp_path: Path, location: str) -> None:
    artifact, root = zoo.onnx("conv")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "sub").mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(100_000))
    model = onnx.load(root / "model.onnx")
    (tensor,) = [t for t in model.graph.initializer if len(t.dims) == 4]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "beside.data").write_bytes(b"x")
    for names in (["model.onnx"], ["beside.data", "model.onnx"]):
        files = tuple(describe(folder, name) for name in names)
        with pytest.raises(BackendError) as error:
            backends.get("onnx").load(msgspec.structs.replace(artifact, files=files), folder)
        assert error.value.code == "EDGE-BACKEND-012"


# what ONNX cannot express


class SingularValues(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.linalg.svd(y)[1]


class Bessel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) * 2


@pytest.mark.parametrize(
    ("module", "op", "offset"),
    [(SingularValues, "aten.linalg_svd", 2), (Bessel, "aten.special_bessel_j0", 1)],
)
def test_an_op_without_a_translation_is_named_with_its_line(
    zoo: Any, tmp_path: Path, module: type[nn.Module], op: str, offset: int
) -> None:
    """Both are decomposed before the converter fails: the message names what the user wrote."""
    net = zoo.export(op, module().eval(), (torch.ones(3, 3),), ExportOptions())
    with pytest.raises(UnsupportedOp) as error:
        backends.get("onnx").export(net.exported, net.root, tmp_path)
    assert error.value.code == "EDGE-OP-001"
    assert error.value.exit_code == 1
    assert op in error.value.message
    line = inspect.getsourcelines(module.forward)[1] + offset
    assert error.value.source_line == f"onnx/{Path(__file__).name}:{line}"
    assert not list(tmp_path.iterdir()), "nothing half made is left"


class Histogram(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x, bins=8)


def test_an_op_that_cannot_be_used_so_is_named_with_its_line(zoo: Any, tmp_path: Path) -> None:
    """Histc without a range takes it from the values, which the converter does not translate."""
    net = zoo.export("histc", Histogram().eval(), (torch.rand(3, 3),), ExportOptions())
    with pytest.raises(UnsupportedOp) as error:
        backends.get("onnx").export(net.exported, net.root, tmp_path)
    assert error.value.code == "EDGE-OP-002"
    assert "aten.histc" in error.value.message
    assert "min == max" in error.value.message
    line = inspect.getsourcelines(Histogram.forward)[1] + 1
    assert error.value.source_line == f"onnx/{Path(__file__).name}:{line}"
