"""Which bundle is asked for and what goes into it: an allow-list, and a manifest made public.

Paths of the workspace, the reference and samples are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from edgeserve import backends
from edgeserve.bundle.rules import IDENTITY, MODEL_NAME, referenced
from edgeserve.errors import PackageError
from edgeserve.types.artifact import Artifact, FileEntry, Judgement, Reason, Refused
from edgeserve.types.base import Value, encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import PackageOptions
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
        x={},
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
