"""`open_model`: one door to both things on disk, a workspace or a sealed bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, Self

from edgeserve.bundle.identity import IDENTITY
from edgeserve.bundle.sealed import Bundle, check_identity
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import BundleError
from edgeserve.types.artifact import Artifact
from edgeserve.types.manifest import Manifest

__all__ = ["Model", "open_model"]


class Model(Protocol):
    """What a workspace and a bundle have in common; a context manager.

    Attributes:
        path: The folder or file.
        kind: Which of the two.
        manifest: What it holds.
    """

    path: Path

    @property
    def kind(self) -> Literal["workspace", "bundle"]: ...

    @property
    def manifest(self) -> Manifest: ...

    def read(self, member: str) -> bytes:
        """A member's bytes, after its sha256 held."""

    def local(self, artifact: Artifact) -> Path:
        """The folder under which ``artifact.files`` lie as real, verified files."""

    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_model(path: str | Path) -> Model:
    """Open a workspace (a folder with ``manifest.json``) or a bundle (a file).

    Raises:
        BundleError: EDGE-BUNDLE-001 there is neither, -051 a folder without a manifest; whatever is
            wrong with the manifest or the bundle.
    """
    where = Path(path)
    if where.is_dir():
        workspace = Workspace(where)
        # Read now, so that a bad one is refused here.
        check_identity(workspace.read(IDENTITY), workspace.manifest)
        return workspace
    if not where.exists():
        raise BundleError(
            "EDGE-BUNDLE-001",
            str(path),
            wanted="a bundle or a workspace",
            got="nothing there",
            hint="check the path: `edgeserve package OUT -o model.edge` makes a bundle",
        )
    return Bundle(where)
