"""The processes that a process has started, and those that they have."""

from __future__ import annotations

import psutil


def descendants(pid: int) -> list[int]:
    """Numbers of all processes below one; none of a process that has ended."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
