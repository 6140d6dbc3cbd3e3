"""Make a freshly exported ONNX model ours: the signature's names, source ops, and nothing private.

The exporter writes local paths, source lines and class names into every node. What stays is which
op of the exported program a node came from (`SOURCE`) and the module that held it (`MODULE`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgeserve.types.tensors import Shape, Signature, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["MODULE", "SOURCE", "TRACE", "all_nodes", "clean"]

#: Keys of the node metadata that stays.
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
        signature: Whose input and output names and shapes the graph is to bear.
        symbols: Names of the trace's symbols.
        modules: For each source op, the module that held it.
    """
    from edgeserve import __version__

    model.producer_name, model.producer_version = "edgeserve", __version__
    model.domain, model.doc_string, model.graph.doc_string = None, None, None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for node in all_nodes(model):
        _keep_source_metadata(node, modules)
    for value in _values(model):
        value.metadata_props.clear()
        value.doc_string = None
        _name_dims(value, symbols)
    _apply_signature(model.graph, signature)


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of a model, those of inner graphs and functions too."""
    import onnx_ir as ir

    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    yield from model.graph.initializers.values()
    for node in all_nodes(model):
        yield from node.outputs


def _keep_source_metadata(node: ir.Node, modules: Mapping[str, str | None]) -> None:
    source = node.metadata_props.get(TRACE, "")
    node.metadata_props.clear()
    node.doc_string = None
    if source in modules:
        node.metadata_props[SOURCE] = source
        if module := modules[source]:
            node.metadata_props[MODULE] = module


def _name_dims(value: ir.Value, symbols: Mapping[str, str]) -> None:
    """Call the trace's symbols by the user's names, also inside expressions."""
    import onnx_ir as ir

    if value.shape is None:
        return
    dims: list[int | str | None] = []
    for dim in value.shape:
        text = dim if isinstance(dim, int) else dim.value
        dims.append(
            _SYMBOL.sub(lambda m: symbols.get(m[0], m[0]), text) if isinstance(text, str) else text
        )
    value.shape = ir.Shape(dims)


def _apply_signature(graph: ir.Graph, signature: Signature) -> None:
    """Give inputs and outputs their names and shapes; an inner value in the way gives way."""
    wanted: list[tuple[ir.Value, TensorSpec]] = [
        *zip(graph.inputs, signature.inputs, strict=True),
        *zip(graph.outputs, signature.outputs, strict=True),
    ]
    names = {spec.name for _, spec in wanted}
    for value in [*graph.inputs, *graph.initializers.values(), *_produced_values(graph)]:
        if value.name in names:
            value.name = f"{value.name}__inner"
    for value, spec in wanted:
        value.name = spec.name
        value.shape = _shape(spec.shape)


def _produced_values(graph: ir.Graph) -> Iterator[ir.Value]:
    import onnx_ir as ir

    for node in ir.traversal.RecursiveGraphIterator(graph):
        yield from node.outputs


def _shape(shape: Shape) -> ir.Shape:
    import onnx_ir as ir

    return ir.Shape(list(shape))
