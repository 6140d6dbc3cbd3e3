"""Clean a freshly exported ONNX model: the signature's names, source ops, and nothing private.

The exporter writes local paths, source lines and class names into every node. Only the source op of
the exported program (`SOURCE`) and its module (`MODULE`) are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgeserve.types.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir


#: Keys of the node metadata that is kept.
SOURCE, MODULE = "edgeserve.source", "edgeserve.module"

#: Key under which the exporter writes a node's stack trace.
TRACE = "pkg.torch.onnx.stack_trace"

_SYMBOL = re.compile(r"\b[su]\d+\b")


def clean(
    model: ir.Model,
    signature: Signature,
    symbols: Mapping[str, str],
    modules: Mapping[str, str | None],
) -> None:
    """Rename and strip a model in place.

    Args:
        model: As exported; each node's stack trace is the name of a source op.
        signature: The names and shapes for the graph's inputs and outputs.
        symbols: Names of the trace's symbols.
        modules: For each source op, the module that held it.
    """
    sources = [(node, node.metadata_props.get(TRACE, "")) for node in all_nodes(model)]
    clear_metadata(model)
    for node, source in sources:
        if source in modules:
            node.metadata_props[SOURCE] = source
            if module := modules[source]:
                node.metadata_props[MODULE] = module
    for value in _values(model):
        _name_dims(value, symbols)
    _apply_signature(model.graph, signature)


def clear_metadata(model: ir.Model, own_sources: bool = False) -> None:
    """Remove documentation, tool names and properties from all parts of a model, in place.

    Args:
        model: The model.
        own_sources: Give nameless nodes a name, and note each node's own name as its source op.
    """
    from edgeserve import __version__

    model.producer_name, model.producer_version = "edgeserve", __version__
    model.domain = None
    nodes = list(all_nodes(model))
    graphs = {
        id(graph): graph
        for graph in (model.graph, *(node.graph for node in nodes))
        if graph is not None
    }
    parts: list[Any] = [model, *graphs.values(), *nodes, *_values(model)]
    for part in parts:
        part.metadata_props.clear()
        part.doc_string = None
    for number, node in enumerate(nodes if own_sources else ()):
        node.name = node.name or f"{node.op_type}_{number}"
        node.metadata_props[SOURCE] = node.name


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of a model, those of inner graphs and functions too."""
    import onnx_ir as ir

    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from (*model.graph.inputs, *model.graph.outputs)
    yield from model.graph.initializers.values()
    for node in all_nodes(model):
        yield from node.outputs


def _name_dims(value: ir.Value, symbols: Mapping[str, str]) -> None:
    """Replace the trace's symbols by the user's names, also inside expressions."""
    import onnx_ir as ir

    if value.shape is None:
        return
    texts = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
    value.shape = ir.Shape(
        _SYMBOL.sub(lambda m: symbols.get(m[0], m[0]), text) if isinstance(text, str) else text
        for text in texts
    )


def _apply_signature(graph: ir.Graph, signature: Signature) -> None:
    """Name and shape inputs and outputs; an inner value with such a name is renamed."""
    import onnx_ir as ir

    wanted: list[tuple[ir.Value, TensorSpec]] = [
        *zip(graph.inputs, signature.inputs, strict=True),
        *zip(graph.outputs, signature.outputs, strict=True),
    ]
    names = {spec.name for _, spec in wanted}
    produced = [v for node in ir.traversal.RecursiveGraphIterator(graph) for v in node.outputs]
    for value in [*graph.inputs, *graph.initializers.values(), *produced]:
        if value.name in names:
            value.name = f"{value.name}__inner"
    for value, spec in wanted:
        value.name = spec.name
        value.shape = ir.Shape(list(spec.shape))
