"""convert --bisect: the smallest part that fails, and a script that fails without edgeserve."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from edgeserve import backends
from edgeserve.backends.torch.diagnose.graph_slicing import CannotSlice, GraphSlice, GraphSlicer
from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.convert.bisect import BisectRequest, BisectResult, _Search, bisect
from edgeserve.convert.bisect_failure import MAX_LINES, Failure, part_script
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import export_source
from edgeserve.types.source import Source

#: Converters warn of much that is no concern of theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

NET = '''
import torch
from torch import nn


class Bent(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x * 2) + 1


class Turned(nn.Module):
    def forward(self, x):
        return torch.linalg.qr(x)[1] + x


class Pooled(nn.Module):
    """Its divisor is left out by the ONNX converter, without a word, where nobody sees to it."""

    def forward(self, x):
        z = nn.functional.avg_pool2d(x * 2, 3, 1, 1, divisor_override=5)
        return torch.relu(z) + x


class Stage(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv, self.last = nn.Conv2d(4, 4, 3, padding=1), last

    def forward(self, x):
        return self.last(torch.relu(self.conv(x)))


def _net(last):
    torch.manual_seed(0)
    body = nn.Sequential(Stage(nn.SiLU()), nn.Sequential(Stage(nn.ReLU()), Stage(last)))
    return nn.Sequential(body, nn.Linear(6, 3)).eval(), (torch.rand(1, 4, 6, 6),)


def bent():
    return *_net(Bent()), {"dynamic_shapes": {"input": {0: ("batch", 1, 4)}}}


def turned():
    return _net(Turned())


def pooled():
    return _net(Pooled())
'''


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Folders that a converter left to the collector go here, not in a later test."""
    yield
    gc.collect()


def searched(tmp_path: Path, factory: str, format: str) -> tuple[BisectResult, str]:
    """What the verb finds, and the script."""
    (tmp_path / "net_at_fault.py").write_text(NET)
    source = Source(kind="factory", location=f"net_at_fault:{factory}", folder=str(tmp_path))
    root = tmp_path / "source"
    root.mkdir()
    export_source(ExportRequest(source=source, out=str(root)))
    script = tmp_path / f"repro_{format}.py"
    found = bisect(BisectRequest(source_folder=str(root), format=format, script=str(script)))
    return found, script.read_text() if script.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "factory", "op"),
    [("tflite", "bent", "special_bessel_j0"), ("coreml", "turned", "linalg_qr")],
)
def test_a_refused_op_deep_inside_is_found_and_fails_alone(
    format: str, factory: str, op: str, tmp_path: Path
) -> None:
    """The same for ONNX, through the command: tests/pipeline/test_bisect.py."""
    found, script = searched(tmp_path, factory, format)
    assert found.module == "0.1.1.last"
    assert found.operators == (f"aten.{op}.default",)
    assert found.confirmed, found.words
    assert found.trials == 2
    assert_stands_alone(script)
    assert f"torch.ops.aten.{op}.default(" in script


@pytest.mark.slow
def test_values_that_are_wrong_in_silence_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rewrite that sees to it, the divisor is lost on the way to ONNX."""
    from edgeserve.backends.onnx import export

    kept = tuple(each for each in export._PASSES if each.__name__ != "lower_divisor")
    assert len(kept) == len(export._PASSES) - 1
    monkeypatch.setattr(export, "_PASSES", kept)
    found, script = searched(tmp_path, "pooled", "onnx")
    assert found.module == "0.1.1.last"
    assert found.operators == ("aten.avg_pool2d.default",)
    assert found.summary.startswith("off by")
    assert found.confirmed, found.words
    assert_stands_alone(script)


def test_what_is_right_is_said_to_be(tmp_path: Path) -> None:
    found, script = searched(tmp_path, "pooled", "onnx")
    assert "answers as PyTorch does" in found.words
    assert (found.script, script) == (False, "")


def assert_stands_alone(script: str) -> None:
    """At most thirty lines of Python that import neither edgeserve nor the user's module."""
    assert len(script.splitlines()) <= MAX_LINES
    imported = {
        alias.name
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= {"coremltools", "litert_torch", "onnxruntime", "sys", "torch"}
    assert "ImportFrom" not in ast.dump(ast.parse(script))


class Small(nn.Module):
    """A constant, a list that is taken apart, a size, and ops in two submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.GELU(), nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.first(x).split(3, -1)
        return self.second(torch.cat([right, left], -1)) * x.shape[0]


def dissected() -> tuple[GraphSlicer, nn.Module, Tensor]:
    torch.manual_seed(0)
    module, x = Small().eval(), torch.randn(2, 6)
    wishes = ExportOptions(dynamic_shapes={"x": {0: ("batch", 1, 8)}})
    program = export_module(module, (x,), wishes, Path())
    return GraphSlicer(program.program, [x]), module, x


def test_parts_answer_as_the_modules_do() -> None:
    cut, module, x = dissected()
    whole = cut.part(cut.units)
    torch.testing.assert_close(whole.module(*whole.examples)[0], module(x))
    second = cut.part([unit for unit in cut.units if "second" in unit.path])
    left, right = module.first(x).split(3, -1)
    (given,) = second.examples
    torch.testing.assert_close(given, torch.cat([right, left], -1))
    torch.testing.assert_close(second.module(given)[0], module.second(given))


def test_a_list_and_what_is_taken_from_it_stay_together() -> None:
    cut, _, _ = dissected()
    (split,) = (unit for unit in cut.units if "split" in unit.operator)
    assert len(split.nodes) == 3
    part = cut.part([split])
    assert [tuple(t.shape) for t in part.module(*part.examples)] == [(2, 3), (2, 3)]


def test_a_part_that_gives_nothing_is_no_part() -> None:
    cut, _, _ = dissected()
    sizes = [unit for unit in cut.units if "sym_size" in unit.operator]
    assert sizes, "the batch's size is an op of its own"
    with pytest.raises(CannotSlice):
        cut.part(sizes)


@pytest.mark.parametrize(
    ("wanted", "module", "most"),
    [({"gelu"}, "second.0", 1), ({"split", "cat"}, None, 2), ({"gelu", "linear"}, "second", 2)],
)
def test_the_search_ends_at_the_smallest_part_that_fails(
    wanted: set[str], module: str | None, most: int
) -> None:
    """The trial stands for a converter that fails where it meets all of some ops at once."""
    cut, _, _ = dissected()
    failure = Failure("EDGE-CONVERT-040", "", (), "")

    def trial(part: GraphSlice) -> Failure | None:
        held = {op.split(".")[1] for op in part.operators}
        return failure if wanted <= held else None

    found = _Search(failure, trial, 60.0).run(cut)
    assert found is not None
    assert found.module == module
    assert {op.split(".")[1] for op in found.part.operators} == wanted
    assert len(found.part.operators) == most


def test_a_failure_of_another_kind_is_not_followed() -> None:
    cut, _, _ = dissected()
    whole, other = (Failure("EDGE-CONVERT-040", op, (), "") for op in ("", "aten.add.Tensor"))
    assert _Search(whole, lambda part: other, 60.0).run(cut) is None


def test_the_search_ends_with_the_time() -> None:
    cut, _, _ = dissected()
    failure = Failure("EDGE-CONVERT-040", "", (), "")
    search = _Search(failure, lambda part: failure, 0.0)
    assert search.run(cut) is None
    assert search.late


def test_a_script_computes_what_its_part_does() -> None:
    """Up to the conversion; constants and inputs are random numbers of the same shapes."""
    cut, _, _ = dissected()
    part = cut.part([unit for unit in cut.units if "first" not in unit.path])
    script = part_script(backends.get("onnx"), part, Failure("", "", (), ""), "here")
    assert script is not None
    assert_stands_alone(script)
    scope: dict[str, object] = {}
    exec(script[: script.index("made = ")].replace("import onnxruntime\n", ""), scope)
    model, inputs = scope["model"], scope["inputs"]
    assert isinstance(model, nn.Module)
    assert isinstance(inputs, tuple)
    held = dict(model.named_buffers())
    for name, tensor in part.module.named_buffers():
        assert held[name].shape == tensor.shape
        part.module.get_buffer(name).copy_(held[name])
    torch.testing.assert_close(model(*inputs), part.module(*inputs))


def test_a_part_too_long_for_a_script_has_none() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(20)]
    program = export_module(
        nn.Sequential(*layers).eval(), (torch.ones(1, 4),), ExportOptions(), Path()
    )
    cut = GraphSlicer(program.program, [torch.ones(1, 4)])
    assert (
        part_script(backends.get("onnx"), cut.part(cut.units), Failure("", "", (), ""), None)
        is None
    )
