"""Operators that a library or the user registered: replaced by what they are made of, or refused.

A converter runs in a process of its own, which does not import what registers such an operator and
so could not read the program. An operator whose body is PyTorch code is traced through its body.
The experts of transformers' mixtures call an operator that loops over numbers read from a tensor;
the library has another implementation of the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.torch.decompositions.decompose import composite
from edgeserve.backends.torch.diagnose.unsupported_op import RefusedOp
from edgeserve.backends.torch.program.inspect import module_path
from edgeserve.errors import UnsupportedOp
from edgeserve.user_lines import line_of_text, one_line

#: Namespaces that importing torch registers.
_BUILTIN = set(
    "_c10d_functional aten c10d higher_order inductor mkldnn onnx prim prims quantized "
    "quantized_decomposed rngprims".split()
)


def inline_custom_ops(program: ExportedProgram, folder: Path) -> ExportedProgram:
    """The program with each custom operator replaced by its body.

    Args:
        program: As traced; returned itself if it has no custom operator.
        folder: The user's folder, so that an error can name the user's own line.

    Raises:
        UnsupportedOp: EDGE-OP-040, there is no body, or it cannot be traced.
    """
    table: dict[Any, Callable[..., Any]] = {}
    for node in _custom_calls(program):
        body = _body(node.target)
        if body is None:
            raise _refusal(node, folder, "one whose registration has no PyTorch code")
        table[node.target] = body
    if not table:
        return program
    first = next(_custom_calls(program))
    try:
        made = program.run_decompositions(table)
    except Exception as error:  # the library's code raises many kinds
        raise _refusal(first, folder, one_line(error)) from error
    for node in _custom_calls(made):
        raise _refusal(node, folder, "one whose body calls it again")
    return made


def _custom_calls(program: ExportedProgram) -> Iterator[fx.Node]:
    for part in program.graph_module.modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                target = node.target
                if isinstance(target, torch._ops.OpOverload) and target.namespace not in _BUILTIN:
                    yield node


def _body(target: Any) -> Callable[..., Any] | None:
    """What an operator computes, as PyTorch code."""
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(target._schema.name)
    return definition._init_fn if definition is not None else composite(target)


def _refusal(node: fx.Node, folder: Path, got: str) -> UnsupportedOp:
    line = line_of_text(str(node.meta.get("stack_trace") or ""), folder)
    return UnsupportedOp(
        "EDGE-OP-040",
        RefusedOp(str(node.target), module_path(node), line).thing,
        wanted="an operator of PyTorch, or one made of them",
        got=got,
        source_line=line,
        hint="write that step with PyTorch's own operators, or take the library's implementation "
        "that does",
    )


def use_batched_experts(module: torch.nn.Module) -> list[str]:
    """Let mixtures of experts of transformers multiply by batches; a note if any was changed."""
    changed = False
    for part in module.modules():
        choose = getattr(part, "set_experts_implementation", None)
        current = getattr(getattr(part, "config", None), "_experts_implementation", None)
        if callable(choose) and current == "grouped_mm":
            choose("batched_mm")
            changed = True
    return ["mixtures of experts are computed by batched products"] if changed else []
