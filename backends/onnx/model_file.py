"""Writing ``model.onnx`` by ONNX's own rules, and importing a source that is an ONNX file.

An import does not change what the file computes. It removes documentation, tool names and
properties of every kind, which may contain paths and names of people. It keeps the graph with its
names; every node has its own name as its source op, since the source is this graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.backends.onnx.clean import clear_metadata
from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.versions import versions
from edgeserve.errors import ConvertError
from edgeserve.files import LOCAL, Fs, describe, write_atomic
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO, Signature
from edgeserve.user_lines import one_line

if TYPE_CHECKING:
    import onnx_ir as ir


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


def write_artifact(
    model: ir.Model, out: Path, expected: Signature | IO, provenance: Provenance, precision: str
) -> Artifact:
    """Write a model, check it by ONNX's rules, compare its inputs and outputs, and describe it.

    Raises:
        ConvertError: EDGE-CONVERT-023.
    """
    import onnx

    save(model, out)
    try:
        onnx.checker.check_model(str(out / MODEL), full_check=True)
    except Exception as error:  # ValidationError, InferenceError
        raise _invalid("a file that onnx.checker accepts", one_line(error)) from error
    io = io_of(read(out / MODEL))
    if io.inputs != expected.inputs or io.outputs != expected.outputs:
        wanted = f"{[*expected.inputs, *expected.outputs]}"
        raise _invalid(wanted, f"{[*io.inputs, *io.outputs]}")
    data = [DATA] if (out / DATA).exists() else []
    files = tuple(describe(out, name) for name in [MODEL, *data])
    return Artifact("onnx", precision, MODEL, files, io, provenance=provenance)


def _invalid(wanted: str, got: str) -> ConvertError:
    hint = "this is a bug in the converter: report it with `edgeserve doctor --json`"
    return ConvertError("EDGE-CONVERT-023", MODEL, wanted=wanted, got=got, hint=hint)


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
    provenance = Provenance(route="copy", tools=versions("onnx", "onnx-ir"))
    return write_artifact(model, out, exported.signature, provenance, "fp32")


def _clean(model: ir.Model, signature: Signature) -> None:
    """Clear the metadata, remove weights from the inputs, set shapes as the signature has them."""
    import onnx_ir as ir

    model.ir_version = max(model.ir_version, _MIN_IR_VERSION)
    clear_metadata(model, own_sources=True)
    graph = model.graph
    graph.name = "main"
    for value in [value for value in graph.inputs if value.name in graph.initializers]:
        graph.inputs.remove(value)  # the old declaration of weights, which hides them from engines
    for values, specs in ((graph.inputs, signature.inputs), (graph.outputs, signature.outputs)):
        for value, spec in zip(values, specs, strict=True):
            value.shape = ir.Shape(list(spec.shape))
