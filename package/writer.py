"""The verb `package`: a workspace's proven artifacts, written into one sealed bundle.

It is written stream by stream, beside its place, and opened again before it gets its name. The
bytes follow from the manifest and the members alone, so the same workspace gives the same file.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeserve.bundle import Bundle, Workspace
from edgeserve.bundle.manifest import MANIFEST, write_manifest
from edgeserve.bundle.workspace import real_file
from edgeserve.bundle.zipfmt import (
    MAX_MEMBERS,
    ZipMember,
    central_bytes,
    end64_bytes,
    end_bytes,
    local_bytes,
    plan,
)
from edgeserve.errors import PackageError
from edgeserve.files import LOCAL, Fs, staged_file
from edgeserve.package.select import Packaged, bundle_manifest
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.base import decode
from edgeserve.types.options import PackageOptions
from edgeserve.types.reports import Report

_CHUNK = 1 << 20


def _write_bundle(
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
    entries: list[ZipMember], manifest: bytes, files: tuple[FileEntry, ...], root: Path
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


def package(options: PackageOptions, fs: Fs = LOCAL) -> Packaged:
    """Write the bundle that ``options`` asks for. Reads the workspace without locking it.

    Raises:
        PackageError: EDGE-PACKAGE-001 to -009 (`edgeserve explain` tells each).
        BundleError: the workspace or its manifest breaks a rule.
        FilesError: EDGE-FILES-001, the bundle cannot be written; an older one is untouched.
    """
    workspace = Workspace(options.out)
    out = Path(options.bundle)
    if out.is_dir():
        raise PackageError(
            "EDGE-PACKAGE-006",
            str(out),
            wanted="a file to write",
            got="a folder",
            hint=f"name the bundle, e.g. -o {out / 'model.edge'}",
        )
    manifest = bundle_manifest(workspace.manifest, options)
    for artifact in manifest.artifacts:
        _check_report(workspace, artifact)
    sha256 = _write_bundle(out, write_manifest(manifest), manifest.files, workspace.path, fs)
    return Packaged(
        path=str(out),
        size=out.stat().st_size,
        sha256=sha256,
        model_id=manifest.model_id,
        artifacts=tuple(artifact.name for artifact in manifest.artifacts),
        verdicts={artifact.name: str(artifact.verdict) for artifact in manifest.artifacts},
    )


def _check_report(workspace: Workspace, artifact: Artifact) -> None:
    """The verdict in the manifest is the one that the gate gave to these very bytes."""
    path = workspace.reports / f"{artifact.name}.validate.json"
    try:
        report = decode(path.read_bytes(), Report)
        verdict = f"{report.judgement.verdict} of {report.artifact_sha256}"
    except (OSError, msgspec.MsgspecError):
        verdict = "no readable report"
    if verdict != f"{artifact.verdict} of {artifact.sha256}":
        raise PackageError(
            "EDGE-PACKAGE-009",
            f"artifact {artifact.name}",
            wanted=f"a report that says {artifact.verdict} of {artifact.sha256}",
            got=verdict,
            hint=f"run `edgeserve validate {workspace.path}`, then package",
        )
