"""Whether a large model fits on the disk and into memory, asked before minutes are spent on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from edgeserve.errors import FilesError, WorkerError
from edgeserve.pipeline.crew import available_memory

__all__ = ["LARGE", "check_room"]

#: A smaller program fails as soon as it could be asked about.
LARGE = 64 << 20

#: Copies of the weights on the disk while an artifact is made: the converter's and ours.
_ON_DISK = 2.2


def check_room(
    folder: Path, size: int, memory: Callable[[], int] = available_memory, large: int = LARGE
) -> None:
    """Refuse a conversion that cannot end well.

    Args:
        folder: Where the artifact will lie; it exists.
        size: Bytes of the exported program, nearly all of them weights.
        memory: Tells the bytes that are free.
        large: Programs of fewer bytes are not asked about.

    Raises:
        FilesError: EDGE-FILES-006, less is free on the disk than conversion writes.
        WorkerError: EDGE-WORKER-007, not even the weights fit into memory.
    """
    if size < large:
        return
    free, needed = shutil.disk_usage(folder).free, int(_ON_DISK * size)
    if free < needed:
        raise FilesError(
            "EDGE-FILES-006",
            str(folder),
            wanted=f"{_words(needed)} free",
            got=_words(free),
            hint="free some disk space, or choose a folder on another disk with -o",
        )
    if (held := memory()) < size:
        raise WorkerError(
            "EDGE-WORKER-007",
            "memory",
            wanted=f"{_words(size)} free, for the weights alone",
            got=_words(held),
            hint="end other programs, or convert on a machine with more memory",
        )


def _words(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
