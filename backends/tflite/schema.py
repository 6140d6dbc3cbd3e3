"""A TFLite file as objects: read, looked into and written back.

The classes are those generated from the format's schema, which LiteRT ships; they come without
types. Weights may lie inside a file's tables or behind them: reading brings them in.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeserve.backends.checks import unreadable
from edgeserve.errors import ConvertError
from edgeserve.files import describe, write_atomic
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.tensors import IO
from edgeserve.user_lines import one_line

#: Name of an artifact's file.
MODEL = "model.tflite"

_MAGIC = b"TFL3"
_READABLE = "a TFLite model"

#: Bytes between which weights start: what vector instructions load at once.
_ALIGNMENT = 16


def check_head(path: Path) -> None:
    """Reject a file of another format, on which an engine would crash.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    with path.open("rb") as file:
        head, size = file.read(8), path.stat().st_size
    if len(head) < 8 or head[4:] != _MAGIC or not 8 <= struct.unpack("<I", head[:4])[0] < size - 4:
        raise unreadable(
            f"file {path.resolve().name!r}", _READABLE, "a file with a different header"
        )


def read_model(path: Path) -> Any:
    """Read a file into a ``ModelT``.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    check_head(path)
    try:
        return read_bytes(path.read_bytes())
    except Exception as error:  # the generated readers raise many kinds
        raise unreadable(f"file {path.resolve().name!r}", _READABLE, one_line(error)) from error


def read_bytes(data: bytes) -> Any:
    """Read a file's bytes into a ``ModelT``; any exception is the caller's."""
    import numpy as np
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(data)
    for buffer in model.buffers:
        if buffer.data is not None:  # anything but arrays would be written element by element
            buffer.data = np.frombuffer(buffer.data, np.uint8)
    return model


def write_model(model: Any) -> bytes:
    """A ``ModelT`` as bytes, the same every time.

    Raises:
        ConvertError: EDGE-CONVERT-043.
    """
    import flatbuffers
    from flatbuffers.builder import BuilderSizeError

    class Aligned(flatbuffers.Builder):  # type: ignore[misc]
        """A builder that aligns weights, which the generated writers do not."""

        def StartVector(self, size: int, count: int, alignment: int) -> int:  # noqa: N802
            wide = max(alignment, _ALIGNMENT) if size == 1 else alignment
            return int(super().StartVector(size, count, wide))

    builder = Aligned(1 << 20)
    try:
        builder.Finish(model.Pack(builder), file_identifier=_MAGIC)
    except BuilderSizeError as error:
        wanted = "less than 2 GB"
        got = "a larger model than the format can hold"
        hint = "convert to onnx, or make another precision or fewer lengths"
        raise ConvertError("EDGE-CONVERT-043", MODEL, wanted=wanted, got=got, hint=hint) from error
    return bytes(builder.Output())


def write_artifact(
    data: bytes, out: Path, buckets: tuple[IO, ...], provenance: Provenance, precision: str = "fp32"
) -> Artifact:
    """Write a file and describe it; ``buckets`` are its signatures, smallest first."""
    write_atomic(out / MODEL, data)
    files, several = (describe(out, MODEL),), buckets if len(buckets) > 1 else ()
    return Artifact("tflite", precision, MODEL, files, buckets[-1], several, provenance)


def tensors_of(model: Any) -> Iterator[tuple[Any, Any]]:
    """Every tensor with the graph that holds it."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            yield graph, tensor


def op_type(model: Any, op: Any) -> str:
    """The operator's name in the schema ("CONV_2D"), or the name of a custom one."""
    code = model.operatorCodes[op.opcodeIndex]
    if code.customCode:
        return str(code.customCode.decode())
    return _words("BuiltinOperator")[max(code.builtinCode, code.deprecatedBuiltinCode)]


def tensor_dtype(tensor: Any) -> str:
    """The tensor's dtype in our words ("float32", "int4")."""
    return _words("TensorType")[tensor.type].lower()


@functools.cache
def _words(enum: str) -> dict[int, str]:
    from ai_edge_litert import schema_py_generated

    values = vars(getattr(schema_py_generated, enum))
    return {value: word for word, value in values.items() if isinstance(value, int)}


def inner_graphs(op: Any) -> list[int]:
    """Indexes of the graphs that an op holds: branches, loops, decompositions."""
    options = [held for held in (op.builtinOptions, op.builtinOptions2) if held is not None]
    return [
        int(value)
        for held in options
        for name, value in vars(held).items()
        if name.lower().endswith("subgraphindex") and value >= 0
    ]
