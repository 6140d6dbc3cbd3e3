"""A file's bytes at given places, as they are now: what the strict reader reads through.

Reads are positional, so that threads share one open file. The file is not mapped: were it cut short
by another program, a mapping would end this process with SIGBUS, a read only comes back short.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from edgeserve.errors import BundleError

__all__ = ["ByteSource"]

_CHUNK = 1 << 20
_HINT = "check the path; a bundle is a file that `edgeserve package` made"


class ByteSource:
    """An open regular file, read by offset.

    Attributes:
        path: Where it was opened.
        size: Its size when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            BundleError: EDGE-BUNDLE-001, not a regular file or not readable.
        """
        self.path = path
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            self._fd = os.open(path, flags)
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        self.close = weakref.finalize(self, os.close, self._fd)
        status = os.fstat(self._fd)
        self.size = status.st_size
        self._lock = threading.Lock()
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise self._unreadable("not a regular file")

    def _unreadable(self, got: str) -> BundleError:
        return BundleError(
            "EDGE-BUNDLE-001", str(self.path), wanted="a bundle's file", got=got, hint=_HINT
        )

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes from ``offset``.

        Raises:
            BundleError: EDGE-BUNDLE-018, the file ended early, failed or was closed.
        """
        return b"".join(self.chunks(offset, size))

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """The same in pieces of at most 1 MiB."""
        end = offset + size
        while offset < end:
            data = self._some(offset, min(_CHUNK, end - offset))
            offset += len(data)
            yield data

    def _some(self, offset: int, size: int) -> bytes:
        if not self.close.alive:
            raise self._cut("a closed file")
        try:
            data = self._at(offset, size)
        except OSError as error:
            raise self._cut(error.strerror or str(error)) from error
        if not data:
            raise self._cut(f"the file's end at byte {offset}")
        return data

    def _at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._fd, size, offset)
        with self._lock:  # Windows
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, size)

    def _cut(self, got: str) -> BundleError:
        return BundleError(
            "EDGE-BUNDLE-018",
            str(self.path),
            got=got,
            wanted="the bytes that were there when it was opened",
            hint="something changed the file while it was in use: get it again",
        )
