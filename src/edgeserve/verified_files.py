"""Files of an artifact as a runtime gets them: open, and held to their hashes.

Between a look at a file and its use, another program may give its name to another file. So a file
is opened once, its hash is taken by the descriptor, and the runtime gets that same descriptor. What
a runtime has to open by name is looked at again afterwards: a rename, a write or a new file in its
place shows in the status of the file or of its folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from edgeserve.errors import BackendError
from edgeserve.files import Closing
from edgeserve.machine import machine_error
from edgeserve.types.artifact import FileEntry

#: Where a system shows a process its descriptors as files.
_DESCRIPTORS = Path("/proc/self/fd")
#: A status younger than this (nanoseconds) may stay the same through another change.
_SETTLED = 2_000_000_000
#: sha256 by the status that a file had when it was read.
_known: dict[tuple[int, ...], str] = {}

#: Code of the error for a file that is not what the artifact lists.
CHANGED = "EDGE-BACKEND-011"


def open_file(path: Path) -> int:
    """A descriptor of a regular file, to read. No link is followed, no pipe waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(f"no regular file: {path}")
    return fd


def sha256_open(fd: int) -> str:
    """sha256 of an open file's bytes; a file that has not changed since is not read again.

    Raises:
        OSError: it cannot be read.
    """
    status = os.fstat(fd)
    key = _stamp(status)
    if key in _known:
        return _known[key]
    with open(fd, "rb", closefd=False) as source:
        source.seek(0)
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    if time.time_ns() - status.st_ctime_ns > _SETTLED and _stamp(os.fstat(fd)) == key:
        if len(_known) >= 1000:
            _known.clear()
        _known[key] = digest
    return digest


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's bytes, and with a rename of it or over it."""
    kept = (status.st_dev, status.st_ino, status.st_size)
    return (*kept, status.st_mtime_ns, status.st_ctime_ns)


class VerifiedFiles(Closing):
    """Files below one folder, open, with the sizes and sha256 that are listed for them.

    Args:
        entries: The files.
        root: The folder.
        hashed: Compare the sha256 too, and later the names; False: the caller just compared the
            sha256, and nobody else writes there.

    Raises:
        BackendError: EDGE-BACKEND-011, a file is not what is listed.
        FilesError: EDGE-FILES-007, the machine failed.
    """

    def __init__(self, entries: Sequence[FileEntry], root: Path, hashed: bool = True) -> None:
        self._root, self._hashed = root, hashed
        self._open: dict[str, int] = {}
        self._named = {entry.path for entry in entries}
        self._stamps: dict[Path, tuple[int, ...]] = {}
        try:
            for folder in _folders(entries):
                with contextlib.suppress(OSError):  # the check of its files tells what is wrong
                    self._stamps[root / folder] = _stamp(os.lstat(root / folder))
            for entry in entries:
                self._check(entry)
        except BaseException:
            self.close()
            raise

    def _check(self, entry: FileEntry) -> None:
        path = self._root / entry.path
        wanted = f"{entry.size} bytes, sha256 {entry.sha256[:12]}"
        try:
            if Path(os.path.realpath(self._root)) not in Path(os.path.realpath(path)).parents:
                raise FileNotFoundError(path)
            fd = self._open[entry.path] = open_file(path)
            status = os.fstat(fd)
            self._stamps[path] = _stamp(status)
            if status.st_size != entry.size:
                raise _changed(entry.path, wanted, f"{status.st_size} bytes")
            if self._hashed and (digest := sha256_open(fd)) != entry.sha256:
                raise _changed(entry.path, wanted, f"sha256 {digest[:12]}")
        except OSError as error:
            fault = machine_error(error, f"file {entry.path!r}")
            raise fault or _changed(entry.path, wanted, "no regular file in its place") from error

    def path(self, member: str) -> Path:
        """Where a runtime opens the very file that was looked at.

        Where the system has no such place it is the file's own, and `check_names` covers it.
        """
        if not _DESCRIPTORS.is_dir():
            return self._root / member
        self._named.discard(member)
        return _DESCRIPTORS / str(self._open[member])

    def check_names(self) -> None:
        """Make sure that names by which a runtime opened files mean these files, and always did.

        Raises:
            BackendError: EDGE-BACKEND-011.
        """
        if not (self._named and self._hashed):
            return
        taken = {self._root / path for path in self._open} - {self._root / p for p in self._named}
        for path, stamp in self._stamps.items():
            try:
                same = path in taken or _stamp(os.lstat(path)) == stamp
            except OSError:
                same = False
            if not same:
                name = path.relative_to(self._root).as_posix()
                raise _changed(name, "no change while it is loaded", "another file by this name")

    def close(self) -> None:
        """Close the files; what a runtime opened or mapped stays its own."""
        while self._open:
            os.close(self._open.popitem()[1])


def _folders(entries: Sequence[FileEntry]) -> list[PurePosixPath]:
    """The folder that holds all of the files and nothing else, and the folders in it."""
    above = {folder for entry in entries for folder in PurePosixPath(entry.path).parents}
    parents = [{*PurePosixPath(entry.path).parents} for entry in entries]
    shared = set.intersection(*parents) if parents else set()
    own = max(shared, key=lambda folder: len(folder.parts), default=PurePosixPath())
    return [folder for folder in above if own.parts and folder.parts[: len(own.parts)] == own.parts]


def _changed(path: str, wanted: str, got: str) -> BackendError:
    hint = "make the artifact again, or copy it again from where it is whole"
    return BackendError(CHANGED, f"file {path!r}", wanted=wanted, got=got, hint=hint)
