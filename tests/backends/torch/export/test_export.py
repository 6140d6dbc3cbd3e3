"""Exporting a module: names and ranges, what is kept and what is changed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.errors import ConvertError
from edgeserve.types.source import Exported
from edgeserve.types.tensors import TensorSpec

HERE = Path(__file__).parent
X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Call(nn.Module):
    """A module around a function of one tensor."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def export(module: nn.Module, examples: object = (X,), **wishes: Any) -> Any:
    return export_module(module.eval(), examples, ExportOptions(**wishes), HERE)


def spec(name: str, dtype: Any, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


# names and ranges


def test_names_come_from_forward_and_from_what_it_returns(zoo: Any) -> None:
    exported: Exported = zoo.net("nested").exported
    assert exported.signature.inputs == (
        spec("x", "float32", "batch", 3),
        spec("pair_0", "float32", 4),
        spec("pair_1", "float32", 4),
    )
    assert exported.signature.outputs == (
        spec("logits", "float32", "batch", 4),
        spec("parts_0", "float32"),
        spec("parts_1", "bool", "batch", 4),
    )
    assert exported.signature.dims == {"batch": (1, 2**31 - 1)}
    assert "input 'scale' is fixed at 2.0" in exported.notes


def test_a_dict_of_examples_is_put_in_the_order_of_forward(zoo: Any) -> None:
    signature = zoo.net("difference").exported.signature
    assert [s.name for s in signature.inputs] == ["after", "before"]


def test_ranges_are_the_users(zoo: Any) -> None:
    signature = zoo.net("audio").exported.signature
    assert signature.inputs == (spec("audio", "float32", "batch", 4, "length"),)
    assert signature.outputs == (spec("output", "float32", "batch", 8, "output_dim2"),)
    assert signature.dims == {"batch": (1, 8), "length": (4, 64)}
    assert zoo.net("conv").exported.signature.batch_dim == "batch"


def test_given_names_go_before_found_ones() -> None:
    program = export(
        Call(lambda x: {"a": x + 1, "b": x * 2}),
        input_names=("pixel.values",),
        output_names=("p/a", "class"),
        dynamic_shapes={"pixel.values": {0: "n"}},
    )
    assert program.signature.inputs == (spec("pixel.values", "float32", "n", 3),)
    assert [s.name for s in program.signature.outputs] == ["p/a", "class"]


def test_every_way_to_write_a_shape_means_the_same() -> None:
    dim = torch.export.Dim("n", min=1, max=9)
    ways: list[Any] = [
        {"x": {0: dim}},
        {"x": {0: ("n", 1, 9)}},
        {"x": {-2: ["n", 1, 9]}},
        {"x": (dim, None)},
        ({0: dim},),
        [(("n", 1, 9), 3)],
        {"pixels": {0: dim, 1: torch.export.Dim.STATIC}},
    ]
    for way in ways:
        program = export(Call(torch.relu), dynamic_shapes=way, input_names=("pixels",))
        assert program.signature.inputs == (spec("pixels", "float32", "n", 3),), way
        assert program.signature.dims == {"n": (1, 9)}, way


def test_torchs_own_hints_and_derived_dimensions_get_names() -> None:
    auto = torch.export.Dim.AUTO
    program = export(Call(torch.relu), dynamic_shapes={"x": {0: auto, 1: auto}})
    assert program.signature.inputs[0].shape == ("x_dim0", "x_dim1")

    class Sums(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a.sum(0) + b.sum(0)

    half = torch.export.Dim("half", min=2, max=8)
    program = export(
        Sums(), (torch.ones(3, 2), torch.ones(6, 2)), dynamic_shapes=({0: half}, {0: 2 * half})
    )
    assert program.signature.dims == {"half": (2, 8), "b_dim0": (4, 16)}


class Pair(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


@dataclass
class Answer:
    scores: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x + 1, ["output"]),
        (lambda x: (x + 1, x + 2), ["output_0", "output_1"]),
        (lambda x: [x + 1, (x, x * 2)], ["output_0", "output_1_0", "output_1_1"]),
        (lambda x: {"logits": x + 1, "loss": None}, ["logits"]),
        (lambda x: Answer(x + 1, (x, x * 2)), ["scores", "hidden_0", "hidden_1"]),
        (lambda x: torch.max(x, 0), ["output_0", "output_1"]),
        (lambda x: Pair(x + 1, x), ["mean", "spread"]),
        (lambda x: {"x": x + 1}, ["x_out"]),
        (lambda x: {"a-b": x, "a b": x + 1}, ["a_b", "a_b_1"]),
    ],
)
def test_outputs_of_any_nesting_are_named(function: Any, names: list[str]) -> None:
    program = export(Call(function))
    assert [s.name for s in program.signature.outputs] == names


def test_arguments_of_every_kind_are_fed() -> None:
    class Kinds(nn.Module):
        def forward(self, a: Any, /, b: Any, *rest: Any, c: Any = None, **more: Any) -> Any:
            return a + 2 * b + 3 * rest[0] + 4 * more.get("d", 0) + (0 if c is None else c)

    one = torch.ones(2)
    program = export(Kinds(), (one, one, one))
    assert [s.name for s in program.signature.inputs] == ["a", "b", "rest_0"]
    got = program.program.module()(one, one * 10, one * 100)
    assert got[0].tolist() == [321.0, 321.0]

    class Named(nn.Module):
        def forward(self, a: Any, b: Any = None, *, c: Any = None, **more: Any) -> Any:
            return a + 2 * c + 3 * more["d"]

    program = export(Named(), {"d": one, "c": one, "a": one})
    assert [s.name for s in program.signature.inputs] == ["a", "c", "d"]
    assert program.program.module()(one, one * 10, one * 100)[0].tolist() == [321.0, 321.0]


# what is kept and what is changed


def test_the_users_own_examples_are_kept(zoo: Any) -> None:
    net = zoo.net("conv")
    with np.load(net.root / net.exported.examples.path, allow_pickle=False) as held:
        assert list(held) == ["image"]
        np.testing.assert_array_equal(held["image"], net.examples[0].numpy())


def test_an_example_of_one_gives_a_program_for_many(zoo: Any) -> None:
    net = zoo.net("conv")
    program = torch.export.load(net.root / "model.pt2").module()
    for size in (1, 2, 8):
        x = torch.randn(size, 3, 12, 10)
        torch.testing.assert_close(program(x)[0], net.module(x), rtol=0, atol=1e-6)


def test_the_program_is_flat_and_holds_no_pickle(zoo: Any) -> None:
    net = zoo.net("nested")
    with zipfile.ZipFile(net.root / "model.pt2") as archive:
        assert not any(b"ctorch" in archive.read(n) for n in archive.namelist())
        assert all(not archive.read(n) for n in archive.namelist() if n.endswith((".pt", ".pkl")))
    program = torch.export.load(net.root / "model.pt2")
    got = program.module()(*map(torch.from_numpy, net.feed.values()))
    assert isinstance(got, tuple)
    assert len(got) == 3


def test_training_mode_and_half_precision_are_noted() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).half().train()
    program = export_module(module, (X.half(),), ExportOptions(), HERE)
    assert len(program.notes) == 2
    assert "training mode" in program.notes[0]
    assert "float32" in program.notes[1]
    assert {s.dtype for s in program.signature.inputs + program.signature.outputs} == {"float32"}
    wanted = module[0](X)
    torch.testing.assert_close(program.program.module()(X)[0], wanted, rtol=0, atol=1e-6)


def test_a_buffer_that_forward_changes_is_noted_and_left_as_it_was() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return x + 1

    module = Counter()
    program = export(module)
    assert "['seen']" in program.notes[0]
    assert module.seen.item() == 0
    assert program.program.state_dict["seen"].item() == 0
    assert module.forward.__func__ is Counter.forward  # type: ignore[attr-defined]


def test_an_input_that_forward_changes_is_left_as_it_was() -> None:
    x = torch.ones(2, 3)
    program = export(Call(lambda x: x.add_(1)), (x,))
    assert program.examples["x"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert program.program.module()(torch.ones(2, 3))[0].tolist() == [[2, 2, 2], [2, 2, 2]]


class Masked(nn.Module):
    """Torch's encoder with a mask over what pads, which it leaves out as it runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, **options)

    def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.encoder(x, src_key_padding_mask=pad)
        return answer


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_hint_for_an_encoder_that_skips_what_pads_works(tmp_path: Path) -> None:
    pad = torch.zeros(2, 7, dtype=torch.bool)
    pad[1, 5:] = True
    examples = (torch.randn(2, 7, 16), pad)
    with pytest.raises(ConvertError, match="EDGE-CONVERT-017") as refused:
        export_module(Masked().eval(), examples, ExportOptions(), tmp_path)
    assert "enable_nested_tensor=False" in refused.value.hint
    export_module(Masked(enable_nested_tensor=False).eval(), examples, ExportOptions(), tmp_path)
