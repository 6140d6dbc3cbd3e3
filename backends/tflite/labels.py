"""Marks on an exported program that lead from a file's tensors back to the source ops.

The converter calls a tensor after where its op stands in the module tree; so each op of the program
is said to stand in a module of its own name. A tensor of our files is called

    module/node[;module/node]...[:what][@signature]

after all source ops that were fused into it. No class, file or line of the user's gets in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

__all__ = ["Origin", "mark", "path_of"]

_UNSAFE = re.compile(r"[^\w.]")


@dataclass(frozen=True)
class Origin:
    """What is known of a source op: its operator, torch's stack trace from the export, its module.

    The module is the path of the innermost one that holds it; None at the top.
    """

    operator: str
    trace: str
    module: str | None = None


def mark(program: ExportedProgram) -> dict[str, Origin]:
    """Mark each op of a program, in place, with its own name; torch hands the marks down.

    Returns:
        The origins, by the name of the op.
    """
    from edgeserve.backends.torch.inspect import module_path

    origins = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            trace = str(node.meta.get("stack_trace") or "")
            origins[node.name] = Origin(str(node.target), trace, module_path(node))
            _mark(node)
    return origins


def _mark(node: fx.Node) -> None:
    from edgeserve.backends.torch.inspect import module_path

    path = _UNSAFE.sub("_", module_path(node) or "")
    node.meta = {
        "val": node.meta.get("val"),
        # The converter writes "path/name;" out of these two.
        "nn_module_stack": {"module": ("", path), "node": ("", node.name)},
        # Its errors name the file and line of the last frame.
        "stack_trace": f'  File "{node.name}", line 1, in forward\n    {node.name}',
    }


def path_of(node: fx.Node) -> str:
    """``module/node`` of a marked node, as the converter would write it; empty for others."""
    stack = node.meta.get("nn_module_stack") or {}
    return f"{stack['module'][1]}/{stack['node'][1]}" if "node" in stack else ""
