"""The package stage: seal what passed into one ``.edge`` file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeserve.bundle.workspace import Workspace
from edgeserve.package import PackageRequest
from edgeserve.package import package as seal
from edgeserve.pipeline.options import PackageOptions, choice, no_empty
from edgeserve.types.base import encode

__all__ = ["PackageOutcome", "package"]

_TARGETS = ("android", "ios", "web", "linux")


@dataclass(frozen=True)
class PackageOutcome:
    """The sealed bundle: path, size in bytes, sha256 of the file, model_id and artifact names."""

    path: str
    size: int
    sha256: str
    model_id: str
    artifacts: tuple[str, ...]
    verdicts: dict[str, str]

    def json(self) -> bytes:
        """The ``--json`` object."""
        return encode({"schema": 1, **self.__dict__, "error": None})


def package(options: PackageOptions) -> PackageOutcome:
    """Write the bundle that ``options`` ask for.

    Raises:
        UsageError: EDGE-USAGE-001 unknown target, -005 an empty value.
        PackageError: nothing may be packaged, or a file changed under our hands.
    """
    no_empty(options)
    if options.target is not None:
        choice("--target", options.target, _TARGETS)
    workspace = Workspace(Path(options.out))
    with workspace.lock():
        manifest = workspace.manifest
        sealed = seal(
            PackageRequest(
                workspace=options.out,
                out=options.bundle,
                name=options.name,
                version=options.version,
                license=options.license,
                target=options.target,
            )
        )
    return PackageOutcome(
        path=sealed.path,
        size=sealed.size,
        sha256=sealed.sha256,
        model_id=sealed.model_id,
        artifacts=sealed.artifacts,
        verdicts={a.name: str(a.verdict) for a in manifest.artifacts if a.name in sealed.artifacts},
    )
