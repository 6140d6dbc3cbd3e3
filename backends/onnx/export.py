"""From an exported program to ``model.onnx``, through ``torch.onnx.export(dynamo=True)``.

The file has the signature's names, only the metadata that maps nodes to source ops, and nothing
specific to the machine. If the converter fails, `convert_error` names the op, the user's own line
and a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from edgeserve.backends.onnx import OPSET
from edgeserve.backends.onnx.clean import TRACE, all_nodes, clean
from edgeserve.backends.onnx.model_file import save, write_artifact
from edgeserve.backends.onnx.optimizer_rules import register_rules
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.decompositions.decompose import decompose_unsupported
from edgeserve.backends.torch.decompositions.table import SPECIAL_RULES
from edgeserve.backends.torch.diagnose.unsupported_op import (
    RefusedOp,
    converter_error,
    find_checked_op,
    mark_nodes,
    node_marks,
)
from edgeserve.backends.torch.passes import (
    apply_passes_in_place,
    canonicalize,
    lower_arithmetic,
    lower_division,
    lower_narrow_dtypes,
    lower_pooling,
    promote_dtypes,
)
from edgeserve.backends.torch.passes.add_batch_axis import add_batch_axis
from edgeserve.backends.torch.passes.add_scalar_axis import add_scalar_axis
from edgeserve.backends.torch.passes.fx_utils import overloads
from edgeserve.backends.torch.passes.lower_attention_rank import lower_attention_rank
from edgeserve.backends.torch.passes.zero_fully_masked_rows import zero_fully_masked_rows
from edgeserve.backends.torch.program.inspect import module_path
from edgeserve.backends.torch.program.io import load_program, log_warnings
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.user_lines import exception_chain, line_of_text, one_line

__all__ = ["convert_error", "export_onnx", "save"]


_NO_TRANSLATION = ("No ONNX function found", "No decompositions registered")


def convert_error(
    error: Exception, program: ExportedProgram, traces: Mapping[str, str], folder: Path
) -> EdgeError:
    """The coded error for an exception of ``torch.onnx.export``.

    Args:
        error: As caught.
        program: What was converted; the stack trace of each node is the name of a source op.
        traces: The real stack traces, by source op.
        folder: The user's folder.

    Returns:
        EDGE-OP-001 or EDGE-OP-002 where an op is the cause, else EDGE-CONVERT-020.
    """
    chain = list(exception_chain(error))
    source = _source(chain, traces)
    if source is None and "token" in str(chain[-1]).lower():
        source = find_checked_op((n.name, str(n.target)) for n in program.graph.nodes)
    if source is None:
        return converter_error("EDGE-CONVERT-020", "torch.onnx.export", one_line(chain[-1]))
    node = next(  # a pass may have replaced the node itself
        node for node in program.graph.nodes if source in (node.name, node.meta.get("stack_trace"))
    )
    line = line_of_text(traces[source], folder)
    unknown = any(words in str(part) for part in chain for words in _NO_TRANSLATION)
    return RefusedOp(str(node.target), module_path(node), line).unsupported(
        ("EDGE-OP-001", "EDGE-OP-002"),
        "onnx",
        None if unknown else one_line(chain[-1]),
        "other arguments, fixed sizes, or simpler operators",
    )


def _source(chain: list[BaseException], traces: Mapping[str, str]) -> str | None:
    """The source op being converted: the converter's frames hold the fx node they worked on."""
    source = None
    for error in chain:
        for mark in node_marks(error):
            source = mark if mark in traces else source
        if source is not None and traces.get(source):
            break
    return source


_PASSES = (
    canonicalize.remove_asserts,
    canonicalize.remove_noops,
    canonicalize.canonicalize_ops,
    canonicalize.list_all_axes,
    promote_dtypes.promote_operands,
    lower_narrow_dtypes.lower_narrow_dtypes,
    lower_arithmetic.lower_integer_powers,
    lower_division.lower_division_by_fmod,
    lower_pooling.lower_divisor,
    lower_pooling.drop_ceil_mode,
    add_batch_axis,
    lower_pooling.lower_adaptive_pool,
    canonicalize.copy_contiguous,
    zero_fully_masked_rows,
    lower_attention_rank,
    lower_arithmetic.preserve_tiny_constants,
)

#: Operators with a rule of edgeserve that `torch.onnx.export` does not translate, or translates
#: without the sign of a zero.
_UNTRANSLATED = set(SPECIAL_RULES) | overloads(
    "angle atan2 cdist copysign.Scalar copysign.Tensor cummax cummin cumprod diagonal_scatter "
    "erfinv fmax fmin hypot index_fill.int_Scalar index_fill.int_Tensor index_reduce istft "
    "kthvalue linalg_inv linalg_inv_ex median median.dim put rrelu scatter.reduce scatter.src "
    "scatter.value_reduce scatter_add scatter_reduce.two "
    "searchsorted.Tensor signbit"
)

#: Operators whose translation makes ONNX sequences, which other precisions cannot be derived from.
_BY_SEQUENCES = overloads(
    "atleast_1d.Sequence atleast_2d.Sequence atleast_3d.Sequence column_stack dstack embedding_bag "
    "embedding_bag.padding_idx hstack vstack"
)

_REPLACED = _UNTRANSLATED | _BY_SEQUENCES


def export_onnx(
    exported: Exported, root: Path, out: Path, route: str, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.onnx``.

    Raises:
        UnsupportedOp: EDGE-OP-001 no translation for an op, -002 an op that cannot be used in this
        way.
        ConvertError: EDGE-CONVERT-020 the converter failed, -023 the file it made is not valid.
    """
    program = load_program(reference_artifact(exported), root)
    folder = Path(exported.source.folder)
    rewrites = apply_passes_in_place(program, (add_scalar_axis,))
    try:
        with log_warnings():
            plain = decompose_unsupported(program, lambda target: target not in _REPLACED)
    except Exception as error:  # a rule may not hold for some use
        raise convert_error(error, program, mark_nodes(program), folder) from error
    program = plain
    modules = {node.name: module_path(node) for node in program.graph.nodes}
    traces = mark_nodes(program)
    rewrites += apply_passes_in_place(program, _PASSES)
    register_rules()
    try:
        with log_warnings():
            made = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # the converter raises many kinds
        raise convert_error(error, program, traces, folder) from error
    assert made is not None  # torch returns None only without dynamo
    _restore_folded_names(made.model, program)
    _restore_constants(made.model.graph)
    symbols = _symbols(program, exported)
    clean(made.model, exported.signature, symbols, modules)
    provenance = Provenance(route=route, rewrites=rewrites, tools=tools)
    return write_artifact(made.model, out, exported.signature, provenance, "fp32")


def _restore_folded_names(model: ir.Model, program: ExportedProgram) -> None:
    """Name a convolution with a folded batch norm as the source; the converter names the norm.

    Users name the layer with the weights in ``keep_float``.
    """
    layers = {
        node.name: node.args[0].name
        for node in program.graph.nodes
        if node.op == "call_function"  # a weight may have such a name too
        and "batch_norm" in str(node.target)
        and isinstance(node.args[0], torch.fx.Node)
    }
    for node in all_nodes(model):
        source = node.metadata_props.get(TRACE, "")
        if source in layers and node.op_type in ("Conv", "ConvTranspose", "Gemm"):
            node.metadata_props[TRACE] = layers[source]


def _restore_constants(graph: ir.Graph) -> None:
    """Store constants that nodes read and the graph has lost, under names of their own.

    onnxscript's rules for two bounds name the constants after the value that is bounded: the
    second pair replaces the first.
    """
    for node in graph:
        for value in node.inputs:
            if value is None or value.const_value is None or value.producer() is not None:
                continue
            if graph.initializers.get(str(value.name)) is not value:
                value.name = f"{value.name}_of_{node.name}"
                graph.initializers.add(value)


def _symbols(program: ExportedProgram, exported: Exported) -> dict[str, str]:
    """The signature's names of the trace's symbols."""
    nodes = {node.name: node for node in program.graph.nodes}
    names: dict[str, str] = {}
    for node, spec in zip(
        program.graph_signature.user_inputs, exported.signature.inputs, strict=True
    ):
        for size, dim in zip(nodes[str(node)].meta["val"].shape, spec.shape, strict=True):
            if isinstance(dim, str):
                names.setdefault(str(size), dim)
    return names
