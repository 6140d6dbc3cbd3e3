"""From an exported program to ``model.onnx``, through ``torch.onnx.export(dynamo=True)``.

The file bears the signature's names, only the metadata that says which source op a node came from,
and nothing of the machine it was made on.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from edgeserve.backends.onnx import OPSET
from edgeserve.backends.onnx.clean import clean
from edgeserve.backends.onnx.inspect import io_of
from edgeserve.backends.onnx.refusals import refusal
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.blame import one_line
from edgeserve.backends.torch.inspect import module_path
from edgeserve.backends.torch.program import load_program, log_warnings
from edgeserve.errors import ConvertError
from edgeserve.files import LOCAL, Fs, describe, write_atomic
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported

__all__ = ["EXTERNAL_ABOVE", "export_onnx", "save"]

#: Bytes of weights above which they lie beside the file: a protobuf ends at 2 GB.
EXTERNAL_ABOVE = 1_500_000_000

_MODEL, _DATA = "model.onnx", "model.onnx.data"


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
    modules = {node.name: module_path(node) for node in program.graph.nodes}
    traces = _mark(program)
    try:
        with log_warnings():
            made = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # the converter raises many kinds
        raise refusal(error, program, traces, Path(exported.source.folder)) from error
    assert made is not None  # torch returns None only without dynamo
    symbols = _symbols(program, exported)
    clean(made.model, exported.signature, symbols, modules)
    save(made.model, out)
    _check(out, exported)
    data = [_DATA] if (out / _DATA).exists() else []
    return Artifact(
        format="onnx",
        precision="fp32",
        entry=_MODEL,
        files=tuple(describe(out, name) for name in [_MODEL, *data]),
        io=io_of(ir.load(out / _MODEL)),
        provenance=Provenance(route=route, tools=tools),
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


def save(model: ir.Model, out: Path, external_above: int = EXTERNAL_ABOVE, fs: Fs = LOCAL) -> None:
    """Write ``model.onnx``, the same bytes every time; too many weights lie beside it."""
    weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    if weights > external_above:
        ir.save(model, out / _MODEL, external_data=_DATA)
        return
    write_atomic(out / _MODEL, ir.to_proto(model).SerializeToString(deterministic=True), fs)


def _check(out: Path, exported: Exported) -> None:
    """Hold what was written against ONNX's own rules and against the signature."""
    try:
        onnx.checker.check_model(str(out / _MODEL), full_check=True)
    except Exception as error:  # ValidationError, InferenceError
        raise _invalid("a file that onnx.checker accepts", one_line(error)) from error
    io, signature = io_of(ir.load(out / _MODEL)), exported.signature
    if io.inputs != signature.inputs or io.outputs != signature.outputs:
        raise _invalid(f"{[*signature.inputs, *signature.outputs]}", f"{[*io.inputs, *io.outputs]}")


def _invalid(wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-023", _MODEL, wanted=wanted, got=got,
        hint="the converter is at fault, not the model: report it with `edgeserve doctor --json`",
    )  # fmt: skip
