"""Slices of an exported program that run on their own, with the inputs of the whole program.

    slicer = GraphSlicer(program, examples)
    part = slicer.part(slicer.units[3:5])  # a module of two ops, with the tensors that reach them

A unit is an op together with the nodes that unpack its results. Sizes are those of the examples:
values that depend on them are constants in a slice.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.passes.canonicalize import remove_asserts
from edgeserve.backends.torch.passes.fx_utils import functional, tensor_of
from edgeserve.backends.torch.program.inspect import module_path
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.backends.torch.program.run import NodeRecorder


class CannotSlice(Exception):
    """These units cannot form a module: only tensors and numbers may cross its border."""


@dataclass(frozen=True)
class OpGroup:
    """An op with the nodes that unpack its results.

    Attributes:
        nodes: The op first.
        path: Paths of the modules that hold it, outermost first, the model itself left out.
    """

    nodes: tuple[fx.Node, ...]
    path: tuple[str, ...]

    @property
    def operator(self) -> str:
        """Its name in the exported program: ``aten.det.default``."""
        return str(self.nodes[0].target)

    @property
    def module(self) -> str | None:
        """Path of the innermost module that holds it; None at the top."""
        return module_path(self.nodes[0])


@dataclass(frozen=True)
class GraphSlice:
    """Some units as a module.

    Attributes:
        module: Takes tensors by position, returns a tuple of tensors.
        examples: Its inputs when the whole program runs on its examples.
        operators: Of its units, in order.
    """

    module: fx.GraphModule
    examples: tuple[torch.Tensor, ...]
    operators: tuple[str, ...]


class GraphSlicer:
    """An exported program that can be cut.

    Args:
        program: Flat: tensors in by position.
        examples: Its inputs.
    """

    def __init__(self, program: ExportedProgram, examples: Sequence[torch.Tensor]) -> None:
        with log_warnings():
            module: Any = program.module(check_guards=False)
        remove_asserts(module)
        self._module = _functional(module, examples)
        self._examples = tuple(examples)
        self.units = _op_groups(self._module.graph)

    def part(self, units: Iterable[OpGroup]) -> GraphSlice:
        """Some units alone, in the program's order.

        Raises:
            CannotSlice: something that is neither a tensor nor a number passes an edge, or nothing
                of theirs is used elsewhere.
        """
        chosen = sorted(units, key=self.units.index)
        inside = {node for unit in chosen for node in unit.nodes}
        outside = {r for n in inside for r in n.all_input_nodes if r.op != "get_attr"} - inside
        results = {n for n in inside if set(n.users) - inside}
        values = self._values(outside | results)
        given = [n for n in outside if isinstance(values[n], torch.Tensor)]
        given.sort(key=list(self._module.graph.nodes).index)
        builder = _SliceBuilder(self._module, values)
        builder.take(given)
        for unit in chosen:
            for node in unit.nodes:
                builder.copy(node)
        made = builder.finish([n for n in self._module.graph.nodes if n in results])
        return GraphSlice(made, tuple(values[n] for n in given), tuple(u.operator for u in chosen))

    def _values(self, wanted: set[fx.Node]) -> dict[fx.Node, Any]:
        """The values of these nodes when the whole program runs on its examples."""

        def record(node: fx.Node, value: Any) -> Any:
            if node not in wanted:
                return None
            return value.clone() if isinstance(value, torch.Tensor) else value

        recorder = NodeRecorder(self._module, record)
        buffers = BufferSnapshot(self._module)
        with torch.no_grad():
            recorder.run(*(tensor.clone() for tensor in self._examples))
        buffers.restore()
        return {node: recorder.records.get(node) for node in wanted}


def _functional(module: fx.GraphModule, examples: Sequence[torch.Tensor]) -> fx.GraphModule:
    """Without operators that mutate their arguments, if torch can trace the graph again."""
    try:
        return functional(module, examples)
    except Exception as error:  # torch raises many kinds; most programs can be sliced as they are
        print(f"slicing without functionalization: {error!r:.200}", flush=True)
        return module


def _op_groups(graph: fx.Graph) -> tuple[OpGroup, ...]:
    found = []
    for node in graph.nodes:
        if node.op == "call_function" and not _unpacks(node):
            followers = tuple(user for user in node.users if _unpacks(user))
            stack = (node.meta.get("nn_module_stack") or {}).values()
            paths = [str(path).removeprefix("L['self'].") for path, *_ in stack]
            found.append(OpGroup((node, *followers), tuple(path for path in paths if path)))
    return tuple(found)


def _unpacks(node: fx.Node) -> bool:
    """Whether a node picks from what an op returned, not from a list in the graph."""
    first = node.args[0] if node.args else None
    return node.target is operator.getitem and isinstance(first, fx.Node)


class _SliceBuilder:
    """A part in the making.

    Args:
        module: What it is cut from.
        values: What nodes outside give.
    """

    def __init__(self, module: fx.GraphModule, values: dict[fx.Node, Any]) -> None:
        self._module, self._values = module, values
        self._root = torch.nn.Module()
        self._graph = fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}

    def take(self, nodes: Sequence[fx.Node]) -> None:
        """Make these the inputs."""
        for place, node in enumerate(nodes):
            self._new[node] = self._graph.placeholder(f"x{place}")

    def copy(self, node: fx.Node) -> None:
        """Add an op."""
        args = fx.map_arg(node.args, self._read)
        kwargs = fx.map_arg(node.kwargs, self._read)
        self._new[node] = self._graph.create_node(
            "call_function", node.target, args, kwargs, node.name
        )

    def finish(self, results: Sequence[fx.Node]) -> fx.GraphModule:
        """The part, which returns what ``results`` give."""
        tensors = [n for n in results if isinstance(self._values[n], torch.Tensor)]
        if not tensors:
            raise CannotSlice("it gives no tensor")
        self._graph.output(tuple(self._new[node] for node in tensors))
        self._graph.eliminate_dead_code()
        return fx.GraphModule(self._root, self._graph).eval()

    def _read(self, node: fx.Node) -> Any:
        if node in self._new:
            return self._new[node]
        if node.op == "get_attr":
            return self._hold(node)
        value = self._values.get(node)
        if isinstance(value, bool | int | float):
            return value
        raise CannotSlice(f"{node.name} is a {type(value).__name__}")

    def _hold(self, node: fx.Node) -> fx.Node:
        """A constant, under a name of its own."""
        name = f"c{sum(n.op == 'get_attr' for n in self._graph.nodes)}"
        tensor = tensor_of(self._module, node)
        if tensor is None:
            self._root.add_module(name, self._module.get_submodule(str(node.target)))
        else:
            self._root.register_buffer(name, tensor)
        self._new[node] = self._graph.get_attr(name)
        return self._new[node]
