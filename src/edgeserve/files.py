"""Files: hashing, atomic writes and staged folders, all behind one small seam (`Fs`).

Everything that edgeserve writes goes through an `Fs`, so that a test can make any single operation
fail and check that nothing half-written is left behind.

POSIX is what this is built and tested for. On Windows folders cannot be flushed and a file that
somebody holds open cannot be replaced: the first is skipped, the second raises EDGE-FILES-001.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from edgeserve.errors import FilesError
from edgeserve.types.artifact import FileEntry

_CHUNK = 1 << 20
_STAGE_PREFIX = ".tmp-"
#: A stage's name: the place that its process id is of, that id, a random number; what was aside.
_STAGE = re.compile(
    r"\.tmp-(?P<place>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{8}(-(?P<name>.+)-old)?", re.DOTALL
)
#: Seconds after which a stage of another machine or container counts as left behind.
_FOREIGN_S = 86_400.0
#: Folders that this process has looked through for what dead ones left.
_looked_through: set[Path] = set()
_LINUX = sys.platform == "linux"

#: What a system or file system answers that cannot swap two names in one step.
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}

#: What to do about what a system answers, by number.
HINTS = {
    errno.ENOENT: "see that the file and its folder exist",
    errno.ENOSPC: "free some disk space, then run the same command again: it resumes",
    errno.EDQUOT: "your disk quota is used up: free some of it, or choose another folder with -o",
    errno.EACCES: "check who owns the file and its folder, or choose another folder with -o",
    errno.EROFS: "the file system is read-only: choose another folder with -o",
    errno.EPERM: "check who owns the file and its folder, or choose another folder with -o",
    errno.EIO: "the disk reports errors: look into the system's log, then run it again",
    errno.EMFILE: "allow this program more open files (`ulimit -n`), then run it again",
    errno.ENFILE: "end programs that hold many files open, then run it again",
    errno.ENOMEM: "end other programs or allow this one more memory, then run it again",
    errno.EINTR: "run it again",
    errno.EAGAIN: "end other programs, then run it again",
    errno.ESTALE: "see that the network file system answers, then run it again",
}


class Fs:
    """The file operations that change a disk; tests subclass it to inject faults.

    All raise OSError; `staged_file`, `write_atomic`, `staged` and `sweep` make it a `FilesError`.
    """

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file (an existing one is an error) and flush it to the disk."""
        with open(path, "xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())

    def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
        """`write` for data that is not in memory at once; what ``chunks`` raises comes through."""
        with open(path, "xb") as out:
            for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())

    def copy(self, source: Path, target: Path) -> None:
        """Copy a file's bytes into a new file of its own inode, and flush it."""
        with open(source, "rb") as src, open(target, "xb") as out:
            shutil.copyfileobj(src, out, _CHUNK)
            out.flush()
            os.fsync(out.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Rename atomically over ``target``, then flush the folder's entry."""
        os.replace(source, target)
        self.sync_folder(target.parent)

    def exchange(self, first: Path, second: Path) -> None:
        """Swap what two names of one folder mean, in one step that no reader can look into.

        Raises:
            OSError: with an errno in ``_NO_EXCHANGE`` where this system has no such step.
        """
        _renameat2(first, second, flags=2)  # RENAME_EXCHANGE
        self.sync_folder(second.parent)

    def mkdir(self, path: Path) -> None:
        """Make a folder and its parents."""
        path.mkdir(parents=True, exist_ok=True)

    def unlink(self, path: Path) -> None:
        """Remove a file or link; a missing one is fine."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all it holds; a missing one is fine."""
        while path.exists():
            # An entry that somebody else removed meanwhile stops rmtree: go on with the rest.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)

    def sync_tree(self, path: Path) -> None:
        """Flush every regular file and folder below ``path``, whoever wrote them."""
        for folder, _, names in os.walk(path, onerror=_raise):
            for name in names:
                full = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(full).st_mode):
                    with open(full, "rb") as written:
                        os.fsync(written.fileno())
            self.sync_folder(Path(folder))

    def sync_folder(self, path: Path) -> None:
        """Flush a folder's entries, where the system lets a folder be opened and flushed."""
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


#: The real disk.
LOCAL = Fs()


class Closing:
    """A context manager that is closed when its block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what is open."""


def _renameat2(first: Path, second: Path, flags: int) -> None:
    """Linux's renameat2(2), which the standard library does not offer."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if _LINUX else None
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here = ctypes.c_int(-100)  # AT_FDCWD: relative names are relative to the working directory
    if function(here, os.fsencode(first), here, os.fsencode(second), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(first), None, os.fspath(second))


def _raise(error: OSError) -> None:
    raise error


def regular_file(path: str, flags: int) -> int:
    """An opener for `open` that takes regular files only: a pipe would wait for its other end.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def sha256_bytes(data: bytes | memoryview) -> str:
    """sha256 of bytes, lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces (OSError if it cannot be read)."""
    with open(path, "rb") as src:
        return hashlib.file_digest(src, "sha256").hexdigest()


def describe(root: Path, path: str) -> FileEntry:
    """The `FileEntry` of the file at ``root/path`` (``path`` relative, POSIX).

    Size and hash are of the same bytes, even while somebody writes the file.

    Raises:
        FilesError: EDGE-FILES-002 cannot be read, -004 ``path`` is not an allowed member name.
    """
    try:
        with open(root / path, "rb") as src:
            digest = hashlib.file_digest(src, "sha256").hexdigest()
            size = src.tell()
    except OSError as error:
        raise unreadable(error, root / path) from error
    try:
        return FileEntry(path=path, size=size, sha256=digest)
    except ValueError as error:
        where = str(root / path)
        hint = "rename the file"
        got = repr(path)
        wanted = "a name of letters, digits, '.', '_', '-' and '/'"
        raise FilesError("EDGE-FILES-004", where, hint=hint, got=got, wanted=wanted) from error


def describe_tree(root: Path, folder: str = "") -> tuple[FileEntry, ...]:
    """`describe` every file below ``root/folder``, sorted by path.

    Raises:
        FilesError: EDGE-FILES-002 missing or unreadable, -003 something that is neither a regular
            file nor a folder (a link, a pipe), -004 a name that no bundle may hold.
    """
    top = root / folder
    try:
        found = sorted(_walk(top))
    except OSError as error:
        raise unreadable(error, named(error, top)) from error
    for full in found:
        if full.is_symlink() or not full.is_file():
            wanted = "a regular file"
            got = "a link" if full.is_symlink() else "a special file"
            hint = "replace it by the file it stands for, or remove it"
            raise FilesError("EDGE-FILES-003", str(full), wanted=wanted, got=got, hint=hint)
    entries = [describe(root, full.relative_to(root).as_posix()) for full in found]
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _walk(top: Path) -> Iterator[Path]:
    """All below ``top`` that is not a folder; a link to a folder counts and is not followed."""
    for folder, folders, names in os.walk(top, onerror=_raise):
        yield from (Path(folder, name) for name in names)
        yield from (link for name in folders if (link := Path(folder, name)).is_symlink())


def named(error: OSError, otherwise: Path) -> Path:
    """The file that the system named in ``error``, if it named one."""
    name = error.filename
    return Path(name) if isinstance(name, str | os.PathLike) else otherwise


def _reason(error: OSError) -> dict[str, str]:
    """Fields of an error that say what the system said."""
    hint = HINTS.get(error.errno or 0, "see that the folder exists and is writable")
    return {"got": error.strerror or str(error) or type(error).__name__, "hint": hint}


def unreadable(error: OSError, path: Path) -> FilesError:
    """The coded error (EDGE-FILES-002) for a read that the system refused."""
    return FilesError(
        "EDGE-FILES-002", str(path), wanted="something that can be read", **_reason(error)
    )


def unwritable(error: OSError, path: Path) -> FilesError:
    """The coded error (EDGE-FILES-001) for a write that the system refused."""
    return FilesError("EDGE-FILES-001", str(path), **_reason(error))


def write_atomic(path: Path, data: bytes, fs: Fs = LOCAL) -> None:
    """Write ``path`` so that a reader sees the old bytes or the new, never a part.

    Folders above ``path`` are made. A link at ``path`` is replaced, not followed.

    Raises:
        FilesError: EDGE-FILES-001, with the old file untouched.
    """
    with staged_file(path, fs) as temporary:
        fs.write(temporary, data)


@contextlib.contextmanager
def staged_file(path: Path, fs: Fs = LOCAL) -> Iterator[Path]:
    """A fresh name beside ``path``; the file written there takes the place of ``path``.

    It does when the block ends without an error. Folders above ``path`` are made, a link at
    ``path`` is replaced, not followed.

    Raises:
        FilesError: EDGE-FILES-001, also for an OSError of the block; the old file is untouched.
    """
    temporary = _stage_beside(path, fs)
    try:
        fs.mkdir(path.parent)
        yield temporary
        fs.replace(temporary, path)
    except OSError as error:
        raise unwritable(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            fs.unlink(temporary)


@contextlib.contextmanager
def staged(target: Path, fs: Fs = LOCAL) -> Iterator[Path]:
    """A fresh folder beside ``target`` that takes its place when the block ends without an error.

    What stands in it is flushed first. Where the system can swap two names (Linux), a reader finds
    the old folder or the new at every instant; elsewhere the old one is moved aside for the moment
    between two renames, and `sweep` puts it back should the process die in that moment.

    Raises:
        FilesError: EDGE-FILES-001, also for an OSError of the block; the old folder is untouched.
    """
    stage = _stage_beside(target, fs)
    try:
        fs.mkdir(stage)
        yield stage
        fs.sync_tree(stage)
        _swap(stage, target, fs)
    except OSError as error:
        raise unwritable(error, named(error, target)) from error
    finally:
        with contextlib.suppress(OSError):
            _remove(stage, fs)


@contextlib.contextmanager
def scratch_folder(parent: Path, fs: Fs = LOCAL) -> Iterator[Path]:
    """A fresh folder for the block; what a killed process left of its own goes with the next one.

    Args:
        parent: Where it lies; where nothing can be written there, in the system's temporary folder.
        fs: What makes it.

    Raises:
        OSError: it can be made nowhere.
    """
    stage = _stage_beside(parent / "any", fs)
    try:
        fs.mkdir(stage)
    except OSError:  # left before the block runs, whose errors have other causes
        stage = Path(tempfile.mkdtemp(prefix="edgeserve-"))
    try:
        yield stage
    finally:
        with contextlib.suppress(OSError):
            _remove(stage, fs)


def _swap(stage: Path, target: Path, fs: Fs) -> None:
    """Put ``stage`` in the place of ``target``; on failure ``target`` is what it was."""
    if not os.path.lexists(target):
        fs.replace(stage, target)
        return
    try:
        fs.exchange(stage, target)  # what was there now has the stage's name, and goes with it
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        _swap_in_two(stage, target, fs)


def _swap_in_two(stage: Path, target: Path, fs: Fs) -> None:
    aside = stage.with_name(f"{stage.name}-{target.name}-old")
    try:
        fs.replace(target, aside)
        fs.replace(stage, target)
    finally:  # also on Ctrl-C between the two
        if not os.path.lexists(target):
            fs.replace(aside, target)
    with contextlib.suppress(OSError):
        _remove(aside, fs)


def _remove(path: Path, fs: Fs) -> None:
    if path.is_dir() and not path.is_symlink():
        fs.remove_tree(path)
    else:
        fs.unlink(path)


def sweep(folder: Path, fs: Fs = LOCAL) -> None:
    """Undo what interrupted runs left in ``folder`` (call only while holding its lock).

    What another live process is writing there stays.

    Raises:
        FilesError: EDGE-FILES-001, something cannot be removed.
    """
    for left in _stages(folder):
        try:
            found = _STAGE.fullmatch(left.name)
            # The lock keeps other machines out.
            mine = not found or found["place"] != _place() or int(found["pid"]) == os.getpid()
            if mine or (found and _is_dead(left, found)):
                _undo(left, fs)
        except OSError as error:
            raise unwritable(error, left) from error


def _stages(folder: Path) -> list[Path]:
    """What lies in a folder under a stage's name; nothing where it cannot be looked into."""
    with contextlib.suppress(OSError):
        return sorted(folder.glob(f"{_STAGE_PREFIX}*"))
    return []


def sweep_dead(folder: Path, fs: Fs = LOCAL) -> None:
    """Undo what dead processes left in ``folder``, as far as that can be done; needs no lock."""
    for left in _stages(folder):
        with contextlib.suppress(OSError):
            if (found := _STAGE.fullmatch(left.name)) and _is_dead(left, found):
                _undo(left, fs)


def _stage_beside(path: Path, fs: Fs) -> Path:
    """A fresh name beside ``path``, once what dead processes left there is removed."""
    if path.parent not in _looked_through:
        _looked_through.add(path.parent)
        sweep_dead(path.parent, fs)
    return path.with_name(f"{_STAGE_PREFIX}{_place()}-{os.getpid()}-{secrets.token_hex(4)}")


def _undo(left: Path, fs: Fs) -> None:
    found = _STAGE.fullmatch(left.name)
    if found and found["name"] and not os.path.lexists(left.with_name(found["name"])):
        fs.replace(left, left.with_name(found["name"]))
    else:
        _remove(left, fs)


def _is_dead(left: Path, found: re.Match[str]) -> bool:
    """Whether the process that was writing ``left`` has ended, as far as can be told from here."""
    if found["place"] != _place():
        return time.time() - left.lstat().st_mtime > _FOREIGN_S
    try:
        os.kill(int(found["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # of another user
    return False


@functools.cache
def _place() -> str:
    """Where a process id means one process: this machine, or this container."""
    said = platform.node()
    with contextlib.suppress(OSError):
        said += os.readlink("/proc/self/ns/pid")
    with contextlib.suppress(OSError):
        said += Path("/etc/machine-id").read_text()
    return sha256_bytes(said.encode())[:8]
