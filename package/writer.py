"""Write a sealed bundle: stream by stream, beside its place, opened again before it gets its name.

The bytes follow from the manifest and the members alone, so the same workspace gives the same file.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from edgeserve.bundle import Bundle
from edgeserve.bundle.manifest import MANIFEST
from edgeserve.bundle.workspace import real_file
from edgeserve.bundle.zipfmt import (
    MAX_MEMBERS,
    Entry,
    central_bytes,
    end64_bytes,
    end_bytes,
    local_bytes,
    plan,
)
from edgeserve.errors import PackageError
from edgeserve.files import LOCAL, Fs, staged_file
from edgeserve.types.artifact import FileEntry

__all__ = ["write_bundle"]

_CHUNK = 1 << 20


def write_bundle(
    out: Path, manifest: bytes, files: tuple[FileEntry, ...], root: Path, fs: Fs = LOCAL
) -> str:
    """Write ``out`` with the given manifest and the files it lists, taken from ``root``.

    Every file is read twice, for its CRC and into the bundle, and held to its hash both times. The
    finished file is opened with the strict reader, and every member read, before it is moved to
    ``out``; until then whatever was there stays.

    Args:
        out: The file to write.
        manifest: Bytes of ``manifest.json``.
        files: Every other member, sorted by path.
        root: The workspace.
        fs: What writes.

    Returns:
        The file's sha256.

    Raises:
        PackageError: EDGE-PACKAGE-007 a file is not what the manifest says, -008 too many of them.
        BundleError: a file is missing or a link.
        FilesError: EDGE-FILES-001, it cannot be written.
    """
    if len(files) + 1 > MAX_MEMBERS:
        raise PackageError(
            "EDGE-PACKAGE-008",
            str(out),
            wanted=f"at most {MAX_MEMBERS} members",
            got=str(len(files) + 1),
            hint="package fewer artifacts, with --target or by name",
        )
    members = [(MANIFEST, len(manifest), zlib.crc32(manifest))]
    members += [(entry.path, entry.size, _crc(root, entry)) for entry in files]
    with staged_file(out, fs) as stage:
        fs.write_chunks(stage, _stream(plan(members), manifest, files, root))
        with Bundle(stage) as bundle:
            bundle.verify()
            return bundle.sha256


def _crc(root: Path, entry: FileEntry) -> int:
    crc = 0
    for chunk in _chunks(root, entry):
        crc = zlib.crc32(chunk, crc)
    return crc


def _chunks(root: Path, entry: FileEntry) -> Iterator[bytes]:
    """A file's bytes in pieces; at their end they must have been what the manifest says."""
    real_file(root, entry.path)
    digest, size = hashlib.sha256(), 0
    with open(root / entry.path, "rb") as file:
        while size <= entry.size and (chunk := file.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
            yield chunk
    if (size, digest.hexdigest()) != (entry.size, entry.sha256):
        raise PackageError(
            "EDGE-PACKAGE-007",
            str(root / entry.path),
            wanted=f"sha256 {entry.sha256}",
            got="other bytes",
            hint="it was changed after it was validated: run the stage that made it again",
        )


def _stream(
    entries: list[Entry], manifest: bytes, files: tuple[FileEntry, ...], root: Path
) -> Iterator[bytes]:
    """The bundle's bytes from first to last."""
    yield local_bytes(entries[0])
    yield manifest
    for entry, file in zip(entries[1:], files, strict=True):
        yield local_bytes(entry)
        yield from _chunks(root, file)
    directory = b"".join(central_bytes(entry) for entry in entries)
    offset = entries[-1].end
    yield directory
    yield end64_bytes(len(entries), len(directory), offset)
    yield end_bytes(len(entries), len(directory), offset)
