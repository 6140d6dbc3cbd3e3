"""Numbers of a Core ML package: the weight blob, and small arrays in the program itself.

The blob's layout is that of coremltools' MIL storage: a head of 64 bytes, then for each array 64
bytes that say what and where (0xDEADBEEF, type, size, offset), then its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dev.corpus.damage.file_parts import OpenFile, Part, Role
from edgeserve.backends.coreml.spec import DATA, MODEL, WEIGHTS, block_of, operations_of, read_spec
from edgeserve.types.artifact import Artifact

_SENTINEL = 0xDEADBEEF
_TYPES: dict[int, type[np.generic]] = {1: np.float16, 2: np.float32, 3: np.uint8, 4: np.int8}
_OPS = {"conv": "conv", "linear": "linear", "matmul": "linear", "gather": "embedding"}
_INPUTS: dict[str, Role] = {
    "bias": "bias",
    "scale": "scale",
    "zero_point": "zero",
    "offset": "zero",
}


def open_parts(artifact: Artifact, root: Path) -> OpenFile:
    """Arrays of the blob, and scales and zero points that stand in the program."""
    spec = read_spec(artifact, root)
    model = f"{artifact.entry}/{DATA}/{MODEL}"
    blob = f"{artifact.entry}/{DATA}/{WEIGHTS}/weight.bin"
    data = bytearray((root / blob).read_bytes()) if (root / blob).is_file() else bytearray()
    found = sorted(_found(spec, data), key=lambda each: each[0].order)
    parts = [part for part, _ in found]

    def write() -> dict[str, bytes]:
        for part, place in found:
            _store(part, place, data)
        files = {model: spec.SerializeToString(deterministic=True)}
        return files | ({blob: bytes(data)} if data else {})

    return OpenFile(parts, write)


def _store(part: Part, place: Any, data: bytearray) -> None:
    if isinstance(place, int):
        raw = np.ascontiguousarray(part.array).tobytes()
        data[place : place + len(raw)] = raw
    elif place.WhichOneof("value") == "bytes":
        place.bytes.values = np.ascontiguousarray(part.array).tobytes()
    else:
        floats = part.array.dtype.kind == "f"
        values = (place.floats if floats else place.ints).values
        values[:] = part.array.ravel().tolist()


def _found(spec: Any, data: bytearray) -> Iterator[tuple[Part, Any]]:
    seen: set[Any] = set()
    for function in spec.mlProgram.functions.values():
        operations = list(operations_of(block_of(function)))
        uses = _uses(operations)
        for operation in operations:
            for key, value in _values(operation):
                got = _read(value, data)
                if got is None or (isinstance(got[1], int) and got[1] in seen):
                    continue
                if isinstance(got[1], int):
                    seen.add(got[1])
                part = _part(operation, key, got[0], uses)
                if part is not None:
                    yield part, got[1]


def _part(
    operation: Any, key: str, array: np.ndarray, uses: dict[str, tuple[str, str, int]]
) -> Part | None:
    owner = operation.outputs[0].name
    user, argument, order = uses.get(owner, ("", "", -1))
    role = _role(array, operation.type, user, argument if key == "val" else key)
    if role is None:
        return None
    return Part(f"{owner}/{key}", role, array, 0, owner, _OPS.get(user, "other"), order)


def _uses(operations: list[Any]) -> dict[str, tuple[str, str, int]]:
    """For each value the op that reads it, as what, and its place; unpacking is looked through."""
    uses: dict[str, tuple[str, str, int]] = {}
    for place, operation in reversed(list(enumerate(operations))):
        mine = uses.get(operation.outputs[0].name) if operation.outputs else None
        through = operation.type.startswith("constexpr") or operation.type == "cast"
        for argument, held in operation.inputs.items():
            for each in held.arguments:
                if each.name:
                    own = (operation.type, argument, place)
                    uses[each.name] = mine if through and mine and argument != "scale" else own
    return uses


def _values(operation: Any) -> Iterator[tuple[str, Any]]:
    for key, value in operation.attributes.items():
        if key != "name":
            yield key, value
    for key, held in operation.inputs.items():
        for each in held.arguments:
            if not each.name:
                yield key, each.value


def _read(value: Any, data: bytearray) -> tuple[np.ndarray, Any] | None:
    """An array and where to write it: an offset in the blob, or the message that holds it."""
    kind = value.type.tensorType
    shape = tuple(int(d.constant.size) for d in kind.dimensions)
    if value.WhichOneof("value") == "blobFileValue":
        mark, code, size, start = struct.unpack_from("<IIQQ", data, value.blobFileValue.offset)
        if mark != _SENTINEL or code not in _TYPES:
            return None
        array = np.frombuffer(bytes(data[start : start + size]), _TYPES[code])
        return array.reshape(shape).copy(), int(start)
    tensor = value.immediateValue.tensor
    which = tensor.WhichOneof("value")
    if which == "floats" and tensor.floats.values:
        return np.array(tensor.floats.values, np.float32).reshape(shape), tensor
    if which == "bytes" and kind.dataType in (21, 10, 31):  # INT8, FLOAT16, UINT8
        code_type = {21: np.int8, 10: np.float16, 31: np.uint8}[kind.dataType]
        return np.frombuffer(tensor.bytes.values, code_type).reshape(shape).copy(), tensor
    return None


def _role(array: np.ndarray, op: str, user: str, argument: str) -> Role | None:
    if op in ("quantize", "dequantize") or user in ("quantize", "dequantize"):
        return {"scale": "range", "zero_point": "range-zero"}.get(argument)  # type: ignore[return-value]
    if argument in _INPUTS and (op.startswith("constexpr") or user.startswith("constexpr")):
        return _INPUTS[argument]
    if array.ndim >= 2 and min(array.shape[0], array.size // array.shape[0]) > 1:
        return "weight"
    bias = argument == "bias" or (user == "add" and argument in ("x", "y"))
    return "bias" if bias and array.size > 1 else None
