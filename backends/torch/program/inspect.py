"""The content of an exported program: ops and weights to show, and the model's identity.

The identity is each weight's bytes and the graph as text without metadata. The text names
operators, arguments and the flow between them; it holds no file path, line number, module
address or version, so the same model gives the same text in every process and folder.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.torch.program.io import load_program
from edgeserve.errors import ConvertError
from edgeserve.files import sha256_bytes
from edgeserve.types.artifact import Artifact
from edgeserve.types.source import Weight
from edgeserve.types.tensors import DTYPES, DType


def dtype_word(dtype: torch.dtype, owner: str) -> DType:
    """The name of a torch dtype in edgeserve.

    Raises:
        ConvertError: EDGE-CONVERT-027, a dtype that no format here has (complex, quantized,
        float8).
    """
    word = str(dtype).removeprefix("torch.")
    if word not in DTYPES:
        thing = f"tensor {owner!r}"
        wanted = f"a dtype among {', '.join(DTYPES)}"
        hint = "convert it to float32 before the model is exported"
        raise ConvertError("EDGE-CONVERT-027", thing, wanted=wanted, got=word, hint=hint)
    return word  # type: ignore[return-value]


def tensors_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters, buffers (persistent or not) and constants of a program, by name."""
    found: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        name = spec.target
        if name is None:
            continue
        tensor = program.state_dict.get(name)
        tensor = program.constants.get(name) if tensor is None else tensor
        if not isinstance(tensor, torch.Tensor):
            thing = f"constant {name!r}"
            got = type(tensor).__name__
            hint = "replace script objects by tensors or plain Python"
            raise ConvertError("EDGE-CONVERT-027", thing, wanted="a tensor", got=got, hint=hint)
        found[name] = tensor
    return found


def weights_of(program: ExportedProgram) -> tuple[Weight, ...]:
    """Every weight with the sha256 of its little-endian C-order bytes, sorted by name."""
    return tuple(
        _hashed_weight(name, tensor) for name, tensor in sorted(tensors_of(program).items())
    )


def _hashed_weight(name: str, tensor: torch.Tensor) -> Weight:
    """The hash of a weight; complex numbers are hashed as pairs of real ones, as in memory."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    dtype = dtype_word(tensor.dtype, name)
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype is torch.bfloat16:
        plain = plain.view(torch.int16)
    array = plain.numpy()
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    digest = sha256_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return Weight(name=name, dtype=dtype, shape=tuple(tensor.shape), sha256=digest)


def graph_sha256(program: ExportedProgram) -> str:
    """sha256 of `graph_text` in UTF-8."""
    return hashlib.sha256(graph_text(program).encode()).hexdigest()


def graph_text(program: ExportedProgram) -> str:
    """The program as text: one line an input, weight, operation or output, then inner graphs."""
    kinds = {
        spec.arg.name: f"{spec.kind.name} {spec.target or ''}".strip()
        for spec in program.graph_signature.input_specs
        if hasattr(spec.arg, "name")
    }
    return "\n".join(_lines(program.graph_module, kinds)) + "\n"


def _lines(module: fx.GraphModule, kinds: dict[str, str]) -> Iterator[str]:
    numbers: dict[fx.Node, int] = {}
    inner: list[tuple[str, fx.GraphModule]] = []
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        yield f"%{numbers[node]} = {_node(node, numbers, kinds)}"
        if node.op == "get_attr":
            held = getattr(module, str(node.target), None)
            if isinstance(held, fx.GraphModule):
                inner.append((str(node.target), held))
    for name, held in inner:
        yield f"graph {name}"
        yield from _lines(held, {})


def _node(node: fx.Node, numbers: dict[fx.Node, int], kinds: dict[str, str]) -> str:
    if node.op == "placeholder":
        return f"input {kinds.get(node.name, '')}".strip()
    named = [f"{key}={_argument(value, numbers)}" for key, value in sorted(node.kwargs.items())]
    arguments = ", ".join([_argument(value, numbers) for value in node.args] + named)
    target = node.target if isinstance(node.target, str) else _target(node.target)
    return f"{node.op} {target}({arguments})"


def _target(target: Any) -> str:
    """An operator's name; a plain function's by module, never by address."""
    if isinstance(target, torch._ops.OperatorBase):
        return str(target)
    return f"{target.__module__}.{target.__name__}"


def _argument(value: Any, numbers: dict[fx.Node, int]) -> str:
    if isinstance(value, fx.Node):
        return f"%{numbers[value]}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_argument(item, numbers) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_argument(v, numbers)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(_argument(part, numbers) for part in parts)})"
    if value is None or isinstance(
        value,
        bool | int | float | str | torch.dtype | torch.device | torch.layout | torch.memory_format,
    ):
        return repr(value)
    return type(value).__name__


def inspect_program(artifact: Artifact, root: Path) -> Graph:
    """The graph of an exported program; each op is its own source op."""
    program = load_program(artifact, root)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    io, ops = artifact.io, tuple(map(_op, calls))
    return Graph(inputs=io.inputs, outputs=io.outputs, ops=ops, weights=_weights(program))


def _op(node: fx.Node) -> Op:
    return Op(
        name=node.name,
        type=str(node.target),
        inputs=tuple(read.name for read in node.all_input_nodes),
        outputs=(node.name,),
        source=node.name,
        module=module_path(node),
        trace=str(node.meta.get("stack_trace") or ""),
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
            dtype = str(tensor.dtype).removeprefix("torch.")
            found.append(WeightInfo(name, dtype, tuple(tensor.shape), tensor.nbytes))
    return tuple(found)
