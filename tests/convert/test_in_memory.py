"""A source given as an object: it is exported as a factory's would be, and left as it was."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.in_memory import export_given, read_given
from edgeserve.convert.source import export_source
from edgeserve.errors import ConvertError
from edgeserve.types.source import Exported

X = (torch.zeros(2, 4),)


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Exported]:
    """Export an object in this process."""

    def export(source: object, example: object = None, **options: Any) -> Exported:
        given = read_given(source, example, options)
        return export_given(ExportRequest(source=given.source, out=str(tmp_path / "here")), given)

    return export


class Tied(nn.Module):
    """Two names for one weight, dropout, a counter, and a weight that is computed (weight_norm)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.second(self.first(x))) * self.scale


def test_the_callers_module_stays_as_it_is(export: Callable[..., Exported]) -> None:
    module = Tied().half().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    exported = export(module, X)
    assert all(part.training for part in module.modules())
    assert all(p.requires_grad and p.dtype == torch.half for p in module.parameters())
    assert module.second.weight is module.first.weight
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert [w.dtype for w in exported.weights] == ["float32"] * len(exported.weights)
    assert any("training mode" in note for note in exported.notes)
    assert exported.source.kind == "module"
    assert exported.source.location.endswith(":Tied")


def test_it_is_exported_as_from_a_factory(
    export: Callable[..., Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker would import the file; both give one program and one set of weights."""
    (tmp_path / "net_of_mine.py").write_text(
        "import torch\n"
        "def build():\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout())\n"
        "    return net, (torch.zeros(2, 4),), {'output_names': ['y'], 'labels': ['a', 'b', 'c']}\n"
    )
    monkeypatch.chdir(tmp_path)
    source = parse_source("net_of_mine:build", tmp_path)
    wanted = export_source(ExportRequest(source=source, out=str(tmp_path / "there")))
    import net_of_mine  # type: ignore[import-not-found]

    for got in (export(net_of_mine.build), export(net_of_mine.build, labels=["a", "b", "c"])):
        for field in ("weights", "graph_sha256", "signature", "labels", "tools"):
            assert getattr(got, field) == getattr(wanted, field), field
    torch.manual_seed(0)
    module, example, options = net_of_mine.build()
    assert export(module, example, **options).weights == wanted.weights


@pytest.mark.parametrize("kind", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_weight_that_is_computed(kind: Any, export: Callable[..., Exported]) -> None:
    """Computed weights are no leaves of autograd, which torch alone refuses to copy."""
    module = nn.Sequential(kind(nn.Linear(4, 4)))
    module(X[0])
    assert len(export(module, X).signature.outputs) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch.compile itself
def test_a_compiled_module_and_one_tensor_as_example(export: Callable[..., Exported]) -> None:
    exported = export(torch.compile(nn.Linear(4, 4)), X[0])
    assert exported.signature.inputs[0].shape == (2, 4)
    assert exported.source.location.endswith(":Linear")


def test_modes_and_random_numbers_of_the_caller(export: Callable[..., Exported]) -> None:
    def build() -> Any:
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        random.random()
        return nn.Linear(4, 4), (torch.randn(2, 4),)

    torch.manual_seed(5)
    random.seed(5)
    wanted = (torch.rand(3).tolist(), random.random())
    torch.manual_seed(5)
    random.seed(5)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        exported = export(build)
        assert torch.is_inference_mode_enabled()
    assert (torch.rand(3).tolist(), random.random()) == wanted
    assert exported.signature.outputs[0].dtype == "float32"


def test_weights_loaded_in_inference_mode(export: Callable[..., Exported]) -> None:
    with torch.inference_mode():
        module = nn.Linear(4, 4)
        assert len(export(module, X).weights) == 2


class Locked(nn.Linear):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("source", "example", "got"),
    [
        (nn.Linear(4, 4), None, "without an example"),
        (lambda: (nn.Linear(4, 4), X), X, "returns its example itself"),
        (Locked(), X, "cannot be copied: TypeError"),
        (Tied, X, "a type"),
        ({"model": 1}, X, "a dict"),
        (torch.zeros(1), None, "a Tensor"),
    ],
)
def test_everything_else_is_refused_with_the_import_path(
    source: object, example: object, got: str, export: Callable[..., Exported]
) -> None:
    with pytest.raises(ConvertError) as error:
        export(source, example)
    assert error.value.code == "EDGE-CONVERT-085"
    assert got in error.value.got
    assert 'convert("my_module:build", out="out")' in error.value.hint


def test_a_factorys_own_errors(export: Callable[..., Exported]) -> None:
    for factory, code in (
        (lambda x: None, "EDGE-CONVERT-008"),
        (lambda: 1 / 0, "EDGE-CONVERT-007"),
        (lambda: nn.Linear(4, 4), "EDGE-CONVERT-009"),
        (lambda: (nn.Linear(4, 4), X, {"label": 1}), "EDGE-CONVERT-010"),
    ):
        with pytest.raises(ConvertError) as error:
            export(factory)
        assert error.value.code == code


def test_a_server_that_a_factory_names(export: Callable[..., Exported]) -> None:
    def serve(raw: bytes) -> str:
        return "cat"

    given = read_given(lambda: (nn.Linear(4, 4), X, {"reference": serve}), None, {})
    assert given.reference is serve
    assert given.made.options.reference is None
    named = read_given(lambda: (nn.Linear(4, 4), X, {"reference": "server:predict"}), None, {})
    assert (named.reference, named.made.options.reference) == (None, "server:predict")
