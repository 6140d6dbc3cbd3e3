"""Writing ``model.onnx`` by ONNX's own rules; and a source that is an ONNX file already.

A source's file is made ours without changing what it computes. What goes is what others wrote
about it: documentation, tool names, properties of every kind, which may hold paths and names of
people. What stays is the graph with its names; every node says its own name as its source, since
the source is this very graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.backends.onnx.clean import SOURCE, all_nodes
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.versions import versions
from edgeserve.errors import ConvertError
from edgeserve.files import LOCAL, Fs, describe, write_atomic
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature
from edgeserve.user_lines import one_line

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgeserve.types.artifact import FileEntry
    from edgeserve.types.tensors import TensorSpec

__all__ = ["DATA", "EXTERNAL_ABOVE", "MODEL", "check_model", "file_entries", "import_onnx", "save"]


#: Bytes of weights above which they lie beside the file: a protobuf ends at 2 GB, and is in memory
#: three times when it is written and twice when it is opened, where files beside it are mapped.
EXTERNAL_ABOVE = 500_000_000

MODEL, DATA = "model.onnx", "model.onnx.data"


def save(model: ir.Model, out: Path, external_above: int = EXTERNAL_ABOVE, fs: Fs = LOCAL) -> None:
    """Write ``model.onnx``, the same bytes every time; too many weights lie beside it."""
    import onnx_ir as ir

    weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    if weights > external_above:
        ir.save(model, out / MODEL, external_data=DATA)
        return
    write_atomic(out / MODEL, ir.to_proto(model).SerializeToString(deterministic=True), fs)


def file_entries(out: Path) -> tuple[FileEntry, ...]:
    """The files that `save` wrote."""
    data = [DATA] if (out / DATA).exists() else []
    return tuple(describe(out, name) for name in [MODEL, *data])


def check_model(out: Path, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
    """Hold a written file against ONNX's rules and against what it is to take and give.

    Raises:
        ConvertError: EDGE-CONVERT-023.
    """
    import onnx

    try:
        onnx.checker.check_model(str(out / MODEL), full_check=True)
    except Exception as error:  # ValidationError, InferenceError
        raise _invalid("a file that onnx.checker accepts", one_line(error)) from error
    io = io_of(read(out / MODEL))
    if io.inputs != inputs or io.outputs != outputs:
        raise _invalid(f"{[*inputs, *outputs]}", f"{[*io.inputs, *io.outputs]}")


def _invalid(wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-023",
        MODEL,
        wanted=wanted,
        got=got,
        hint="the converter is at fault, not the model: report it with `edgeserve doctor --json`",
    )


#: Oldest version of the file format in which weights need not be declared as inputs.
_MIN_IR_VERSION = 4


def import_onnx(exported: Exported, root: Path, out: Path) -> Artifact:
    """Write the source's own file, cleaned, as ``out/model.onnx``.

    Raises:
        BackendError: EDGE-BACKEND-012 the file cannot be read.
        ConvertError: EDGE-CONVERT-023 what was written is not valid.
    """
    import onnx_ir as ir

    model = read(root / exported.program.path)
    ir.external_data.load_to_model(model)
    _clean(model, exported.signature)
    save(model, out)
    check_model(out, exported.signature.inputs, exported.signature.outputs)
    return Artifact(
        format="onnx",
        precision="fp32",
        entry=MODEL,
        files=file_entries(out),
        io=io_of(read(out / MODEL)),
        provenance=Provenance(route="copy", tools=versions("onnx", "onnx-ir")),
    )


def _clean(model: ir.Model, signature: Signature) -> None:
    from edgeserve import __version__

    model.ir_version = max(model.ir_version, _MIN_IR_VERSION)
    model.producer_name, model.producer_version = "edgeserve", __version__
    model.domain, model.doc_string = None, None
    model.metadata_props.clear()
    graphs: dict[int, Any] = {id(model.graph): model.graph}
    for number, node in enumerate(all_nodes(model)):
        node.name = node.name or f"{node.op_type}_{number}"
        node.metadata_props.clear()
        node.metadata_props[SOURCE] = node.name
        node.doc_string = None
        graphs[id(node.graph)] = node.graph
        for value in node.outputs:
            _clear_metadata(value)
    for graph in graphs.values():
        graph.doc_string = None
        graph.metadata_props.clear()
    model.graph.name = "main"
    for weight in model.graph.initializers.values():
        _clear_metadata(weight)
    _apply_signature(model.graph, signature)


def _clear_metadata(value: ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None


def _apply_signature(graph: ir.Graph, signature: Signature) -> None:
    """Inputs without weights among them, and shapes as the signature has them."""
    import onnx_ir as ir

    for value in [value for value in graph.inputs if value.name in graph.initializers]:
        graph.inputs.remove(value)  # an old way to declare weights, which hides them from engines
    for values, specs in ((graph.inputs, signature.inputs), (graph.outputs, signature.outputs)):
        for value, spec in zip(values, specs, strict=True):
            _clear_metadata(value)
            value.shape = ir.Shape(list(spec.shape))
