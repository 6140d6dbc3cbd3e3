"""Writes under a mask and writes to inputs, in words that formats have; PyTorch is the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgeserve.backends.torch.decompositions.scatter import SCATTER_RULES
from edgeserve.backends.torch.passes.functionalize import functionalize_inputs, lower_masked_write
from edgeserve.backends.torch.program.io import log_warnings

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))

ROWS, ROW, EACH = torch.randn(4, 5), torch.randn(1, 4, 5), torch.randn(3, 1)


def _written(x: torch.Tensor, at: Any, value: Any) -> torch.Tensor:
    made = x.clone()
    made[at] = value
    return made


@pytest.mark.parametrize(
    "function",
    [
        lambda x: _written(x, x < 0, 0.25),
        lambda x: _written(x, x < 0, torch.tensor([7.0])),
        lambda x: _written(x, x[..., 0] < 0, 0.25),
        lambda x: _written(x, x[..., 0] < 0, torch.arange(5.0)),
        lambda x: _written(x, x[..., 0] < 0, torch.arange(5.0)[None]),
        lambda x: _written(x, x[:, 0, 0] < 0, ROWS),
        lambda x: _written(x, x[:, 0, 0] < 0, ROW),
        lambda x: _written(x, (slice(None), x[0, :, 0] < 0), 2.0),
        lambda x: _written(x, (slice(None), x[0] < 0), EACH),
        lambda x: torch.index_put(x, [x < 0], torch.tensor(0.5)),
        lambda x: _written(x * 9, x < 9, float("nan")) + _written(x, x < -9, float("inf")),
    ],
)
def test_one_value_under_a_mask_is_a_choice(rewritten: Any, targets: Any, function: Any) -> None:
    graph, names = rewritten(_Equal(function), (X,), lower_masked_write)
    assert names == ("lower_masked_write",)
    assert not {"index_put.default", "index_put_.default"} & targets(graph)


class _Equal(torch.nn.Module):
    """A function whose answer's NaN are counted, as NaN is not equal to itself."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.function(x)
        return made.nan_to_num(123.0), made.isnan()


def test_a_write_to_a_part_of_a_tensor_reaches_the_whole(rewritten: Any, targets: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        made = x.clone()
        part = made[:, 1:3]
        part[part < 0] = 4.0
        return made.sum(1) + part.sum(1)

    graph, _ = rewritten(function, (X,), lower_masked_write)
    assert "index_put_.default" not in targets(graph)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.index_put(x, [x < 0], torch.tensor(1.0), accumulate=True),
        lambda x: _written(x, torch.tensor([0, 2]), 1.0),
        lambda x: _written(x, (x[:, 0, 0] < 9, torch.tensor([1])), 1.0),
    ],
)
def test_other_writes_stay(rewritten: Any, function: Any) -> None:
    assert rewritten(function, (X,), lower_masked_write)[1] == ()


def test_inputs_are_read_through_copies_where_they_are_written_to() -> None:
    def in_place(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        x[:, 0] = 1.5
        return x + y, x

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return in_place(x, y)

    given = (X.clone(), torch.ones(3, 4, 5))
    graph: Any = torch.export.export(Net(), (X.clone(), given[1])).module(check_guards=False)
    right = in_place(X.clone(), given[1])
    assert functionalize_inputs(graph)
    graph.recompile()
    for got, wanted in zip(graph(*given), right, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    torch.testing.assert_close(given[0], X, rtol=0, atol=0)
    with log_warnings():
        program = torch.export.export(graph, given).run_decompositions({})
    assert not program.graph_signature.user_inputs_to_mutate


def test_inputs_that_nothing_writes_to_are_left_alone(rewritten: Any) -> None:
    assert rewritten(lambda x: x.clone().mul_(2), (X,), functionalize_inputs)[1] == ()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dim", [0, 1])
def test_sources_alone_are_reduced_where_there_are_some(reduce: str, dim: int) -> None:
    x, source = torch.randn(5, 7), torch.randn(4, 6)
    index = torch.randint(0, 5, (3, 4))
    right = x.scatter_reduce(dim, index, source, reduce, include_self=False)
    rule = SCATTER_RULES[torch.ops.aten.scatter_reduce.two]
    torch.testing.assert_close(rule(x, dim, index, source, reduce, False), right)
