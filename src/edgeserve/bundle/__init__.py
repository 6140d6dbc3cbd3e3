"""The two things on disk, and the one door to them.

    from edgeserve.bundle import open_model

    with open_model("tagger.edge") as model:               # or a workspace folder
        for artifact in model.manifest.artifacts:
            folder = model.local(artifact)                 # real files, each held to its sha256
            print(artifact.name, folder / artifact.entry)

A *workspace* is a private folder that stages write into, a *bundle* one sealed ``.edge`` file that
only `edgeserve.package` writes. ``spec/bundle.md`` describes the file byte by byte. Whatever breaks
a rule is refused with a code of its own before any member is opened.
"""

from __future__ import annotations

from edgeserve.bundle.sealed import Bundle, Model, open_model
from edgeserve.bundle.workspace import Workspace

__all__ = ["Bundle", "Model", "Workspace", "open_model"]
