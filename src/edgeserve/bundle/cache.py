"""The per-user cache that bundles are extracted into, by content hash.

A folder of the cache holds one artifact's files and nothing else. It is filled in a stage, every
file a fresh inode, and renamed into place; it is used only after the size and sha256 of every file
have been checked again, so a changed or half-written folder is extracted anew, never run. Filling
and pruning happen under one lock, which readers of a good folder never take.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from edgeserve.errors import BundleError
from edgeserve.files import HINTS, LOCAL, Fs, staged, sweep
from edgeserve.types.artifact import FileEntry
from edgeserve.verified_files import open_file, sha256_open

#: A folder used within this time is never pruned: its user may not have opened the files yet.
GRACE_S = 900.0
_LIMIT = 8 << 30
_WAIT_S = 600.0


def default_root() -> Path:
    """``EDGESERVE_CACHE``, or the folder that the system gives for caches."""
    if given := os.environ.get("EDGESERVE_CACHE"):
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("edgeserve", appauthor=False))


def default_limit() -> int:
    """``EDGESERVE_CACHE_LIMIT`` in bytes, or 8 GiB.

    Raises:
        BundleError: EDGE-BUNDLE-061, it is not a number.
    """
    given = os.environ.get("EDGESERVE_CACHE_LIMIT", str(_LIMIT))
    if not given.isascii() or not given.isdigit():
        where = "EDGESERVE_CACHE_LIMIT"
        got = ascii(given)
        hint = "set it to e.g. 8589934592, or unset it"
        raise BundleError("EDGE-BUNDLE-061", where, wanted="a number of bytes", got=got, hint=hint)
    return int(given)


def private_folder(name: str, root: Path | None = None) -> Path:
    """A folder of the cache, made where it is missing, that only this user (or root) can write.

    Args:
        name: The folder's.
        root: The cache's; None: `default_root`.

    Raises:
        BundleError: EDGE-BUNDLE-060 it cannot be made, -062 others may write to it.
    """
    root = root or default_root()
    try:
        for folder in (root, root / name):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o700)
            _check_private(folder)
    except OSError as error:
        raise _unusable(root, error) from error
    return root / name


def _check_private(folder: Path) -> None:
    """Where users are numbered, the folder is this one's and nobody else may write to it."""
    status = folder.stat()
    if not hasattr(os, "geteuid") or (_ours(status) and not status.st_mode & 0o022):
        return
    got = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
    wanted = f"owner {os.geteuid()}, mode 0700"
    hint = f"`chmod go-w {folder}` if it is yours, or set EDGESERVE_CACHE to a folder of your own"
    raise BundleError("EDGE-BUNDLE-062", str(folder), wanted=wanted, got=got, hint=hint)


def _ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def _unusable(root: Path, error: Exception) -> BundleError:
    number = error.errno if isinstance(error, OSError) else None
    hint = "set EDGESERVE_CACHE to a folder on a local disk that you may write to"
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EIO):
        hint = f"{HINTS[number]}; or {hint}"
    wanted = "a folder that can be locked"
    return BundleError("EDGE-BUNDLE-060", str(root), wanted=wanted, got=str(error), hint=hint)


class ArtifactCache:
    """Extracted artifacts, shared by all processes of a user.

    Args:
        root: Where it lies; None: `default_root`.
        limit: Bytes above which the least recently used folders go; None: `default_limit`.
        fs: What writes.
    """

    def __init__(self, root: Path | None = None, limit: int | None = None, fs: Fs = LOCAL) -> None:
        self._home = root or default_root()
        self.root = self._home / "artifacts-1"
        self._limit = default_limit() if limit is None else limit
        self._fs = fs

    def folder(
        self, title: str, files: Sequence[FileEntry], fill: Callable[[FileEntry], Iterable[bytes]]
    ) -> Path:
        """The folder that holds exactly ``files``, extracted if it is not there or was changed.

        Args:
            title: What people see in the folder's name.
            files: Relative path, size and sha256 of each.
            fill: Gives a file's bytes, and raises at their end if they are not the right ones.

        Raises:
            BundleError: what ``fill`` raised; EDGE-BUNDLE-060 the cache cannot be locked, -062
                others may write to it.
            FilesError: EDGE-FILES-001, the cache cannot be written.
        """
        target = private_folder(self.root.name, self._home) / f"{title}-{_key(files)}"
        if not _holds(target, files):
            with self._locked():
                if not _holds(target, files):
                    sweep(self.root, self._fs)
                    with staged(target, self._fs) as stage:
                        for entry in files:
                            self._fs.mkdir((stage / entry.path).parent)
                            self._fs.write_chunks(stage / entry.path, fill(entry))
                    self._prune(keep=target)
        # The folder is in use now; a cache that cannot be written is still readable.
        with contextlib.suppress(OSError):
            _mark(target).touch()
        return target

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The one lock for all that changes the cache."""
        import filelock

        try:
            lock = filelock.FileLock(self.root / ".lock", timeout=_WAIT_S)
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # filelock.Timeout is an OSError
            raise _unusable(self.root, error) from error
        try:
            yield
        finally:
            lock.release()

    def _prune(self, keep: Path) -> None:
        """Remove the least recently used folders until the rest fits, sparing those in use."""
        found = [path for path in self.root.iterdir() if path.is_dir() and path.name[0] != "."]
        sizes = {path: _size(path) for path in found}
        total = sum(sizes.values())
        for path in sorted(found, key=_used):
            if total <= self._limit:
                return
            if path == keep or time.time() - _used(path) < GRACE_S:
                continue
            with contextlib.suppress(OSError):  # another system may refuse while a file is open
                aside = self.root / f".tmp-{path.name}"
                self._fs.replace(path, aside)
                self._fs.remove_tree(aside)
                self._fs.unlink(_mark(path))
                total -= sizes[path]


def _key(files: Sequence[FileEntry]) -> str:
    """Content hash of a list of files: paths, sizes and sha256; 160 bits keep paths short."""
    lines = "".join(f"{f.sha256} {f.size} {f.path}\n" for f in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:40]


def _mark(path: Path) -> Path:
    """The file beside a folder whose time says when the folder was last used."""
    return path.with_name(path.name + ".used")


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return _mark(path).stat().st_mtime
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    """Bytes of the files below ``path``; what vanishes meanwhile counts as nothing."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _holds(target: Path, files: Sequence[FileEntry]) -> bool:
    """Whether ``target`` holds these files with these bytes, unshared, and nothing else."""
    try:
        if not stat.S_ISDIR(os.lstat(target).st_mode):
            return False
        there = {path.relative_to(target).as_posix(): path.lstat() for path in target.rglob("*")}
        kept = {p: s for p, s in there.items() if not stat.S_ISDIR(s.st_mode)}
        if kept.keys() != {entry.path for entry in files}:
            return False
        return all(map(_ours, there.values())) and all(_is(target / e.path, e) for e in files)
    except OSError:
        return False


def _is(path: Path, entry: FileEntry) -> bool:
    fd = open_file(path)
    try:
        status = os.fstat(fd)
        same = status.st_nlink == 1 and status.st_size == entry.size
        return same and sha256_open(fd) == entry.sha256
    finally:
        os.close(fd)
