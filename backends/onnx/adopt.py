"""A source that is an ONNX file already: made ours without changing what it computes.

What goes is what others wrote about it: documentation, tool names, properties of every kind, which
may hold paths and names of people. What stays is the graph with its names; every node says its own
name as its source, since the source is this very graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve.backends.host import versions
from edgeserve.backends.onnx.clean import SOURCE, all_nodes
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.onnx.write import MODEL, check, listed, save
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["adopt_onnx"]

#: Oldest version of the file format in which weights need not be declared as inputs.
_IR = 4


def adopt_onnx(exported: Exported, root: Path, out: Path) -> Artifact:
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
    check(out, exported.signature.inputs, exported.signature.outputs)
    return Artifact(
        format="onnx",
        precision="fp32",
        entry=MODEL,
        files=listed(out),
        io=io_of(read(out / MODEL)),
        provenance=Provenance(route="copy", tools=versions("onnx", "onnx-ir")),
    )


def _clean(model: ir.Model, signature: Signature) -> None:
    from edgeserve import __version__

    model.ir_version = max(model.ir_version, _IR)
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
            _strip(value)
    for graph in graphs.values():
        graph.doc_string = None
        graph.metadata_props.clear()
    model.graph.name = "main"
    for weight in model.graph.initializers.values():
        _strip(weight)
    _name_sizes(model.graph, signature)


def _strip(value: ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None


def _name_sizes(graph: ir.Graph, signature: Signature) -> None:
    """Inputs without weights among them, and shapes as the signature has them."""
    import onnx_ir as ir

    for value in [value for value in graph.inputs if value.name in graph.initializers]:
        graph.inputs.remove(value)  # an old way to declare weights, which hides them from engines
    for values, specs in ((graph.inputs, signature.inputs), (graph.outputs, signature.outputs)):
        for value, spec in zip(values, specs, strict=True):
            _strip(value)
            value.shape = ir.Shape(list(spec.shape))
