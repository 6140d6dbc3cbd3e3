"""Assets: files that a model's processing reads at run time, such as a tokenizer.

In a factory's options they are given by name and path; a step then says the name, and the size and
hash that make it part of the model's identity are filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgeserve.files import LOCAL, Fs, describe, sha256_bytes, write_atomic
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import Processing

__all__ = ["FOLDER", "named_entries", "read_assets", "unnamed", "write_assets"]

#: Folder of all assets, in exports, workspaces and bundles.
FOLDER = "assets/"


def read_assets(value: object) -> dict[str, bytes]:
    """Assets by name, from a dict of names and paths (or bytes).

    Raises:
        ValueError: it is no such dict, or a name is not ``assets/...``.
        OSError: a file cannot be read.
    """
    if not isinstance(value, Mapping):
        raise ValueError(type(value).__name__)
    read: dict[str, bytes] = {}
    for name, held in value.items():
        data = held if isinstance(held, bytes) else _read(held)
        entry = _entry(str(name), data)  # refuses names that no bundle may hold
        if not entry.path.startswith(FOLDER):
            raise ValueError(f"the name {name!r}, which does not start with {FOLDER}")
        read[entry.path] = data
    return read


def _read(path: object) -> bytes:
    if not isinstance(path, str | Path):
        raise ValueError(f"a {type(path).__name__} in a path's place")
    return Path(path).read_bytes()


def _entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(path=name, size=len(data), sha256=sha256_bytes(data))


def named_entries(processing: Any, assets: Mapping[str, bytes]) -> Any:
    """A processing as a dict, with names of assets replaced by their entries."""
    if isinstance(processing, Mapping):
        return {
            key: _named(value, assets) if key == "tokenizer" else named_entries(value, assets)
            for key, value in processing.items()
        }
    if isinstance(processing, list | tuple):
        return [named_entries(item, assets) for item in processing]
    return processing


def _named(value: Any, assets: Mapping[str, bytes]) -> Any:
    if not isinstance(value, str):
        return value
    if value not in assets:
        raise ValueError(f"no asset {value!r} among {sorted(assets)}")
    return msgspec.to_builtins(_entry(value, assets[value]))


def unnamed(processing: Processing, assets: Mapping[str, bytes]) -> list[str]:
    """Assets that no step names: they would lie in every package for nothing."""
    used = {entry.path for entry in processing.assets}
    return sorted(set(assets) - used)


def write_assets(assets: Mapping[str, bytes], out: Path, fs: Fs = LOCAL) -> tuple[FileEntry, ...]:
    """Write assets below ``out``; their entries, sorted by path."""
    for name, data in assets.items():
        write_atomic(out / name, data, fs)
    return tuple(describe(out, name) for name in sorted(assets))
