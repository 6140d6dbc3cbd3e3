"""What an exported program holds: its nodes as ops, its tensors as weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.torch.identity import tensors_of
from edgeserve.backends.torch.program import load_program
from edgeserve.types.artifact import Artifact

__all__ = ["inspect_program", "module_path"]


def inspect_program(artifact: Artifact, root: Path) -> Graph:
    """The graph of an exported program; each op is its own source op."""
    program = load_program(artifact, root)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    return Graph(
        inputs=artifact.io.inputs,
        outputs=artifact.io.outputs,
        ops=tuple(_op(node) for node in calls),
        weights=_weights(program),
    )


def _op(node: fx.Node) -> Op:
    return Op(
        name=node.name,
        type=str(node.target),
        inputs=tuple(read.name for read in node.all_input_nodes),
        outputs=(node.name,),
        source=node.name,
        module=module_path(node),
    )


def module_path(node: fx.Node) -> str | None:
    """Path of the innermost module that held a node ("features.0"); None at the top or unknown."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L['self'].") or None


def _weights(program: ExportedProgram) -> tuple[WeightInfo, ...]:
    """Each stored tensor once: tied weights share their memory."""
    seen: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
    found = []
    for name, tensor in sorted(tensors_of(program).items()):
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if key not in seen or not tensor.numel():
            seen.add(key)
            found.append(_weight(name, tensor))
    return tuple(found)


def _weight(name: str, tensor: torch.Tensor) -> WeightInfo:
    return WeightInfo(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        bytes=tensor.numel() * tensor.element_size(),
    )
