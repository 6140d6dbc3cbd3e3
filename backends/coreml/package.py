"""Writing a ``.mlpackage`` so that the same model gives the same bytes.

coremltools names the items of a package by random numbers, notes the day, and serialises maps in
any order. Here items are named by what they hold, and nothing else is written.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from edgeserve.backends.coreml.spec import DATA, MODEL, WEIGHTS
from edgeserve.files import LOCAL, Fs, describe, sha256_bytes, sha256_file
from edgeserve.types.artifact import FileEntry

__all__ = ["ENTRY", "write_package"]

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
