"""The verb `package`: a workspace's proven artifacts, written into one sealed bundle.

It is written stream by stream, beside its place, and opened again before it gets its name. The
bytes follow from the manifest and the members alone, so the same workspace gives the same file.

What goes in is an allow-list, and a manifest made public: paths of the workspace, the reference and
samples are left out.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeserve import backends
from edgeserve.bundle import Bundle, Workspace
from edgeserve.bundle.manifest import MANIFEST, write_manifest
from edgeserve.bundle.rules import IDENTITY, MODEL_NAME, PRIVACY_FIELD, referenced
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
from edgeserve.machine import coded
from edgeserve.types.artifact import Artifact, FileEntry, Judgement, Reason, Refused
from edgeserve.types.base import Value, decode, encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import PackageOptions
from edgeserve.types.reports import Report
from edgeserve.types.vocabulary import TARGETS


class Packaged(Value, frozen=True):
    """The bundle that was written.

    Attributes:
        path: Where it lies.
        size: Its bytes.
        sha256: Of the whole file: what to publish beside it.
        model_id: Which model it holds.
        artifacts: Names of the artifacts in it.
        verdicts: Their verdicts.
    """

    path: str
    size: int
    sha256: str
    model_id: str
    artifacts: tuple[str, ...]
    verdicts: dict[str, str]

    def json(self) -> bytes:
        """The ``--json`` object."""
        return encode({"schema": 1, **msgspec.structs.asdict(self), "error": None})


_SPDX = re.compile(r"\(*[A-Za-z0-9.+-]+\)*( (AND|OR|WITH) \(*[A-Za-z0-9.+-]+\)*)*")


def bundle_manifest(manifest: Manifest, options: PackageOptions) -> Manifest:
    """The manifest of the bundle that ``options`` asks for, made of a workspace's.

    Kept are the artifacts asked for, their figures, what was refused for the same formats, the
    golden cases and the identity. Dropped are the reference, paths of the workspace and ``x``.

    Raises:
        PackageError: EDGE-PACKAGE-001 to -006.
    """
    artifacts = _artifacts(manifest, options)
    if manifest.golden is None or not manifest.golden.cases:
        raise PackageError(
            "EDGE-PACKAGE-002",
            options.out,
            wanted="golden cases, the proof on a device",
            got="none",
            hint=f"run `edgeserve validate {options.out} --golden DIR`, DIR holding inputs"
            " that may be shipped",
        )
    formats = _formats(options)
    refused = [r for r in manifest.refused if not formats or r.format in formats]
    scrub = _PathScrubber(options.out)
    names = {artifact.name for artifact in artifacts}
    bare = msgspec.structs.replace(
        manifest,
        **_identity(manifest, options),
        artifacts=tuple(scrub.artifact(a) for a in artifacts),
        refused=tuple(scrub.refused(r) for r in refused),
        reports=tuple(r for r in manifest.reports if f"{r.format}-{r.precision}" in names),
        reference=None,
        x={key: x for key, x in manifest.x.items() if key == PRIVACY_FIELD},
    )
    return msgspec.structs.replace(bare, files=_files(bare))


def _formats(options: PackageOptions) -> tuple[str, ...]:
    """The formats that run on the target; empty where none is given."""
    if options.target is None:
        return ()
    if options.target not in TARGETS:
        raise PackageError(
            "EDGE-PACKAGE-003",
            f"target {options.target!r}",
            wanted=f"one of {', '.join(TARGETS)}",
            got="another",
            hint="leave --target away to package every format",
        )
    return tuple(b.format for b in backends.installed() if options.target in b.targets)


def _artifacts(manifest: Manifest, options: PackageOptions) -> tuple[Artifact, ...]:
    formats = _formats(options)
    there = ", ".join(a.name for a in manifest.artifacts) or "none"
    for name in options.only or ():
        artifact = manifest.artifact(name)
        if artifact is None or (formats and artifact.format not in formats):
            runs = f" that runs on {options.target}" if artifact else ""
            raise PackageError(
                "EDGE-PACKAGE-004",
                f"artifact {name!r}",
                wanted=f"a proven artifact{runs}",
                got=f"not one of: {there}",
                hint="name artifacts as `edgeserve inspect` lists them",
            )
    kept = tuple(
        artifact
        for artifact in manifest.artifacts
        if (not options.only or artifact.name in options.only)
        and (not formats or artifact.format in formats)
    )
    if not kept:
        on = f" for {options.target} ({', '.join(formats)})" if formats else ""
        refused = ", ".join(f"{r.format}-{r.precision}" for r in manifest.refused) or "none"
        raise PackageError(
            "EDGE-PACKAGE-001",
            options.out,
            wanted=f"an artifact that passed{on}",
            got=f"passed: {there}; refused: {refused}",
            hint="convert to a format that passes; `edgeserve report` shows why others failed",
        )
    return kept


def _files(manifest: Manifest) -> tuple[FileEntry, ...]:
    """The allow-list: the identity, and what a value of the bundle's own manifest points to."""
    identity = next(entry for entry in manifest.files if entry.path == IDENTITY)
    wanted = {entry.path: entry for _, entry in referenced(manifest)} | {IDENTITY: identity}
    return tuple(wanted[path] for path in sorted(wanted))


def _identity(manifest: Manifest, options: PackageOptions) -> dict[str, Any]:
    """Name, version and license of the bundle, checked."""
    name, license = options.name or manifest.name, options.license or manifest.license
    version = manifest.version if options.version is None else options.version
    wrong = None
    if not MODEL_NAME.fullmatch(name):
        wanted = "up to 128 letters, digits, dots, dashes and underscores"
        hint = "the name is also the model's name behind an endpoint: choose e.g. tagger"
        wrong = "--name", wanted, ascii(name[:140]), hint
    elif version < 1:
        hint = "count up by one with each release"
        wrong = "--version", "a whole number from 1 on", str(version), hint
    elif license is not None and not _SPDX.fullmatch(license):
        hint = "for example Apache-2.0, or MIT OR Apache-2.0"
        wrong = "--license", "an SPDX expression", ascii(license[:80]), hint
    if wrong is not None:
        option, wanted, got, hint = wrong
        raise PackageError("EDGE-PACKAGE-005", option, wanted=wanted, got=got, hint=hint)
    return {"name": name, "version": version, "license": license}


class _PathScrubber:
    """Takes this machine's paths out of what was written for people: reasons, messages, hints."""

    def __init__(self, workspace: str) -> None:
        folder = Path(workspace)
        places = {str(folder): "OUT", str(folder.absolute()): "OUT", str(folder.resolve()): "OUT"}
        home = str(Path.home())
        if home != "/":
            places[home] = "~"
        # "." and the like stand in every sentence; only a path that shows as one is taken out.
        found = {path: word for path, word in places.items() if len(path) > 1 and "/" in path}
        self._places = sorted(found.items(), key=lambda place: -len(place[0]))

    def text(self, text: str) -> str:
        for path, word in self._places:
            text = text.replace(path, word)
        return text

    def artifact(self, artifact: Artifact) -> Artifact:
        judgement = artifact.judgement or Judgement(verdict="unproven")
        reasons = tuple(
            Reason(code=r.code, message=self.text(r.message)) for r in judgement.reasons
        )
        judgement = msgspec.structs.replace(judgement, reasons=reasons)
        return msgspec.structs.replace(artifact, judgement=judgement)

    def refused(self, refused: Refused) -> Refused:
        return msgspec.structs.replace(
            refused, path=None, message=self.text(refused.message), hint=self.text(refused.hint)
        )


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


@coded("package")
def package(options: PackageOptions, fs: Fs = LOCAL) -> Packaged:
    """Write the bundle that ``options`` asks for. Reads the workspace without locking it.

    Raises:
        PackageError: EDGE-PACKAGE-001 to -009 (`edgeserve explain` tells each).
        BundleError: the workspace or its manifest breaks a rule.
        FilesError: EDGE-FILES-001 or -007, the bundle cannot be written, or the workspace not be
            read; an older bundle is untouched.
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
