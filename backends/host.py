"""Versions of packages, as backends note them in what they make."""

from __future__ import annotations

import importlib.metadata

from edgeserve import __version__

__all__ = ["versions"]


def versions(*packages: str) -> dict[str, str]:
    """Versions of edgeserve and of installed distributions; what is missing is left out."""
    found = {"edgeserve": __version__}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
