"""Reading a workspace for its report: the manifest, validation reports and measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeserve.errors import ReportError
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Measurement, Report

T = TypeVar("T", Report, Measurement)

#: A report of a million inputs is smaller than this.
_LARGEST = 64 << 20


@dataclass(frozen=True)
class WorkspaceContents:
    """What lies in a workspace.

    Attributes:
        root: The workspace's folder.
        manifest: What the workspace holds.
        reports: Validation reports, by "{format}-{precision}".
        measurements: What was measured, likewise; smallest batch and fewest threads first.
        stale: Files that speak of other bytes than the artifact now has, and are left aside.
    """

    root: Path
    manifest: Manifest
    reports: dict[str, Report]
    measurements: dict[str, tuple[Measurement, ...]]
    stale: tuple[str, ...]


def load_workspace(workspace: Path) -> WorkspaceContents:
    """Read a workspace; whatever stage it has reached.

    Raises:
        ReportError: EDGE-REPORT-001 no workspace, EDGE-REPORT-002 a file in it cannot be read.
        BundleError: the manifest breaks its rules.
    """
    from edgeserve.bundle.manifest import read_manifest

    path = workspace / "manifest.json"
    if not path.is_file():
        raise ReportError(
            "EDGE-REPORT-001",
            str(workspace),
            wanted="a workspace (a folder with manifest.json)",
            got=_what(workspace),
            hint="give the folder that `edgeserve convert -o` wrote",
        )
    manifest = read_manifest(_bytes(path))
    hashes = {a.name: a.sha256 for a in manifest.artifacts}
    folder, stale = workspace / "reports", list[str]()
    reports = {_name(r): r for r in _read(folder, "*.validate.json", Report, hashes, stale)}
    measured: dict[str, tuple[Measurement, ...]] = {}
    for found in _read(folder, "*.measure.json", Measurement, hashes, stale):
        some = (*measured.get(_name(found), ()), found)
        measured[_name(found)] = tuple(
            sorted(some, key=lambda m: (m.batch, m.threads, m.runtime.delegate))
        )
    return WorkspaceContents(workspace, manifest, reports, measured, tuple(stale))


def _what(path: Path) -> str:
    if path.is_file():
        return "a file (a bundle contains no reports)"
    return "a folder without manifest.json" if path.is_dir() else "no such folder"


def _name(found: Report | Measurement) -> str:
    return f"{found.format}-{found.precision}"


def _read(
    folder: Path, pattern: str, type_: type[T], hashes: dict[str, str], stale: list[str]
) -> Iterator[T]:
    """What describes the listed artifacts, and always rejected ones; ``stale`` gets the rest."""
    for path in sorted(folder.glob(pattern)):
        try:
            found = decode(_bytes(path), type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreadable(path, str(error)) from error
        if hashes.get(_name(found), found.artifact_sha256) == found.artifact_sha256:
            yield found
        else:
            stale.append(path.name)


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise _unreadable(path, f"{size} bytes, larger than any report")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: Path, why: str) -> ReportError:
    return ReportError(
        "EDGE-REPORT-002",
        f"{path.parent.name}/{path.name}",
        wanted="a report written by `edgeserve`",
        got=why,
        hint="run `edgeserve validate` and `edgeserve measure` again",
    )
