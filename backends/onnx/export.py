"""From an exported program to ``model.onnx``, through ``torch.onnx.export(dynamo=True)``.

The file bears the signature's names, only the metadata that says which source op a node came
from, and nothing of the machine it was made on. Where the converter fails, `convert_error` names
the op, the user's own line, and what can be done about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from edgeserve.backends.onnx import OPSET
from edgeserve.backends.onnx.clean import TRACE, all_nodes, clean
from edgeserve.backends.onnx.inspect import io_of
from edgeserve.backends.onnx.model_file import (
    EXTERNAL_ABOVE,
    MODEL,
    check_model,
    file_entries,
    save,
)
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.decompositions.decompose import decompose_unsupported
from edgeserve.backends.torch.decompositions.table import SPECIAL_RULES
from edgeserve.backends.torch.diagnose.unsupported_op import RefusedOp, find_checked_op, op_hint
from edgeserve.backends.torch.passes import (
    apply_passes_in_place,
    canonicalize_ops,
    copy_contiguous,
    lower_adaptive_pool,
    lower_divisor,
    preserve_tiny_constants,
    remove_asserts,
    remove_noops,
    zero_fully_masked_rows,
)
from edgeserve.backends.torch.program.inspect import module_path
from edgeserve.backends.torch.program.io import load_program, log_warnings
from edgeserve.errors import ConvertError, EdgeError, UnsupportedOp
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.user_lines import exception_chain, line_of_text, one_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["EXTERNAL_ABOVE", "convert_error", "export_onnx", "save"]


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
        EDGE-OP-001 or EDGE-OP-002 where an op is to blame, else EDGE-CONVERT-020.
    """
    chain = list(exception_chain(error))
    source = _source(chain, traces)
    if source is None and "token" in str(chain[-1]).lower():
        source = find_checked_op((n.name, str(n.target)) for n in program.graph.nodes)
    if source is None:
        return ConvertError(
            "EDGE-CONVERT-020",
            "torch.onnx.export",
            wanted="a model",
            got=one_line(chain[-1]),
            hint="the job's log holds the converter's whole message; --bisect finds the part",
        )
    return _unsupported_op(_culprit(source, program, traces, folder), chain)


def _unsupported_op(found: RefusedOp, chain: list[BaseException]) -> UnsupportedOp:
    if any(words in str(part) for part in chain for words in _NO_TRANSLATION):
        return UnsupportedOp(
            "EDGE-OP-001",
            found.thing,
            wanted="an op that ONNX can express",
            got="one without a translation",
            source_line=found.line,
            hint=op_hint(
                found.operator,
                "onnx",
                "write that line with other operators, or do that step outside the model",
            ),
        )
    return UnsupportedOp(
        "EDGE-OP-002",
        found.thing,
        wanted="a use of it that ONNX can express",
        got=one_line(chain[-1]),
        source_line=found.line,
        hint=op_hint(
            found.operator,
            "onnx",
            "write that line in another way: other arguments, fixed sizes, or simpler operators",
        ),
    )


def _culprit(
    source: str, program: ExportedProgram, traces: Mapping[str, str], folder: Path
) -> RefusedOp:
    from edgeserve.backends.torch.program.inspect import module_path

    node = next(node for node in program.graph.nodes if node.name == source)
    return RefusedOp(str(node.target), module_path(node), line_of_text(traces[source], folder))


def _source(chain: list[BaseException], traces: Mapping[str, str]) -> str | None:
    """The source op being converted: the converter's frames hold the fx node they worked on."""
    found = None
    for error in chain:
        trace = error.__traceback__
        while trace is not None:
            for name in ("node", "n"):
                meta = getattr(trace.tb_frame.f_locals.get(name), "meta", None)
                source = meta.get("stack_trace") if isinstance(meta, dict) else None
                if source in traces:
                    found = str(source)
            trace = trace.tb_next
        if found is not None and traces.get(found):
            return found
    return found


_ATEN = torch.ops.aten

_PASSES = (
    remove_asserts,
    remove_noops,
    canonicalize_ops,
    lower_divisor,
    lower_adaptive_pool,
    copy_contiguous,
    zero_fully_masked_rows,
    preserve_tiny_constants,
)

#: Operators with a rule of ours that `torch.onnx.export` has no translation for.
_UNTRANSLATED = {
    *SPECIAL_RULES,
    _ATEN.cdist.default,
    _ATEN.copysign.Scalar,
    _ATEN.copysign.Tensor,
    _ATEN.cummax.default,
    _ATEN.cummin.default,
    _ATEN.cumprod.default,
    _ATEN.erfinv.default,
    _ATEN.fmax.default,
    _ATEN.fmin.default,
    _ATEN.hypot.default,
    _ATEN.istft.default,
    _ATEN.kthvalue.default,
    _ATEN.linalg_inv.default,
    _ATEN.linalg_inv_ex.default,
    _ATEN.median.dim,
    _ATEN.rrelu.default,
    _ATEN.searchsorted.Tensor,
}


def _is_known(target: Any) -> bool:
    return target not in _UNTRANSLATED


def export_onnx(
    exported: Exported, root: Path, out: Path, route: str, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.onnx``.

    Raises:
        UnsupportedOp: EDGE-OP-001 no translation for an op, -002 an op that cannot be used in this
        way.
        ConvertError: EDGE-CONVERT-020 the converter failed, -023 the file it made is not valid.
    """
    program = decompose_unsupported(load_program(reference_artifact(exported), root), _is_known)
    modules = {node.name: module_path(node) for node in program.graph.nodes}
    traces = _mark(program)
    rewrites = apply_passes_in_place(program, _PASSES)
    try:
        with log_warnings():
            made = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # the converter raises many kinds
        raise convert_error(error, program, traces, Path(exported.source.folder)) from error
    assert made is not None  # torch returns None only without dynamo
    _restore_folded_names(made.model, program)
    symbols = _symbols(program, exported)
    clean(made.model, exported.signature, symbols, modules)
    save(made.model, out)
    check_model(out, exported.signature.inputs, exported.signature.outputs)
    return Artifact(
        format="onnx",
        precision="fp32",
        entry=MODEL,
        files=file_entries(out),
        io=io_of(ir.load(out / MODEL)),
        provenance=Provenance(route=route, rewrites=rewrites, tools=tools),
    )


def _mark(program: ExportedProgram) -> dict[str, str]:
    """Put each node's name where its stack trace was, and return the traces by name.

    The converter decomposes and renames nodes but hands stack traces down, so every ONNX node, and
    every node that it fails on, leads back to the source op it came from.
    """
    traces = {}
    for node in program.graph.nodes:
        traces[node.name] = str(node.meta.get("stack_trace") or "")
        node.meta["stack_trace"] = node.name
    return traces


def _restore_folded_names(model: ir.Model, program: ExportedProgram) -> None:
    """Say "convolution" of one that a batch norm was folded into; the converter says the norm.

    Users name the layer with the weights when they want it treated in another way.
    """
    layers = {
        node.name: node.args[0].name
        for node in program.graph.nodes
        if node.op == "call_function"  # a weight may be called so too
        and "batch_norm" in str(node.target)
        and isinstance(node.args[0], torch.fx.Node)
    }
    for node in all_nodes(model):
        source = node.metadata_props.get(TRACE, "")
        if source in layers and node.op_type in ("Conv", "ConvTranspose", "Gemm"):
            node.metadata_props[TRACE] = layers[source]


def _symbols(program: ExportedProgram, exported: Exported) -> dict[str, str]:
    """The trace's symbols and what the signature calls them."""
    nodes = {node.name: node for node in program.graph.nodes}
    names: dict[str, str] = {}
    for node, spec in zip(
        program.graph_signature.user_inputs, exported.signature.inputs, strict=True
    ):
        for size, dim in zip(nodes[str(node)].meta["val"].shape, spec.shape, strict=True):
            if isinstance(dim, str):
                names.setdefault(str(size), dim)
    return names
