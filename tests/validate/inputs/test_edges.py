"""Inputs on the constants of a program: which are found, which count, and what they show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dev.mutants.runner import run_program
from edgeserve.backends.edge_values import edge_values
from edgeserve.backends.torch.export.check_program import check_edges
from edgeserve.backends.torch.export.flat_module import flatten_module
from edgeserve.backends.torch.program.edges import find_edges
from edgeserve.errors import ConvertError

FLOATS, WHOLE = torch.randn(1, 8), torch.arange(8)[None]
BOUNDS = torch.tensor([-2.0, 0.1, 7.5])
AFTER, BEFORE = np.nextafter(np.float32(40), [np.float32(99), np.float32(0)])


class On(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def values(function: Callable[[Tensor], Tensor], example: Tensor) -> list[float]:
    program: Any = torch.export.export(On(function), (example,))
    edges = find_edges(program.module()).get(0, ())
    return list(edge_values(edges, example.numpy().dtype).tolist())


@pytest.mark.parametrize(
    ("function", "example", "wanted"),
    [
        (lambda x: x > 40, FLOATS, [40.0, AFTER, BEFORE]),
        (lambda x: -x.flip(1)[:, 1:] > 40, FLOATS, [-40.0, -AFTER, -BEFORE]),
        (lambda x: torch.bucketize(x, BOUNDS), FLOATS, BOUNDS.tolist()),
        (lambda x: nn.functional.relu6(x.clamp(-6, max=9)), FLOATS, [-6.0, 9.0, 0.0, 6.0]),
        (lambda x: x % 0.5, FLOATS, [0.0, 0.5, -0.5, 1.0, 500.0]),
        (lambda x: torch.round(x), FLOATS, [0.5, -0.5, 1.5]),
        (lambda x: x.to(torch.int32), FLOATS, [0.0, 1.0, -1.0]),
        (lambda x: torch.where(x * 4 - 2 > 10, x, 0), FLOATS, [3.003, 2.997]),
        (lambda x: (x * 3 + 5) < 100, WHOLE, [31, 32]),
        (lambda x: x.float() >= 40, WHOLE, [39, 40, 41]),
        (lambda x: x == 5, WHOLE.byte(), [4, 5, 6, 0, 255]),
        (lambda x: torch.div(x, 3600, rounding_mode="floor"), WHOLE, [3599, 3600, 1_699_999_199]),
        (lambda x: torch.div(x, 60, rounding_mode="trunc") % 24, WHOLE, [1439, 1440, -60]),
        (lambda x: x + 1, WHOLE, [(1 << 24) + 1, 1_700_000_001]),
    ],
)
def test_constants_are_solved_for_the_input(
    function: Callable[[Tensor], Tensor], example: Tensor, wanted: list[float]
) -> None:
    dtype = example.numpy().dtype
    found = np.array(values(function, example), dtype)
    missing = set(np.array(wanted, dtype).tolist()) - set(found.tolist())
    assert not missing, found


def test_behind_float_arithmetic_the_edge_itself_is_left_out() -> None:
    found = values(lambda x: x * 4 - 2 > 10, FLOATS)
    assert 3.0 not in found
    assert all(abs(value - 3) > 1e-4 for value in found)
    assert values(lambda x: torch.sin(x) > 0.5, FLOATS) == [], "no value of the input is known"


class Watch(nn.Module):
    """An edge of the input, one behind a rounding, and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        shown = self.table(ids).sum(-1)
        return torch.stack([(x > 40).float(), (x * 0.1 > 3.3).float(), shown], -1)


def test_only_firm_values_that_the_program_answers_are_given(build: Any) -> None:
    made = build(Watch(), torch.randn(1, 4), WHOLE[:, :4], input_names=("x", "ids"))
    names = {filler.name for filler in made.answers().fillers if filler.edge}
    assert {"x = 40.0", f"x = {AFTER}", f"x = {BEFORE}"} <= names
    near = [float(n.split(" = ")[1]) for n in names if n.startswith("x = ")]
    assert min(abs(value - 33) for value in near) > 0.01, "multiplied and compared: ill-conditioned"
    assert not any(name.startswith("ids = ") for name in names), "beyond the table"
    assert made.judged().judgement.verdict == "pass"


def test_whole_numbers_that_leave_32_bits_prove_nothing(build: Any) -> None:
    made = build(On(lambda x: (x * 1000) % 7), WHOLE, input_names=("x",))
    names = {filler.name for filler in made.answers().fillers if filler.edge}
    assert f"x = {(1 << 24) + 1}" not in names
    assert "x = 7" in names


def test_a_program_of_another_branch_is_refused_on_the_constant(tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = torch.export.export(On(lambda x: ((x > 40).float(),)), (FLOATS,))
    check_edges(program, flatten_module(On(lambda x: (x > 40).float()), (FLOATS,)), ["x"], tmp_path)
    flat = flatten_module(On(lambda x: (x >= 40).float()), (FLOATS,))
    with pytest.raises(ConvertError, match=r"x = 40\.0") as caught:
        check_edges(program, flat, ["x"], tmp_path)
    assert caught.value.code == "EDGE-CONVERT-017"


@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_a_division_through_floats_fails_and_is_named(format: str) -> None:
    """1,700,002,799 seconds are 22 o'clock, and 23 through float32."""
    (found,) = run_program("division", (format,))
    assert found.verdict == "fail"
    assert "aten.div.Tensor_mode" in found.message
    assert "table.py:" in found.message, "the line of the program"
