"""Writing ``model.onnx`` and holding what was written against ONNX's own rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.backends.onnx.inspect import io_of, read
from edgeserve.backends.torch.blame import one_line
from edgeserve.errors import ConvertError
from edgeserve.files import LOCAL, Fs, describe, write_atomic

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgeserve.types.artifact import FileEntry
    from edgeserve.types.tensors import TensorSpec

__all__ = ["DATA", "EXTERNAL_ABOVE", "MODEL", "check", "listed", "save"]

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


def listed(out: Path) -> tuple[FileEntry, ...]:
    """The files that `save` wrote."""
    data = [DATA] if (out / DATA).exists() else []
    return tuple(describe(out, name) for name in [MODEL, *data])


def check(out: Path, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
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
