"""Packages that a kind of source needs before it can be read."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from edgeserve.backends.host import too_old
from edgeserve.errors import ConvertError

__all__ = ["check_packages"]


def check_packages(thing: str, needed: Mapping[str, str]) -> None:
    """Say what to install before a source can be read.

    Args:
        thing: What is to be read.
        needed: Packages, and for each the module that it brings.

    Raises:
        ConvertError: EDGE-CONVERT-060, missing or too old.
    """
    missing = [name for name, module in needed.items() if importlib.util.find_spec(module) is None]
    old = too_old(*needed)
    if missing or old:
        raise ConvertError(
            "EDGE-CONVERT-060",
            thing,
            wanted=", ".join(needed),
            got=f"no {', '.join(missing)}" if missing else "versions that are too old",
            hint="pip install 'edgeserve[convert]'" if missing else str(old),
        )
