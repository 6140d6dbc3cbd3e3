"""From an exported program to ``model.onnx``, through ``torch.onnx.export(dynamo=True)``.

The file bears the signature's names, only the metadata that says which source op a node came from,
and nothing of the machine it was made on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from edgeserve.backends.onnx import OPSET
from edgeserve.backends.onnx.clean import TRACE, all_nodes, clean
from edgeserve.backends.onnx.inspect import io_of
from edgeserve.backends.onnx.refusals import refusal
from edgeserve.backends.onnx.write import EXTERNAL_ABOVE, MODEL, check, listed, save
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.decompositions import take_apart
from edgeserve.backends.torch.inspect import module_path
from edgeserve.backends.torch.program import load_program, log_warnings
from edgeserve.backends.torch.rewrites import (
    apply_in_place,
    blank_blind_rows,
    copy_contiguous,
    drop_asserts,
    drop_idle,
    keep_epsilons,
    plain_names,
    pool_adaptively,
    spell_divisor,
)
from edgeserve.backends.torch.rules_special import SPECIAL_RULES
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported

__all__ = ["EXTERNAL_ABOVE", "export_onnx", "save"]

_ATEN = torch.ops.aten

_REWRITES = (
    drop_asserts,
    drop_idle,
    plain_names,
    spell_divisor,
    pool_adaptively,
    copy_contiguous,
    blank_blind_rows,
    keep_epsilons,
)

#: Operators with a rule of ours that `torch.onnx.export` has no translation for.
_UNKNOWN = {
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
    return target not in _UNKNOWN


def export_onnx(
    exported: Exported, root: Path, out: Path, route: str, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.onnx``.

    Raises:
        UnsupportedOp: EDGE-OP-001 no translation for an op, -002 an op that cannot be used in this
        way.
        ConvertError: EDGE-CONVERT-020 the converter failed, -023 the file it made is not valid.
    """
    program = take_apart(load_program(reference_artifact(exported), root), _is_known)
    modules = {node.name: module_path(node) for node in program.graph.nodes}
    traces = _mark(program)
    rewrites = apply_in_place(program, _REWRITES)
    try:
        with log_warnings():
            made = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # the converter raises many kinds
        raise refusal(error, program, traces, Path(exported.source.folder)) from error
    assert made is not None  # torch returns None only without dynamo
    _name_folded(made.model, program)
    symbols = _symbols(program, exported)
    clean(made.model, exported.signature, symbols, modules)
    save(made.model, out)
    check(out, exported.signature.inputs, exported.signature.outputs)
    return Artifact(
        format="onnx",
        precision="fp32",
        entry=MODEL,
        files=listed(out),
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


def _name_folded(model: ir.Model, program: ExportedProgram) -> None:
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
