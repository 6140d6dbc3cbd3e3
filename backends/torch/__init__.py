"""The reference: the exported program itself, run by PyTorch on the CPU in float32.

Importing this package does not import torch; its modules do.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import ClassVar

from edgeserve.backends.base import Backend
from edgeserve.backends.graph import Graph
from edgeserve.backends.reference import reference
from edgeserve.backends.session import Session
from edgeserve.backends.versions import versions
from edgeserve.files import describe
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported

__all__ = ["TorchBackend", "reference_artifact"]


def reference_artifact(exported: Exported) -> Artifact:
    """The exported program as an artifact, its root being the folder that holds ``source.json``."""
    return reference(exported)[1]


class TorchBackend(Backend):
    """Format "torch": a flat ``.pt2`` that edgeserve wrote; never part of a bundle."""

    format: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    suffixes: ClassVar[tuple[str, ...]] = (".pt2",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    def missing(self) -> str | None:
        if importlib.util.find_spec("torch") is None:
            return install_command("convert")
        return None

    def delegates(self) -> tuple[str, ...]:
        return ("cpu",)

    def routes(self) -> tuple[str, ...]:
        return ("copy",)

    def tools(self) -> dict[str, str]:
        return versions("torch")

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        name = Path(exported.program.path).name
        shutil.copyfile(root / exported.program.path, out / name)
        reference = reference_artifact(exported)
        return Artifact(
            format="torch",
            precision="fp32",
            entry=name,
            files=(describe(out, name),),
            io=reference.io,
            provenance=Provenance(route=route, tools=exported.tools),
        )

    def _load(
        self,
        artifact: Artifact,
        root: Path,
        delegate: str,
        threads: int | None,
        taps: tuple[str, ...],
        optimize: bool,
    ) -> Session:
        from edgeserve.backends.torch.program.run import TorchSession

        return TorchSession(artifact, root, threads, taps)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.torch.program.inspect import inspect_program

        return inspect_program(artifact, root)
