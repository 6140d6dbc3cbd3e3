"""File operations of a process that are counted, and one of which fails or ends the process.

Python tells an audit hook of each opening, renaming, making and removing before it happens; what it
tells nobody of (writing, flushing, reading at a place) is replaced for as long as a block runs. So
nothing in the product knows of it. Only files below one folder count: the imports of packages do
not, and the same steps have the same numbers each time.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import edgeserve.files

#: What changes a disk; the others only look.
CHANGES = {
    *("create", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"),
    *("os.chmod", "os.utime", "os.truncate", "write", "fsync", "exchange"),
}
#: What takes a descriptor.
OPENS = {"open", "create", "os.scandir", "os.listdir"}
_LOOKS = {"open", "os.scandir", "os.listdir", "pread"}
KILL = "SIGKILL"
#: Kinds of fault, and which operations each may meet.
FAULTS: dict[str, set[str]] = {
    "ENOSPC": CHANGES - {"os.remove", "os.rmdir", "os.chmod"},
    "EIO": CHANGES | _LOOKS,
    "EACCES": CHANGES | _LOOKS - {"write", "fsync", "pread"},
    "EMFILE": OPENS,
    KILL: CHANGES | _LOOKS,
}
#: Faults that stay for the rest of the run.
_LASTING = {"ENOSPC", "EMFILE"}


class Injector:
    """Counts operations below a folder while it is armed, and lets one of them fail.

    Args:
        folder: Where operations count.
        fault: One of `FAULTS`; None: they are only counted.
        index: The number of the operation that fails, among those that this fault may meet.

    Attributes:
        seen: What each operation was, in order.
    """

    def __init__(self, folder: Path, fault: str | None = None, index: int = 0) -> None:
        self.seen: list[str] = []
        self._below = os.path.realpath(folder) + os.sep
        self._fault, self._index, self._armed = fault, index, False
        self._met = 0

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Count, and fail, while the block runs. Once a process: an audit hook stays."""
        sys.addaudithook(self._audit)
        with contextlib.ExitStack() as stack:
            for target, name, new in (
                (os, "fsync", self._by_descriptor("fsync", os.fsync)),
                (os, "pread", self._by_descriptor("pread", os.pread)),
                (edgeserve.files, "_renameat2", self._exchange(edgeserve.files._renameat2)),
            ):
                stack.enter_context(mock.patch.object(target, name, new))
            stack.enter_context(mock.patch.object(edgeserve.files, "open", self._open, create=True))
            self._armed = True
            try:
                yield
            finally:
                self._armed = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Operations in the block do not count."""
        before, self._armed = self._armed, False
        try:
            yield
        finally:
            self._armed = before

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._armed:
            return
        if event == "open" and isinstance(given[0], str | bytes | os.PathLike):
            self._meet("create" if given[2] & os.O_CREAT else "open", given[0])
        elif event in CHANGES or event in OPENS:
            paths = [x for x in given[:2] if isinstance(x, str | bytes | os.PathLike)]
            self._meet(event, *paths)

    def _meet(self, operation: str, *paths: Any) -> None:
        if not any(os.fsdecode(path).startswith(self._below) for path in paths):
            return
        self.seen.append(operation)
        if self._fault is None or operation not in FAULTS[self._fault]:
            return
        number, self._met = self._met, self._met + 1
        if number == self._index and self._fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == self._index or (number > self._index and self._fault in _LASTING):
            code = getattr(errno, self._fault)
            raise OSError(code, os.strerror(code), os.fsdecode(paths[0]))

    def _by_descriptor(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *given: Any) -> Any:
            if self._armed:
                self._meet(name, os.readlink(f"/proc/self/fd/{fd}"))
            return function(fd, *given)

        return call

    def _exchange(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Path, second: Path, flags: int) -> None:
            self._meet("exchange", os.path.abspath(first))
            function(first, second, flags)

        return call

    def _open(self, path: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
        file = builtins.open(path, mode, *given, **more)  # noqa: SIM115
        if self._armed and "x" in mode:
            write = file.write

            def call(data: bytes) -> int:
                self._meet("write", os.path.abspath(path))
                return write(data)

            return _Wrapped(file, call)
        return file


class _Wrapped:
    """A file with another ``write``."""

    def __init__(self, file: Any, write: Callable[[bytes], int]) -> None:
        self._file, self.write = file, write

    def __enter__(self) -> _Wrapped:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
