"""The attempt journal: what was being tried when everything stopped.

Drivers crash and hang, and take the app with them. So before a candidate is tried, "trying X" is
written and flushed to the disk; afterwards it is erased. An entry that is still there next time
says what was being tried when the process died. A lock, which the system lets go of when its
holder dies, tells such a leftover from an attempt that another process is making right now.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from edgeserve.files import LOCAL, Fs
from edgeserve.types.base import Value, decode, encode

__all__ = ["Busy", "Entry", "Journal"]


class Busy(Exception):
    """Another process holds the attempt and did not end within the time given."""


class Entry(Value, frozen=True):
    """One attempt under way.

    Attributes:
        name: What is being tried, for people.
        started: Seconds since the epoch.
    """

    name: str
    started: float


class Journal:
    """Attempts by key in one folder: ``KEY.trying`` is the entry, ``KEY.lock`` its lock.

    Where the folder cannot be written (a read-only disk) attempts are made without an entry: a
    Wrapper that refuses to work for want of a journal would be the worse fault.
    """

    def __init__(self, folder: Path, fs: Fs = LOCAL) -> None:
        self.folder = folder
        self._fs = fs

    @contextlib.contextmanager
    def attempt(self, key: str, name: str, wait: float) -> Iterator[None]:
        """Hold the entry of ``key`` while the block runs; an exception in the block erases it too.

        Args:
            key: Which candidate.
            name: The same, for people.
            wait: Seconds to wait for another process that is trying the same.

        Raises:
            Busy: the other process is still at it.
        """
        with self._locked(key, wait):
            self._write(key, Entry(name=name, started=time.time()))
            try:
                yield
            finally:
                self._erase(key)

    def leftover(self, key: str) -> Entry | None:
        """Take the entry that a dead attempt left, and erase it; None if there is none."""
        if not self._entry(key).exists():
            return None
        with contextlib.suppress(Busy), self._locked(key, 0):
            entry = self._read(key)
            self._erase(key)
            return entry
        return None

    @contextlib.contextmanager
    def _locked(self, key: str, wait: float) -> Iterator[None]:
        lock = FileLock(self.folder / f"{key}.lock")
        try:
            self._fs.mkdir(self.folder)
            lock.acquire(timeout=wait)
        except Timeout:
            raise Busy(key) from None
        except (OSError, NotImplementedError):
            yield  # nothing can be written there, so there is nothing to guard either
            return
        try:
            yield
        finally:
            lock.release()

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.trying"

    def _read(self, key: str) -> Entry | None:
        try:
            return decode(self._entry(key).read_bytes(), Entry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError):
            return Entry(name="", started=0.0)  # torn in the crash: all the more a leftover

    def _write(self, key: str, entry: Entry) -> None:
        with contextlib.suppress(OSError):
            self._fs.write(self._entry(key), encode(entry))
            self._fs.sync_folder(self.folder)

    def _erase(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlink(self._entry(key))
            self._fs.sync_folder(self.folder)
