"""A dynamic program with its sizes filled in answers as the module does, and computes no size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.passes.specialize import specialize
from edgeserve.backends.torch.program.io import load_program, log_warnings

SYMBOLIC = torch.SymInt | torch.SymFloat | torch.SymBool


def program_of(net: Any) -> Any:
    return load_program(reference_artifact(net.exported), net.root)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("tower", [(1, 5, 16)]),
        ("tower", [(3, 32, 16)]),
        ("audio", [(1, 4, 4)]),
        ("audio", [(7, 4, 63)]),
        ("tied", [(2, 17)]),
        ("difference", [(8, 3), (8, 3)]),
        ("edges", [(2, 3), (1,)]),
    ],
)
def test_it_answers_as_the_module(zoo: Any, name: str, shapes: list[tuple[int, ...]]) -> None:
    net, program = zoo.net(name), program_of(zoo.net(name))
    with log_warnings():
        decomposed = program.run_decompositions()
        fixed = specialize(decomposed, shapes)
    torch.manual_seed(1)
    inputs = [
        torch.randint(0, 50, shape) if spec.dtype == "int64" else torch.randn(shape)
        for spec, shape in zip(net.exported.signature.inputs, shapes, strict=True)
    ]
    assert not any(isinstance(node.meta.get("val"), SYMBOLIC) for node in fixed.graph.nodes)
    assert not any("sym_size" in str(node.target) for node in fixed.graph.nodes)
    with torch.no_grad(), log_warnings():
        found = fixed.module(check_guards=False)(*inputs)
        right = net.call(*inputs)
    for got, wanted in zip(found, right, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_original_stays_as_it_was(zoo: Any) -> None:
    program = program_of(zoo.net("audio"))
    before = str(program.graph), str(program.range_constraints)
    specialize(program, [(2, 4, 9)])
    assert (str(program.graph), str(program.range_constraints)) == before


def test_arithmetic_on_sizes_is_done(zoo: Any) -> None:
    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ramp = torch.arange(2 * x.shape[1] - 1)[None]
            return torch.cat([x, x], 1)[:, 1:] * (1.0 / x.shape[1]) + ramp

    length = torch.export.Dim("length", min=3, max=50)
    program = torch.export.export(Sized(), (torch.ones(1, 8),), dynamic_shapes=({1: length},))
    for size in (3, 8, 49):
        x = torch.randn(1, size)
        fixed = specialize(program, [(1, size)])
        with log_warnings():
            made = fixed.module(check_guards=False)(x)
        torch.testing.assert_close(made, Sized()(x))


@pytest.mark.parametrize(
    "shapes", [[(2, 3), (3, 3)], [(2, 4), (2, 4)]], ids=["two batches", "another fixed size"]
)
def test_shapes_that_contradict_are_refused(zoo: Any, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="was asked for"):
        specialize(program_of(zoo.net("difference")), shapes)
