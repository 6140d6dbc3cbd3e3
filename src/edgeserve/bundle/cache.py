"""The per-user cache that bundles are extracted into, by content hash.

A folder of the cache holds one artifact's files and nothing else. It is filled in a stage, every
file a fresh inode, and renamed into place; it is used only after the size and sha256 of every file
have been checked again, so a changed or half-written folder is extracted anew, never run. Filling
and pruning happen under one lock, which readers of a good folder never take.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from edgeserve.errors import BundleError
from edgeserve.files import LOCAL, Fs, sha256_file, staged, sweep
from edgeserve.types.artifact import FileEntry

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


class ArtifactCache:
    """Extracted artifacts, shared by all processes of a user.

    Args:
        root: Where it lies; None: `default_root`.
        limit: Bytes above which the least recently used folders go; None: `default_limit`.
        fs: What writes.
    """

    def __init__(self, root: Path | None = None, limit: int | None = None, fs: Fs = LOCAL) -> None:
        self.root = (root or default_root()) / "artifacts-1"
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
            BundleError: what ``fill`` raised; EDGE-BUNDLE-060, the cache cannot be locked.
            FilesError: EDGE-FILES-001, the cache cannot be written.
        """
        target = self.root / f"{title}-{_key(files)}"
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
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = filelock.FileLock(self.root / ".lock", timeout=_WAIT_S)
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # filelock.Timeout is an OSError
            raise BundleError(
                "EDGE-BUNDLE-060",
                str(self.root),
                wanted="a folder that can be locked",
                got=str(error),
                hint="set EDGESERVE_CACHE to a folder on a local disk that you may write to",
            ) from error
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
        return all(_is(target / e.path, kept[e.path], e) for e in files)
    except OSError:
        return False


def _is(path: Path, status: os.stat_result, entry: FileEntry) -> bool:
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size != entry.size:
        return False
    return sha256_file(path) == entry.sha256
