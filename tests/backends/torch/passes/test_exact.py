"""Rewrites that say the same in other operators: equal to PyTorch, and the old operator is gone."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from testkit.nets import Calling
from torch import nn
from torch.nn import functional

from edgeserve.backends.torch.passes import apply_passes, apply_passes_in_place
from edgeserve.backends.torch.passes.add_scalar_axis import add_scalar_axis
from edgeserve.backends.torch.passes.canonicalize import (
    canonicalize_ops,
    copy_contiguous,
    remove_asserts,
)
from edgeserve.backends.torch.passes.fold import fold_constants
from edgeserve.backends.torch.passes.fx_utils import with_sizes
from edgeserve.backends.torch.passes.lower_arithmetic import lower_alpha, preserve_tiny_constants
from edgeserve.backends.torch.passes.lower_data_movement import (
    lower_as_strided,
    roll_by_slices,
    unfold_by_convolution,
)
from edgeserve.backends.torch.passes.lower_resize import resize_by_matrices
from edgeserve.backends.torch.passes.move_bools import move_bools
from edgeserve.backends.torch.program.io import log_warnings

Tensors = tuple[torch.Tensor, ...]
_ATEN = torch.ops.aten


X = torch.randn(2, 3, 4)


@pytest.mark.parametrize(
    ("function", "gone"),
    [
        (lambda x: x + x.new_zeros(4), "new_zeros.default"),
        (lambda x: x * x.new_ones((3, 1)), "new_ones.default"),
        (lambda x: x + x.new_full((4,), 2.5), "new_full.default"),
        (lambda x: (x > 0) & (x < 1), "__and__.Tensor"),
        (lambda x: (x > 0).__or__(x < -1), "__or__.Tensor"),
    ],
)
def test_plain_names(rewritten: Any, targets: Any, function: Any, gone: str) -> None:
    graph, names = rewritten(function, (X,), canonicalize_ops)
    assert names == ("canonicalize_ops",)
    assert gone not in targets(graph)


def test_plain_names_keep_the_dtype(rewritten: Any) -> None:
    graph, _ = rewritten(lambda x: x.new_zeros((2,), dtype=torch.int64) + 1, (X,), canonicalize_ops)
    assert graph(X)[0].dtype == torch.int64 if isinstance(graph(X), tuple) else True
    rewritten(lambda x: (x > 0).new_ones((3, 4)) & (x > 0), (X,), canonicalize_ops)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.add(x, y, alpha=2.5),
        lambda x, y: torch.sub(x, y, alpha=0.5),
        lambda x, y: torch.rsub(x, y, alpha=3),
        lambda x, _: torch.rsub(x, 2, alpha=3),
        lambda x, _: torch.add(x, 2, alpha=3),
    ],
)
def test_factors_of_sums_are_products(rewritten: Any, function: Any) -> None:
    graph, _ = rewritten(function, (X, torch.randn(2, 3, 4)), lower_alpha)
    assert not any(
        "alpha" in node.kwargs or len(node.args) > 2
        for node in graph.graph.nodes
        if node.op == "call_function"
    )


def test_sums_without_a_factor_stay(rewritten: Any) -> None:
    assert rewritten(lambda x, y: x + y - 1, (X, X), lower_alpha)[1] == ()


def test_contiguous_memory_survives_another_trace(rewritten: Any, targets: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).contiguous().view(2, -1)

    graph, names = rewritten(function, (X,), copy_contiguous)
    assert names == ("copy_contiguous",)
    assert {"clone.default", "reshape.default"} <= targets(graph)


def test_constants_are_folded_and_weights_are_not(rewritten: Any, targets: Any) -> None:
    class Grid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))
            self.register_buffer("scale", torch.arange(4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, columns = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
            wave = (10000 ** (torch.arange(4, dtype=torch.float64) / 4)).sin().float()
            return x @ self.weight.t() + rows * columns + wave + self.scale.exp()

    graph, names = rewritten(Grid(), (X,), remove_asserts, fold_constants)
    assert "fold_constants" in names
    assert targets(graph) <= {"t.default", "matmul.default", "add.Tensor"}


def test_numbers_and_shared_constants_are_folded(rewritten: Any, targets: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        steps = torch.arange(x.shape[-1]) * 2
        return x + steps, steps + 1, x * steps.sum()

    graph, _ = rewritten(function, (X,), fold_constants)
    assert targets(graph) <= {"add.Tensor", "mul.Tensor", "_assert_scalar.default"}


def test_what_is_random_large_or_written_is_not_folded(rewritten: Any, targets: Any) -> None:
    graph = torch.export.export(Calling(lambda x: x + torch.rand(4)), (X,)).module(
        check_guards=False
    )
    assert apply_passes(with_sizes(graph, (X,)), [fold_constants]) == ()
    large = lambda x: x.sum() + torch.arange(2**21)  # noqa: E731
    assert "arange.default" in targets(rewritten(large, (X,), fold_constants)[0])


def test_what_is_written_through_a_view_is_not_folded(rewritten: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(3, 4)
        first = x + table
        table[1:, 2:] = torch.arange(4.0).reshape(2, 2)
        table[0].add_(5)
        return first * table

    rewritten(function, (X,), fold_constants)


def test_patches_are_cut_and_added_by_convolutions(rewritten: Any, targets: Any) -> None:
    draw = random.Random(0)
    for _ in range(30):
        kernel, stride, dilation = ([draw.randint(1, 3), draw.randint(1, 3)] for _ in range(3))
        padding = [draw.randint(0, 1), draw.randint(0, 1)]
        how = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
        size = (draw.randint(7, 9), draw.randint(7, 9))
        batch = [draw.randint(1, 2)] if draw.random() < 0.8 else []

        def both(x: torch.Tensor, how: Any = how, size: Any = size) -> Any:
            cut = functional.unfold(x, **how)
            return cut, functional.fold(cut * 2, size, **how)

        graph, names = rewritten(both, (torch.randn(*batch, 2, *size),), unfold_by_convolution)
        assert names == ("unfold_by_convolution",)
        assert not {"im2col.default", "col2im.default"} & targets(graph)


@pytest.mark.parametrize(
    ("shifts", "dims"), [((1,), (1,)), ((-2, 9), (0, 2)), ((5,), ()), ((0,), (1,)), ((-1,), (-1,))]
)
def test_rolling_is_cutting_and_joining(
    rewritten: Any, targets: Any, shifts: Any, dims: Any
) -> None:
    graph, names = rewritten(lambda x: torch.roll(x, shifts, dims) + 0, (X,), roll_by_slices)
    assert names == ("roll_by_slices",)
    assert "roll.default" not in targets(graph)


@pytest.mark.parametrize(
    "how",
    [
        {"size": (9, 23), "mode": "bicubic"},
        {"size": (3, 5), "mode": "bicubic", "antialias": True},
        {"size": (3, 5), "mode": "bilinear", "antialias": True},
        {"scale_factor": 1.7, "mode": "bicubic"},
        {"scale_factor": (0.6, 1.3), "mode": "bilinear", "antialias": True},
        {"scale_factor": 2.0, "mode": "bicubic", "align_corners": True},
    ],
)
def test_resizing_is_two_products(rewritten: Any, targets: Any, how: dict[str, Any]) -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, **how)

    graph, names = rewritten(resize, (torch.randn(2, 3, 7, 10),), resize_by_matrices)
    assert names == ("resize_by_matrices",)
    assert targets(graph) == {"matmul.default"}


def test_tiny_numbers_are_tensors(rewritten: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x / (x.abs() + 1e-12) * 1.000001 + (x.sum() + 1e-12) + (x + 0.0) * 1.0

    graph, names = rewritten(function, (X,), preserve_tiny_constants)
    assert names == ("preserve_tiny_constants",)
    sizes = [node.args for node in graph.graph.nodes if "full" in str(node.target)]
    assert sizes == [([1], 1e-12), ([1], 1.000001)]


@pytest.mark.parametrize(
    ("size", "stride", "offset", "known"),
    [
        ((2, 12), (12, 1), 0, "reshape.default"),
        ((24,), (1,), 0, "reshape.default"),
        ((4, 3, 2), (1, 4, 12), 0, "index_select.default"),
        ((3, 3), (5, 2), 1, "index_select.default"),
    ],
)
def test_strides_are_written_out(
    rewritten: Any, targets: Any, size: Any, stride: Any, offset: int, known: str
) -> None:
    graph, names = rewritten(
        lambda x: x.as_strided(size, stride, offset) * 1, (X,), lower_as_strided
    )
    assert names == ("lower_as_strided",)
    assert known in targets(graph)
    assert "as_strided.default" not in targets(graph)


def test_strides_of_a_turned_tensor_are_those_of_its_memory(rewritten: Any) -> None:
    rewritten(lambda x: x.transpose(0, 2).as_strided((2, 12), (12, 1)) * 1, (X,), lower_as_strided)


def test_a_program_is_rewritten_in_place_with_its_outputs() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.detach(), x.view(6, 4), x + x.new_ones(4)

    program = torch.export.export(Calling(function), (X,))
    wanted = program.module()(X)
    names = apply_passes_in_place(program, (canonicalize_ops, copy_contiguous))
    with log_warnings():
        decomposed = program.run_decompositions()
    assert names == ("canonicalize_ops", "copy_contiguous")
    for got, right in itertools.zip_longest(decomposed.module()(X), wanted):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum().cumprod(0),
        lambda x: x.sum().topk(1),
        lambda x: x.sum().median(-1, keepdim=True),
        lambda x: x.mean().std(0, correction=0),
        lambda x: x.sum().gather(0, torch.tensor(0)),
    ],
)
def test_a_number_gets_the_axis_that_is_worked_along(rewritten: Any, function: Any) -> None:
    graph, names = rewritten(function, (X,), add_scalar_axis)
    assert names == ("add_scalar_axis",)
    assert apply_passes(graph, (add_scalar_axis,)) == ()


@pytest.mark.parametrize("function", [lambda x: x.sum().unsqueeze(-1), lambda x: x.sum(0)])
def test_a_number_without_a_dimension_stays(rewritten: Any, function: Any) -> None:
    assert rewritten(function, (X,), add_scalar_axis)[1] == ()


def test_truth_values_are_moved_as_integers(rewritten: Any) -> None:
    def function(x: torch.Tensor) -> Tensors:
        seen = x > 0
        return seen.unfold(2, 2, 1), functional.pad(seen, (1, 0), value=True), seen[[1, 0]]

    graph, names = rewritten(function, (X,), move_bools)
    assert names == ("move_bools",)
    moved = [n for n in graph.graph.nodes if n.target in (_ATEN.unfold.default, _ATEN.index.Tensor)]
    assert [node.args[0].meta["val"].dtype for node in moved] == [torch.int32] * 2
