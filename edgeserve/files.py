"""Files: hashing, atomic writes and staged folders, all behind one small seam (`Fs`).

Everything that edgeserve writes goes through an `Fs`, so that a test can make any single operation
fail and check that nothing half-written is left behind.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgeserve.errors import FilesError
from edgeserve.types.artifact import FileEntry

__all__ = [
    "LOCAL",
    "Fs",
    "describe",
    "describe_tree",
    "sha256_bytes",
    "sha256_file",
    "staged",
    "sweep",
    "write_atomic",
]

_CHUNK = 1 << 20
_STAGE_PREFIX = ".tmp-"


class Fs:
    """The file operations that change a disk; tests subclass it to inject faults."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file and flush it to the disk."""
        with open(path, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())

    def copy(self, source: Path, target: Path) -> None:
        """Copy a regular file's bytes into a fresh inode and flush it."""
        with open(source, "rb") as src, open(target, "wb") as out:
            shutil.copyfileobj(src, out, _CHUNK)
            out.flush()
            os.fsync(out.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Rename atomically over ``target``, then flush the folder's entry."""
        os.replace(source, target)
        self.sync_folder(target.parent)

    def mkdir(self, path: Path) -> None:
        """Make a folder and its parents."""
        path.mkdir(parents=True, exist_ok=True)

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all it holds; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_folder(self, path: Path) -> None:
        """Flush a folder's entries, where the system lets a folder be opened."""
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


LOCAL = Fs()


def sha256_bytes(data: bytes | memoryview) -> str:
    """sha256 of bytes, lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    with open(path, "rb") as src:
        return hashlib.file_digest(src, "sha256").hexdigest()


def describe(root: Path, path: str) -> FileEntry:
    """The `FileEntry` of the file at ``root/path`` (``path`` relative, POSIX)."""
    full = root / path
    return FileEntry(path=path, size=full.stat().st_size, sha256=sha256_file(full))


def describe_tree(root: Path, folder: str = "") -> tuple[FileEntry, ...]:
    """`describe` every regular file below ``root/folder``, sorted by path; links are refused."""
    entries = []
    for full in sorted((root / folder).rglob("*")):
        if full.is_symlink():
            raise FilesError(
                "EDGE-FILES-003", str(full), wanted="a regular file", got="a link",
                hint="replace the link by the file it points to",
            )  # fmt: skip
        if full.is_file():
            entries.append(describe(root, full.relative_to(root).as_posix()))
    return tuple(sorted(entries, key=lambda e: e.path))


def _wrap(error: OSError, path: Path) -> FilesError:
    """Turn an OSError into a coded error with a hint for the usual causes."""
    hints = {
        errno.ENOSPC: "free some disk space, then run the same command again: it resumes",
        errno.EACCES: "check who owns the folder, or choose another with -o",
        errno.EROFS: "the file system is read-only: choose another folder with -o",
    }
    hint = hints.get(error.errno or 0, "see that the folder exists and is writable")
    return FilesError("EDGE-FILES-001", str(path), got=error.strerror or str(error), hint=hint)


def write_atomic(path: Path, data: bytes, fs: Fs = LOCAL) -> None:
    """Write ``path`` so that a reader sees the old bytes or the new, never a part.

    Raises:
        FilesError: EDGE-FILES-001, with the old file untouched.
    """
    temporary = path.with_name(f"{_STAGE_PREFIX}{path.name}-{secrets.token_hex(4)}")
    try:
        fs.mkdir(path.parent)
        fs.write(temporary, data)
        fs.replace(temporary, path)
    except OSError as error:
        raise _wrap(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            fs.unlink(temporary)


@contextlib.contextmanager
def staged(target: Path, fs: Fs = LOCAL) -> Iterator[Path]:
    """A fresh folder beside ``target`` that takes its place when the block ends without an error.

    An older ``target`` is moved aside first and removed last, so a reader finds one or the other.

    Raises:
        FilesError: EDGE-FILES-001, with the old folder untouched.
    """
    token = secrets.token_hex(4)
    stage = target.with_name(f"{_STAGE_PREFIX}{target.name}-{token}")
    aside = target.with_name(f"{_STAGE_PREFIX}{target.name}-{token}-old")
    try:
        try:
            fs.mkdir(stage)
        except OSError as error:
            raise _wrap(error, stage) from error
        yield stage
        _swap(stage, target, aside, fs)
    finally:
        with contextlib.suppress(OSError):
            fs.remove_tree(stage)
            fs.remove_tree(aside)


def _swap(stage: Path, target: Path, aside: Path, fs: Fs) -> None:
    """Put ``stage`` in the place of ``target``; on failure the old folder is put back."""
    had = target.exists()
    try:
        if had:
            fs.replace(target, aside)
        fs.replace(stage, target)
    except OSError as error:
        if had and not target.exists():
            os.replace(aside, target)
        raise _wrap(error, target) from error


def sweep(folder: Path, fs: Fs = LOCAL) -> None:
    """Remove what interrupted runs left in ``folder`` (call only while holding its lock)."""
    for left in folder.glob(f"{_STAGE_PREFIX}*"):
        if left.is_dir():
            fs.remove_tree(left)
        else:
            fs.unlink(left)
