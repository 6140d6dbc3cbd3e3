"""Writing a ``.mlpackage``, the same bytes for the same model; merging and splitting them.

coremltools names the items of a package by random numbers, records the date, and serializes maps
in any order. Here items are named by their content, and nothing else is written. Packages of one
function each become one package of several functions (multifunction), whose weights are stored
once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeserve.backends.coreml.coremltools_import import (
    coremltools,
    remove_weight_folders,
    validate_once,
)
from edgeserve.backends.coreml.spec import DATA, MODEL, WEIGHTS
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.files import LOCAL, Fs, describe, sha256_bytes, sha256_file
from edgeserve.types.artifact import FileEntry

#: The artifact's entry: a folder.
ENTRY = "model.mlpackage"

_AUTHOR = "com.apple.CoreML"
_BLOB = "weight.bin"


def write_package(
    spec: Any, weights: Path | None, out: Path, fs: Fs = LOCAL
) -> tuple[FileEntry, ...]:
    """Write ``out/model.mlpackage``.

    Args:
        spec: The ``Model`` message.
        weights: The folder that holds ``weight.bin``; None, or a folder without it, where all
            weights stand in the message.
        out: An empty folder.
        fs: What writes.

    Returns:
        The entries of its files, sorted.
    """
    data = spec.SerializeToString(deterministic=True)
    blob = weights / _BLOB if weights is not None and (weights / _BLOB).is_file() else None
    items = {_identifier(MODEL, sha256_bytes(data)): _item(MODEL, "CoreML Model Specification")}
    names = [f"{ENTRY}/Manifest.json", f"{ENTRY}/{DATA}/{MODEL}"]
    fs.mkdir(out / ENTRY / DATA / WEIGHTS if blob else (out / ENTRY / DATA / MODEL).parent)
    fs.write(out / ENTRY / DATA / MODEL, data)
    if blob is not None:
        fs.copy(blob, out / ENTRY / DATA / WEIGHTS / _BLOB)
        items[_identifier(WEIGHTS, sha256_file(blob))] = _item(WEIGHTS, "CoreML Model Weights")
        names.append(f"{ENTRY}/{DATA}/{WEIGHTS}/{_BLOB}")
    fs.write(
        out / ENTRY / "Manifest.json", _manifest(items, _identifier(MODEL, sha256_bytes(data)))
    )
    return tuple(describe(out, name) for name in sorted(names))


def _identifier(path: str, digest: str) -> str:
    """A UUID made of an item's path and content (RFC 9562, version 8)."""
    mixed = bytearray(bytes.fromhex(sha256_bytes(f"{path} {digest}".encode()))[:16])
    mixed[6] = mixed[6] & 0x0F | 0x80
    mixed[8] = mixed[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(mixed))).upper()


def _item(path: str, description: str) -> dict[str, str]:
    name = path.rpartition("/")[2]
    return {"author": _AUTHOR, "description": description, "name": name, "path": path}


def _manifest(items: dict[str, dict[str, str]], root: str) -> bytes:
    manifest = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": dict(sorted(items.items())),
        "rootModelIdentifier": root,
    }
    return (json.dumps(manifest, indent=4, sort_keys=True) + "\n").encode()


def merge_functions(parts: Mapping[str, Path], stage: Path) -> tuple[Any, Path]:
    """Make one package of several; the last function is its default.

    Args:
        parts: The packages by the names that their functions are to have.
        stage: An existing folder for what is made on the way.

    Returns:
        The ``Model`` message and the folder of its weights, which lies in ``stage``.
    """
    utils = coremltools().utils
    plan = utils.MultiFunctionDescriptor()
    for name, folder in parts.items():
        plan.add_function(str(folder), src_function_name="main", target_function_name=name)
        plan.default_function_name = name
    merged = stage / "merged.mlpackage"
    with log_warnings(), validate_once(), remove_weight_folders():
        utils.save_multifunction(plan, str(merged))
    return read_package(merged)


def split_functions(spec: Any, weights: Path, stage: Path) -> dict[str, Path]:
    """The opposite of `merge_functions`: a package for each function, its function called "main".

    Args:
        spec: A ``Model`` message with several functions.
        weights: The folder of its weights.
        stage: An existing folder to write into.
    """
    made = {}
    for description in spec.description.functions:
        alone = type(spec)()
        alone.CopyFrom(spec)
        alone.description.Clear()
        alone.description.input.extend(description.input)
        alone.description.output.extend(description.output)
        functions = alone.mlProgram.functions
        kept = type(functions[description.name])()
        kept.CopyFrom(functions[description.name])
        functions.clear()
        functions["main"].CopyFrom(kept)
        folder = stage / description.name
        folder.mkdir()
        write_package(alone, weights, folder)
        made[description.name] = next(folder.iterdir())
    return made


def read_package(folder: Path) -> tuple[Any, Path]:
    """The ``Model`` message of a package that coremltools or edgeserve has just written."""
    spec = coremltools().proto.Model_pb2.Model()
    spec.ParseFromString((folder / DATA / MODEL).read_bytes())
    return spec, folder / DATA / WEIGHTS
