"""The reference's own file as an artifact: what the source was exported to, and its engine.

A PyTorch source is a ``.pt2`` that PyTorch runs, an ONNX source its own file, run by ONNX Runtime.
"""

from __future__ import annotations

from edgeserve import backends
from edgeserve.backends.base import Backend
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO


def reference(exported: Exported) -> tuple[Backend, Artifact]:
    """The backend that runs an exported program, and the program as its artifact.

    The artifact's root is the folder that holds ``source.json``. Importing this module loads no
    engine.
    """
    artifact = Artifact(
        format=exported.format,
        precision="fp32",
        entry=exported.program.path,
        files=tuple(sorted((exported.program, *exported.program_data), key=lambda f: f.path)),
        io=IO(inputs=exported.signature.inputs, outputs=exported.signature.outputs),
        provenance=Provenance(route="export", tools=exported.tools),
    )
    return backends.get(exported.format), artifact
