"""Graph rewrites: the same answers as PyTorch, on the nets they are for and beside them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from testkit.nets import Calling
from torch import fx, nn

from edgeserve.backends.torch.passes import apply_passes
from edgeserve.backends.torch.passes.canonicalize import remove_asserts, remove_noops
from edgeserve.backends.torch.passes.fold import fold_batch_norm
from edgeserve.backends.torch.passes.fx_utils import with_sizes
from edgeserve.backends.torch.passes.lower_expand import expand_to_cat, remove_expand

Tensors = tuple[torch.Tensor, ...]


def graph_of(module: nn.Module, inputs: Tensors) -> fx.GraphModule:
    return torch.export.export(module.eval(), inputs).module(check_guards=False)


def targets(graph: fx.GraphModule) -> list[str]:
    return [
        str(node.target).split(".")[1] for node in graph.graph.nodes if node.op == "call_function"
    ]


def rewritten(module: nn.Module, inputs: Tensors, *rewrites: Any) -> tuple[fx.GraphModule, Tensors]:
    """The rewritten graph, after its answer was compared with the module's."""
    graph = with_sizes(graph_of(module, inputs), inputs)
    names = apply_passes(graph, rewrites)
    with torch.no_grad():
        torch.testing.assert_close(graph(*inputs), module(*inputs), rtol=0, atol=2e-6)
    return graph, names  # type: ignore[return-value]


def test_checks_go_and_what_only_they_read() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > -100).all(), "too small")
        return x + 1

    graph, names = rewritten(Calling(checked), (torch.randn(3),), remove_asserts)
    assert names == ("remove_asserts",)
    assert targets(graph) == ["add"]


def test_dropout_and_aliases_go() -> None:
    module = nn.Sequential(nn.Dropout(0.3), Calling(lambda x: x.detach() + 1), nn.AlphaDropout(0.5))
    graph, names = rewritten(module, (torch.randn(2, 4),), remove_noops)
    assert names == ("remove_noops",)
    assert targets(graph) == ["add"]


def test_dropout_in_training_stays() -> None:
    graph = graph_of(
        Calling(lambda x: nn.functional.dropout(x, 0.5, training=True)), (torch.ones(8),)
    )
    assert apply_passes(graph, [remove_noops]) == ()


def with_statistics(norm: nn.Module) -> Any:
    """A batch normalisation that has seen data."""
    nn.init.normal_(norm.running_mean)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 0.3, 3)  # type: ignore[arg-type]
    if norm.affine:
        nn.init.normal_(norm.weight)  # type: ignore[arg-type]
        nn.init.normal_(norm.bias)  # type: ignore[arg-type]
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("padding", [1, "same"])
def test_normalisation_is_folded_into_a_convolution(bias: bool, affine: bool, padding: Any) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, padding=padding, groups=2, bias=bias)
    norm = with_statistics(nn.BatchNorm2d(6, affine=affine))
    graph, names = rewritten(nn.Sequential(conv, norm), (torch.randn(2, 4, 5, 5),), fold_batch_norm)
    assert names == ("fold_batch_norm",)
    assert targets(graph) == ["conv2d"]


@pytest.mark.parametrize("dims", [1, 3])
def test_normalisation_is_folded_in_one_and_three_dimensions(dims: int) -> None:
    conv = getattr(nn, f"Conv{dims}d")(2, 3, 2)
    norm = with_statistics(getattr(nn, f"BatchNorm{dims}d")(3))
    inputs = (torch.randn(2, 2, *[4] * dims),)
    graph, _ = rewritten(nn.Sequential(conv, norm), inputs, fold_batch_norm)
    assert targets(graph) == [f"conv{dims}d"]


def test_normalisation_is_not_folded_where_that_changes_something() -> None:
    """Another reader of the convolution; no convolution; one with a computed weight."""
    conv, norm = nn.Conv2d(3, 3, 1), with_statistics(nn.BatchNorm2d(3))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = conv, norm

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x)
            return self.norm(y) + y

    class Computed(Both):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(nn.functional.conv2d(x, self.conv.weight * 2))

    for module in (Both(), nn.Sequential(nn.ReLU(), norm), Computed()):
        graph, names = rewritten(module, (torch.randn(1, 3, 4, 4),), fold_batch_norm)
        assert names == ()
        assert "batch_norm" in targets(graph)


def test_a_convolution_that_is_used_twice_keeps_its_own_weights() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.first = with_statistics(nn.BatchNorm2d(3))
            self.second = with_statistics(nn.BatchNorm2d(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.conv(self.first(self.conv(x))))

    graph, names = rewritten(Shared(), (torch.randn(1, 3, 4, 4),), fold_batch_norm)
    assert names == ("fold_batch_norm",)
    assert targets(graph) == ["conv2d", "conv2d"]


A, B = torch.randn(2, 3, 1, 1), torch.randn(2, 3, 4, 5)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a.expand_as(b) * b,
        lambda a, b: b - a.expand(2, 3, 4, 5),
        lambda a, b: (a.expand(-1, -1, 4, 5) + b) / a.expand_as(b),
    ],
)
def test_an_expansion_that_broadcasting_does_goes(function: Any) -> None:
    graph, names = rewritten(Calling(function), (A, B), remove_expand)
    assert names == ("remove_expand",)
    assert not [target for target in targets(graph) if target.startswith("expand")]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a.expand_as(b),
        lambda a, b: a.expand_as(b).relu() * b,
        lambda a, b: a.expand_as(b) + 1,
    ],
)
def test_an_expansion_that_gives_the_shape_stays(function: Any) -> None:
    graph, names = rewritten(Calling(function), (A, B), remove_expand)
    assert names == ()
    assert "expand_as" in targets(graph) or "expand" in targets(graph)


def test_of_two_expansions_to_one_shape_one_stays() -> None:
    inputs = (torch.randn(1, 4), torch.randn(1, 4))
    graph, _ = rewritten(
        Calling(lambda a, b: a.expand(3, 4) + b.expand(3, 4)), inputs, remove_expand
    )
    assert targets(graph).count("expand") == 1


K, Q = torch.randn(1, 1, 6, 8), torch.randn(1, 4, 5, 8)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda k, q: q @ k.expand(1, 4, 6, 8).transpose(-1, -2), (K, Q)),
        (
            lambda k, q: nn.functional.scaled_dot_product_attention(
                q, k.expand(1, 4, -1, -1), k.expand(1, 4, 6, 8)
            ),
            (K, Q),
        ),
        (lambda x: x.expand(4, 5, 3).permute(2, 0, 1), (torch.randn(4, 1, 3),)),
        (lambda x: x.repeat(2, 3, 1).permute(1, 2, 0), (torch.randn(4, 5, 3),)),
        (lambda x: x.expand(2, 5, 3).reshape(10, 3).t(), (torch.randn(5, 3),)),
    ],
)
def test_an_expansion_that_is_turned_becomes_a_concatenation(
    function: Any, inputs: Tensors
) -> None:
    graph, names = rewritten(Calling(function), inputs, expand_to_cat)
    assert names == ("expand_to_cat",)
    assert not {"expand", "repeat"} & set(targets(graph))
    assert "cat" in targets(graph)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x.expand(4, 5).t(), (torch.randn(1, 5),)),  # one real axis: nothing to mix up
        (lambda x: x.expand(4, 5, 3) + 1, (torch.randn(4, 1, 3),)),
        (lambda x: x.expand(4, 5).t(), (torch.randn(4, 5),)),
    ],
)
def test_other_expansions_stay(function: Any, inputs: Tensors) -> None:
    assert rewritten(Calling(function), inputs, expand_to_cat)[1] == ()


def test_sizes_are_tried_without_touching_buffers() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("runs", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.runs += 1
            return x + self.runs

    graph = graph_of(Counting(), (torch.ones(2),))
    with_sizes(graph, (torch.ones(2),))
    assert float(graph.runs) == 0  # type: ignore[arg-type]


def test_origins_are_handed_down() -> None:
    graph = graph_of(Calling(lambda x: x.expand(4, 5, 3).permute(2, 0, 1)), (torch.randn(4, 1, 3),))
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = node.name
    sized = with_sizes(graph, (torch.randn(4, 1, 3),))
    apply_passes(sized, [expand_to_cat])
    (made,) = sized.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert made.meta["stack_trace"] == "expand"
