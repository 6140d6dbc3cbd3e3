"""The content of an ONNX file, read through onnx_ir, and activations as extra outputs (taps).

Taps are added in memory only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgeserve.backends.checks import unknown_taps, unreadable, unsupported_dtype
from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.onnx.clean import MODULE, SOURCE, all_nodes
from edgeserve.errors import BackendError
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import DTYPES, IO, DType, TensorSpec
from edgeserve.user_lines import one_line

if TYPE_CHECKING:
    import onnx_ir as ir


#: Our words for the names of ONNX's dtypes.
_DTYPES: dict[str, DType] = {"FLOAT": "float32", "DOUBLE": "float64"}
_DTYPES |= {w.upper(): cast("DType", w) for w in DTYPES if w not in ("float32", "float64")}


#: Valid names of dimensions.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(path: Path) -> ir.Model:
    """Read a file without its external data.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    import onnx_ir as ir

    try:
        return ir.load(path)
    except Exception as error:  # protobuf and onnx_ir raise many kinds
        raise unreadable(f"file {path.name!r}", "an ONNX model", one_line(error)) from error


def io_of(model: ir.Model) -> IO:
    """A model's inputs and outputs; an unnamed dimension gets a name from its tensor and axis."""
    weights = set(model.graph.initializers)
    takes = [value for value in model.graph.inputs if value.name not in weights]
    return IO(
        inputs=tuple(_spec(value) for value in takes),
        outputs=tuple(_spec(value) for value in model.graph.outputs),
    )


def _spec(value: ir.Value) -> TensorSpec:
    name = value.name or ""
    dims: list[int | str] = []
    for axis, dim in enumerate(value.shape or ()):
        size = dim if isinstance(dim, int) else str(dim.value or "")
        known = size >= 0 if isinstance(size, int) else _PLAIN.fullmatch(size)
        dims.append(size if known else f"{dim_word(name)}_dim{axis}")
    return TensorSpec(name=name, dtype=_dtype(value), shape=tuple(dims))


def dim_word(name: str) -> str:
    """A tensor's name as a valid prefix of a dimension's name."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return word if word[:1].isalpha() or word[:1] == "_" else f"d_{word}"


def _dtype(value: ir.Value) -> DType:
    word = value.dtype.name if value.dtype is not None else "none"
    if word not in _DTYPES:
        hint = "keep the file's inputs and outputs in float32 or an integer dtype"
        raise unsupported_dtype(str(value.name), sorted(_DTYPES.values()), word.lower(), hint)
    return _DTYPES[word]


def inspect_onnx(artifact: Artifact, root: Path) -> Graph:
    """The graph of an artifact's file."""
    model = read(root / artifact.entry)
    return Graph(
        inputs=io_of(model).inputs,
        outputs=io_of(model).outputs,
        ops=tuple(map(_op, all_nodes(model))),
        weights=_weights(model),
        opset={
            str(domain): int(version) for domain, version in sorted(model.opset_imports.items())
        },
    )


def _op(node: ir.Node) -> Op:
    return Op(
        name=node.name or "",
        type=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
        inputs=tuple(value.name or "" if value is not None else "" for value in node.inputs),
        outputs=tuple(value.name or "" for value in node.outputs),
        source=node.metadata_props.get(SOURCE),
        module=node.metadata_props.get(MODULE),
    )


def _weights(model: ir.Model) -> tuple[WeightInfo, ...]:
    """Initializers of the graph and of inner graphs, by name."""
    graphs = {id(node.graph): node.graph for node in all_nodes(model) if node.graph is not None}
    found: dict[int, WeightInfo] = {}
    for graph in {id(model.graph): model.graph, **graphs}.values():
        for name, value in getattr(graph, "initializers", {}).items():
            tensor = value.const_value
            if tensor is not None:
                found[id(value)] = WeightInfo(
                    name=name,
                    dtype=_DTYPES.get(tensor.dtype.name, tensor.dtype.name.lower()),
                    bytes=int(tensor.nbytes),
                    shape=tuple(int(size) for size in tensor.shape.numpy()),
                )
    return tuple(sorted(found.values(), key=lambda weight: weight.name))


#: Ops that give the same numbers, of other shape or type.
_VIEWS = frozenset("Cast Expand Flatten Identity Reshape Slice Squeeze Transpose Unsqueeze".split())


def index_bounds(model: ir.Model) -> dict[str, int]:
    """The largest index that a model can look up, of inputs that lead to tables unchanged."""
    found = {value.name or "": list(_bounds(value)) for value in model.graph.inputs}
    return {name: min(bounds) for name, bounds in found.items() if bounds}


def _bounds(value: ir.Value) -> Iterator[int]:
    for node, index in value.uses():
        if node.op_type in _VIEWS and index == 0:
            yield from _bounds(node.outputs[0])
        elif node.op_type in ("Gather", "GatherElements") and index == 1:
            axis, table = node.attributes.get_int("axis", 0), node.inputs[0]
            size = table.shape[axis] if table is not None and table.shape is not None else None
            if isinstance(size, int):
                yield size - 1


def with_taps(path: Path, taps: tuple[str, ...]) -> bytes:
    """The model at ``path`` with the tensors named in ``taps`` appended to its outputs.

    Raises:
        BackendError: EDGE-BACKEND-014 no such tensor in the main graph, -004 onnx_ir is not
        installed.
    """
    try:
        import onnx_ir as ir
    except ImportError as error:
        wanted = "onnx_ir, which edits the graph"
        got = "not installed"
        hint = install_command("convert")
        raise BackendError("EDGE-BACKEND-004", "taps", wanted=wanted, got=got, hint=hint) from error
    model = read(path)
    values = {
        value.name: value
        for node in all_nodes(model)
        for value in node.outputs
        if node.graph is model.graph
    }
    outputs = {value.name for value in model.graph.outputs}
    if unknown := [tap for tap in taps if tap not in values or tap in outputs]:
        raise unknown_taps(unknown)
    model.graph.outputs.extend(values[tap] for tap in taps)
    return bytes(ir.to_proto(model).SerializeToString())
