"""This machine and its packages, as backends need to know them."""

from __future__ import annotations

import importlib.metadata
import os

from edgeserve import __version__

__all__ = ["usable_cpus", "versions"]


def usable_cpus() -> int:
    """How many CPUs this process may run on (its affinity, not the machine's count)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def versions(*packages: str) -> dict[str, str]:
    """Versions of edgeserve and of installed distributions; what is missing is left out."""
    found = {"edgeserve": __version__}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
