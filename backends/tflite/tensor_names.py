"""Tensor names that lead from a file back to the source ops of the exported program.

The converter calls a tensor after where its op stands in the module tree; so each op of the
program is said to stand in a module of its own name. A tensor of our files is called

    module/node[;module/node]...[:what][@signature]

after all source ops that were fused into it. No class, file or line of the user's gets in. Every
tensor of a file has a name of its own, over all signatures, as the quantizer needs it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeserve.backends.tflite.schema import op_type, tensors_of

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram


_UNSAFE = re.compile(r"[^\w.]")


@dataclass(frozen=True)
class SourceOp:
    """A source op: its operator, torch's stack trace from the export, its module.

    The module is the path of the innermost one that holds it; None at the top.
    """

    operator: str
    trace: str
    module: str | None = None


def tag_sources(program: ExportedProgram) -> dict[str, SourceOp]:
    """Tag each op of a program, in place, with its own name; torch propagates the tags.

    Returns:
        The origins, by the name of the op.
    """
    from edgeserve.backends.torch.program.inspect import module_path

    origins = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            trace = str(node.meta.get("stack_trace") or "")
            origins[node.name] = SourceOp(str(node.target), trace, module_path(node))
            _tag(node)
    return origins


def _tag(node: fx.Node) -> None:
    from edgeserve.backends.torch.program.inspect import module_path

    path = _UNSAFE.sub("_", module_path(node) or "")
    node.meta = {
        "val": node.meta.get("val"),
        # The converter writes "path/name;" out of these two.
        "nn_module_stack": {"module": ("", path), "node": ("", node.name)},
        # Its errors name the file and line of the last frame.
        "stack_trace": f'  File "{node.name}", line 1, in forward\n    {node.name}',
    }


def path_of(node: fx.Node) -> str:
    """``module/node`` of a tagged node, as the converter writes it; empty for others."""
    stack = node.meta.get("nn_module_stack") or {}
    return f"{stack['module'][1]}/{stack['node'][1]}" if "node" in stack else ""


#: The name of a file's only signature; in an `IO` it has none.
SINGLE = "serving_default"

#: (path of the module or "", name of the source op).
Source = tuple[str, str]

_PART = re.compile(r"([^;/:@]*)/(\w+)")
_ADDED = re.compile(r"_(quantized|dequant)(?=_|$)")

#: Prefixes of the main source op of a type, where several were fused.
_SOURCE_PREFIXES = {
    "CONV_2D": ("conv",),
    "CONV_3D": ("conv",),
    "DEPTHWISE_CONV_2D": ("conv",),
    "TRANSPOSE_CONV": ("conv",),
    "BATCH_MATMUL": ("matmul", "bmm", "scaled_dot_product"),
    "FULLY_CONNECTED": ("linear", "addmm", "matmul", "mm", "bmm"),
    "EMBEDDING_LOOKUP": ("embedding",),
}


def source_of(type: str, name: str) -> Source | None:
    """The source op of an op, from its type and the name of its first output; None: unknown."""
    parts: list[Source] = _PART.findall(re.split("[:@]", name)[0])
    family = _SOURCE_PREFIXES.get(type, ())
    fitting = [part for part in parts if part[1].startswith(family)] if family else []
    return next(iter(fitting or parts), None)


def rename(
    model: Any, largest: str, inputs: Sequence[str], outputs: Sequence[tuple[str, str]]
) -> None:
    """Name everything in a file that the converter has just made.

    Args:
        model: A ``ModelT``, changed in place; its inputs are called ``args_0`` and so on, its
            outputs ``output_0`` and so on.
        largest: The signature whose tensors need no suffix.
        inputs: Names for the inputs, in order.
        outputs: Names for the outputs, in order, each with ``module/node`` of the source op that
            gives it, which the converter forgets.
    """
    graphs = {}
    for signature in model.signatureDefs:
        signature.inputs = _in_order(signature.inputs, inputs)
        signature.outputs = _in_order(signature.outputs, [name for name, _ in outputs])
        graphs[signature.subgraphIndex] = signature
    taken: Counter[str] = Counter()
    for index, graph in enumerate(model.subgraphs):
        signature = graphs.get(index)
        key = signature.signatureKey.decode() if signature else f"graph_{index}"
        graph.name = key.encode()
        made = signature.outputs if signature else ()
        hints = {edge.tensorIndex: hint for edge, (_, hint) in zip(made, outputs, strict=False)}
        _name_tensors(model, graph, "" if key == largest else f"@{key}", hints, taken)


def _in_order(maps: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The tensor maps of a signature in the source's order and under its names."""
    numbered = {int(each.name.decode().rpartition("_")[2]): each for each in maps}
    for index, name in enumerate(names):
        numbered[index].name = name.encode()
    return [numbered[index] for index in range(len(names))]


def _name_tensors(
    model: Any, graph: Any, suffix: str, hints: Mapping[int, str], taken: Counter[str]
) -> None:
    """Name a graph's tensors after the ops that make them, constants after the op that reads them.

    ``hints`` holds source ops of tensors whose own names tell none.
    """
    raw = [tensor.name.decode() for tensor in graph.tensors]
    named: dict[int, str] = {}

    def give(tensor: int, base: str) -> None:
        if tensor >= 0 and tensor not in named:
            taken[base + suffix] += 1
            count = taken[base + suffix] - 1
            named[tensor] = f"{base}:{count}" if count else base

    for position, tensor in enumerate(graph.inputs):
        give(tensor, f"input:{position}")
    for op in graph.operators:
        reads = [raw[tensor] for tensor in op.inputs if tensor >= 0 and tensor not in named]
        for tensor in op.outputs:
            sources = (
                [raw[tensor]] if _PART.findall(raw[tensor]) else [*reads, hints.get(tensor, "")]
            )
            give(tensor, _join_sources(sources) or op_type(model, op).lower())
        for position, tensor in enumerate(op.inputs):
            give(tensor, f"{named[op.outputs[0]]}:in{position}")
    for tensor in range(len(raw)):
        give(tensor, "constant")
    for tensor, name in named.items():
        graph.tensors[tensor].name = (name + suffix).encode()


def _join_sources(names: Sequence[str]) -> str:
    """All source ops in the converter's names."""
    parts = (part for name in names for part in _PART.findall(name))
    return ";".join(dict.fromkeys(map("/".join, parts)))


def names_of(model: Any) -> set[str]:
    """Names of all tensors."""
    return {tensor.name.decode() for _, tensor in tensors_of(model)}


def rename_added(model: Any, before: set[str]) -> None:
    """Bring the names of tensors that the quantizer added into the grammar."""
    for _, tensor in tensors_of(model):
        name = tensor.name.decode()
        if name not in before:
            tensor.name = _ADDED.sub(r":\1", name).encode()
