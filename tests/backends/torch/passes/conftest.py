"""Any function as a module, exported and rewritten; its own answer is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from testkit.nets import Calling
from torch import fx, nn

from edgeserve.backends.torch.passes import apply_passes
from edgeserve.backends.torch.passes.fx_utils import with_sizes
from edgeserve.backends.torch.program.io import log_warnings

Tensors = tuple[torch.Tensor, ...]


@pytest.fixture(scope="session")
def rewritten() -> Callable[..., tuple[fx.GraphModule, tuple[str, ...]]]:
    """``rewritten(function, inputs, *rewrites)``: the graph, after its answers were compared."""

    def make(
        function: Any, inputs: Tensors, *rewrites: Any, decomposed: bool = False
    ) -> tuple[fx.GraphModule, tuple[str, ...]]:
        module = (function if isinstance(function, nn.Module) else Calling(function)).eval()
        program = torch.export.export(module, inputs)
        with log_warnings():
            program = program.run_decompositions() if decomposed else program
        graph = with_sizes(program.module(check_guards=False), inputs)
        names = apply_passes(graph, rewrites)
        with torch.no_grad():
            torch.testing.assert_close(graph(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)
            again = torch.export.export(graph, inputs).module()  # what formats do with it
            torch.testing.assert_close(again(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)
        return graph, names

    return make


@pytest.fixture(scope="session")
def targets() -> Callable[[fx.GraphModule], set[str]]:
    """The operators that a graph calls, by name and overload."""

    def named(graph: fx.GraphModule) -> set[str]:
        calls = (node for node in graph.graph.nodes if node.op == "call_function")
        return {str(node.target).partition(".")[2] for node in calls}

    return named
