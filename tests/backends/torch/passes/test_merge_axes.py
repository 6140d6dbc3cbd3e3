"""Values of many axes in five or fewer: equal to PyTorch, and none is left with more."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional

from edgeserve.backends.torch.passes.fx_utils import with_sizes
from edgeserve.backends.torch.passes.merge_axes import (
    FOUR_AXES,
    has_many_axes,
    merge_axes,
    merge_axes_to_four,
)

Tensors = tuple[torch.Tensor, ...]


def test_permutations_of_many_axes_take_five(rewritten: Any) -> None:
    draw = random.Random(1)
    for rank in (6, 7, 8):
        for _ in range(6):
            sizes = [draw.choice([1, 2, 3]) for _ in range(rank)]
            order = draw.sample(range(rank), rank)
            total = torch.Size(sizes).numel()

            def turn(x: torch.Tensor, sizes: Any = sizes, order: Any = order) -> Any:
                return x.reshape(sizes).permute(order).reshape(-1) * 2

            inputs = (torch.randn(total),)
            graph, _ = rewritten(turn, inputs, merge_axes, decomposed=True)
            assert not has_many_axes(with_sizes(graph, inputs))


SIX = (2, 3, 2, 2, 3, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.reshape(SIX) + x.reshape(SIX)[:, :1, :, :1]).flatten(),
        lambda x: x.reshape(SIX).sum((1, 3)).flatten(),
        lambda x: x.reshape(SIX).mean(2).flatten(),
        lambda x: x.reshape(SIX).amax((0, 5)).flatten(),
        lambda x: x.reshape(SIX).softmax(1).flatten(),
        lambda x: torch.cat([x.reshape(SIX), x.reshape(SIX)], 4).flatten(),
        lambda x: x.reshape(SIX)[:, 1:, :, 0].flatten(),
        lambda x: x.reshape(SIX).unbind(1)[2].flatten(),
        lambda x: x.reshape(SIX).split(1, 4)[1].flatten(),
        lambda x: x.reshape(SIX).max(1).values.flatten(),
        lambda x: x.reshape(SIX)[:, :1].expand(2, 5, 2, 2, 3, 2).flatten(),
        lambda x: functional.pad(x.reshape(SIX), (1, 0, 0, 2)).flatten(),
        lambda x: torch.where(x.reshape(SIX) > 0, x.reshape(SIX), 0.5).flatten(),
        lambda x: x.reshape(SIX).sum(),
        lambda x: x.reshape(SIX).argmax(4).flatten(),
        lambda x: (x.reshape(SIX) @ x.reshape(SIX).mT).flatten(),
        lambda x: functional.layer_norm(x.reshape(SIX), (3, 2)).flatten(),
    ],
)
def test_operators_on_many_axes_take_five(rewritten: Any, function: Any) -> None:
    inputs = (torch.randn(144),)
    graph, names = rewritten(function, inputs, merge_axes, decomposed=True)
    assert names == ("merge_axes",)
    assert not has_many_axes(with_sizes(graph, inputs))


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin], ids=["argmax", "argmin"])
def test_an_index_without_dim_is_that_of_all_elements(rewritten: Any, function: Any) -> None:
    inputs = (torch.arange(144.0).roll(50),)  # extremes away from the ends of every axis

    def index_of_all(x: torch.Tensor) -> torch.Tensor:
        return function(x.reshape(SIX) * 1.0)

    graph, names = rewritten(index_of_all, inputs, merge_axes, decomposed=True)
    assert names == ("merge_axes",)
    assert not has_many_axes(with_sizes(graph, inputs))
    assert torch.equal(graph(*inputs), function(inputs[0]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.reshape(SIX) @ x.reshape(SIX).transpose(4, 5)).reshape(-1),
        lambda x: functional.layer_norm(x.reshape(SIX), (3, 2)).reshape(-1),
        lambda x: functional.linear(x.reshape(SIX), torch.ones(4, 2)).reshape(-1),
    ],
)
def test_layers_that_stay_whole_take_five(rewritten: Any, function: Any) -> None:
    inputs = (torch.randn(144),)
    graph, names = rewritten(function, inputs, merge_axes)
    assert names == ("merge_axes",)
    assert not has_many_axes(with_sizes(graph, inputs))


def test_operands_that_are_stretched_in_turns_are_expanded(rewritten: Any) -> None:
    shapes = [(2, 1, 2, 1, 2, 1, 2), (1, 3, 1, 2, 1, 3, 1)]
    inputs = tuple(torch.randn(torch.Size(shape).numel()) for shape in shapes)
    graph, _ = rewritten(
        lambda a, b: (a.reshape(shapes[0]) * b.reshape(shapes[1])).flatten(),
        inputs,
        merge_axes,
        decomposed=True,
    )
    assert not has_many_axes(with_sizes(graph, inputs))


FIVE = (2, 3, 2, 4, 3)


@pytest.mark.parametrize("decomposed", [False, True])
def test_operators_on_five_axes_take_four(rewritten: Any, decomposed: bool) -> None:
    """Operators by the dozen in one graph; whole, as LiteRT gets them, and in core ATen."""

    def everything(flat: torch.Tensor) -> list[torch.Tensor]:
        x = flat.reshape(FIVE)
        y = x[:, :1, :, :, :1] * 0.5
        made = [
            (x.abs() + 0.2) ** y,
            x.square() + x**3,
            torch.remainder(x * 3, y.abs() + 0.6),
            ((x > 0) ^ (y > 0)).float(),
            (x * 9).long() // 4,
            functional.rms_norm(x, (3,)),
            x.repeat(2, 1, 2, 1, 2),
            x.tile(2, 1),
            x.unfold(3, 2, 1).mean(-1),
            x.flip(0, 2),
            x.flip(-1, -4),
            *x.sort(-2),
            *x.topk(1, -4),
            *x.max(1),
            x.cumsum(-3),
            x.argmax(-4).float(),
            x.gather(2, x.argsort(2)),
            x.var((1, 3)),
            x @ torch.arange(12.0).reshape(3, 4),
            x.std(-3),
        ]
        return [each.flatten().float() for each in made]

    inputs = (torch.randn(144, generator=torch.Generator().manual_seed(0)),)
    graph, names = rewritten(everything, inputs, merge_axes_to_four, decomposed=decomposed)
    assert names == ("merge_axes_to_four",)
    assert not has_many_axes(with_sizes(graph, inputs), FOUR_AXES)
