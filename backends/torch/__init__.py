"""The reference: the exported program itself, run by PyTorch on the CPU in float32.

Importing this package does not import torch; its modules do.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np

from edgeserve.backends.base import Backend
from edgeserve.backends.graph import Graph
from edgeserve.backends.reference import reference
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.backends.versions import versions
from edgeserve.data.npz_io import read_arrays
from edgeserve.files import describe
from edgeserve.installation import install_command
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported

__all__ = ["EXAMPLES", "TorchBackend", "load_examples", "reference_artifact"]

#: Name of the file with an export's example inputs.
EXAMPLES = "examples.npz"


def reference_artifact(exported: Exported) -> Artifact:
    """The exported program as an artifact; its root is the folder of ``source.json``."""
    return reference(exported)[1]


def load_examples(exported: Exported, root: Path) -> dict[str, np.ndarray]:
    """The example inputs of an export, by name; ``root`` is the folder of ``source.json``."""
    return read_arrays(root / exported.examples.path)


class TorchBackend(Backend):
    """Format "torch": a flat ``.pt2`` that edgeserve wrote; never part of a bundle."""

    format = "torch"
    title = "PyTorch"
    suffixes = (".pt2",)
    packages = ("torch",)

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("torch") else install_command("convert")

    def delegates(self) -> tuple[str, ...]:
        return ("cpu",)

    def routes(self) -> tuple[str, ...]:
        return ("copy",)

    def tools(self) -> dict[str, str]:
        return versions("torch")

    def _export(self, exported: Exported, root: Path, out: Path, route: str) -> Artifact:
        name = Path(exported.program.path).name
        shutil.copyfile(root / exported.program.path, out / name)
        io = reference_artifact(exported).io
        provenance = Provenance(route=route, tools=exported.tools)
        return Artifact("torch", "fp32", name, (describe(out, name),), io, provenance=provenance)

    def _load(self, artifact: Artifact, root: Path, how: LoadOptions) -> Session:
        from edgeserve.backends.torch.program.run import TorchSession

        return TorchSession(artifact, root, how)

    def _inspect(self, artifact: Artifact, root: Path) -> Graph:
        from edgeserve.backends.torch.program.inspect import inspect_program

        return inspect_program(artifact, root)
