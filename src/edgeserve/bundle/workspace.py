"""`Workspace`: the private folder ``OUT/`` that grows stage by stage.

One process writes at a time, under a file lock; a stage works in ``.tmp-*``, renames, and the
manifest is written last. Readers never lock: they see the manifest of one finished stage, and every
file they take through it is held to the hash that it lists.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import filelock
import msgspec

from edgeserve.bundle.manifest import MANIFEST, MAX_BYTES, read_manifest, write_manifest
from edgeserve.bundle.rules import check_name
from edgeserve.errors import BundleError
from edgeserve.files import LOCAL, Closing, Fs, regular_file, sha256_bytes, sweep, write_atomic
from edgeserve.machine import coded
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.base import Value, decode, encode
from edgeserve.types.manifest import Manifest
from edgeserve.verified_files import open_file, sha256_open

_CHANGED = "run the stage that made it again; a stage of another process may be writing it now"


class LockHolder(Value, frozen=True):
    """Who holds a workspace's lock: for the error that the next one gets.

    Attributes:
        pid: Process.
        host: Machine, as it names itself.
        command: The command's words up to the first option, e.g. "edgeserve validate".
        since: UTC, ISO 8601.
    """

    pid: int
    host: str
    command: str
    since: str


class Workspace(Closing):
    """A folder that stages write into and everybody may read.

    Attributes:
        path: The folder ``OUT``; it need not exist yet.
        artifacts: Folder of the artifacts that may be used, one folder each.
        failed: Of those that may not.
        golden: Of golden cases.
        logs: Of the workers' job folders.
        reports: Of reports and measurements, in full.
        samples: Of the reference's answers.
        source: Of the exported source.
    """

    kind: Literal["workspace"] = "workspace"

    def __init__(self, path: str | Path, fs: Fs = LOCAL) -> None:
        self.path = root = Path(path)
        self.artifacts, self.failed = root / "artifacts", root / "failed"
        self.golden, self.logs, self.reports = root / "golden", root / "logs", root / "reports"
        self.samples, self.source = root / "samples", root / "source"
        self._fs = fs
        self._lock = filelock.FileLock(self.path / ".lock")
        self._read: tuple[tuple[int, int, int], Manifest] | None = None

    @property
    def exists(self) -> bool:
        """Whether a first stage has finished here."""
        return (self.path / MANIFEST).is_file()

    @property
    def manifest(self) -> Manifest:
        """The manifest as it lies on the disk now.

        Raises:
            BundleError: EDGE-BUNDLE-051 there is none; whatever `read_manifest` refuses.
        """
        try:
            with open(self.path / MANIFEST, "rb", opener=regular_file) as file:
                status = os.fstat(file.fileno())
                state = (status.st_ino, status.st_mtime_ns, status.st_size)
                if self._read is None or self._read[0] != state:
                    data = file.read(min(status.st_size, MAX_BYTES) + 1)
                    self._read = (state, read_manifest(data))
                return self._read[1]
        except OSError as error:
            raise BundleError(
                "EDGE-BUNDLE-051",
                str(self.path),
                wanted=f"a workspace with {MANIFEST}",
                got=error.strerror or str(error),
                hint=f"make one: edgeserve convert SOURCE -o {self.path}",
            ) from error

    @contextlib.contextmanager
    def lock(self, timeout: float = 2.0) -> Iterator[None]:
        """Hold the workspace for writing; the same object may hold it again within.

        What the system raises in the block gets a code (`edgeserve.machine.coded`).

        Args:
            timeout: Seconds to wait for another holder.

        Raises:
            BundleError: EDGE-BUNDLE-050, another process holds it; -052, it cannot be locked at
            all.
        """
        self._acquire(timeout)
        try:
            if self._lock.lock_counter == 1:
                self._sign()
            with coded(str(self.path)):
                yield
        finally:
            if self._lock.lock_counter == 1:
                with contextlib.suppress(OSError):
                    self._fs.unlink(self._holder)
            self._lock.release()

    def _acquire(self, timeout: float) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=timeout)
        except filelock.Timeout as error:
            raise BundleError(
                "EDGE-BUNDLE-050",
                str(self.path),
                wanted="the workspace for writing",
                got=f"it is held by {self._held_by()}",
                hint="wait until the other command has finished, or end it",
            ) from error
        except (OSError, NotImplementedError) as error:
            raise BundleError(
                "EDGE-BUNDLE-052",
                str(self.path),
                wanted="a folder that can be locked",
                got=str(error),
                hint="choose a folder on a local disk that you may write to, with -o",
            ) from error

    @property
    def _holder(self) -> Path:
        return self.path / ".lock.json"

    def _sign(self) -> None:
        """Note who holds the lock: for the wording of an error, so a full disk does not matter."""
        words = [Path(sys.argv[0]).name or "python", *sys.argv[1:2]]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = LockHolder(
            pid=os.getpid(), host=socket.gethostname(), command=" ".join(words), since=now
        )
        with contextlib.suppress(OSError):
            self._fs.unlink(self._holder)
            self._fs.write(self._holder, encode(holder))

    def _held_by(self) -> str:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            who = decode(self._holder.read_bytes(), LockHolder)
            return f"process {who.pid} on {who.host} ({who.command}), since {who.since}"
        return "another process"

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, last of a stage, after a look that each file it lists is there.

        Raises:
            BundleError: EDGE-BUNDLE-053 a listed file is missing or of another size; whatever
                `read_manifest` would refuse; as `lock`.
            FilesError: EDGE-FILES-001, with the old manifest untouched.
        """
        data = write_manifest(manifest)
        with self.lock():
            for entry in manifest.files:
                size = real_file(self.path, entry.path).st_size
                if size != entry.size:
                    raise _changed(self.path / entry.path, f"{entry.size} bytes", str(size))
            write_atomic(self.path / MANIFEST, data, self._fs)

    def sweep(self) -> None:
        """Remove what interrupted stages left, under the lock.

        Raises:
            BundleError: as `lock`.
            FilesError: EDGE-FILES-001, something cannot be removed.
        """
        with self.lock():
            folders = [self.artifacts, self.failed, self.golden, self.logs, self.reports]
            for folder in (self.path, self.samples, self.source, *folders):
                sweep(folder, self._fs)

    def read(self, member: str) -> bytes:
        """A listed file's bytes, after its sha256 held.

        Raises:
            BundleError: EDGE-BUNDLE-042 the manifest lists no such file, -053 it is missing or a
                link, -004 its bytes are not those listed.
        """
        entry = next((e for e in self.manifest.files if e.path == member), None)
        if entry is None:
            where = f"file {member!a}"
            wanted = "a file that the manifest lists"
            got = "none of that name"
            hint = f"{MANIFEST} lists the files of a workspace"
            raise BundleError("EDGE-BUNDLE-042", where, wanted=wanted, got=got, hint=hint)
        real_file(self.path, member)
        try:
            data = (self.path / member).read_bytes()
        except OSError as error:
            raise _changed(self.path / member, "a file", error.strerror or str(error)) from error
        self._check(entry, sha256_bytes(data))
        return data

    def local(self, artifact: Artifact) -> Path:
        """The workspace itself, after every file of the artifact held its sha256.

        Raises:
            BundleError: EDGE-BUNDLE-053 a file is missing or a link, -004 its bytes are not those
            listed.
        """
        for entry in artifact.files:
            real_file(self.path, entry.path)
            self._check(entry, _sha256(self.path / entry.path))
        return self.path

    def _check(self, entry: FileEntry, sha256: str) -> None:
        if sha256 != entry.sha256:
            where = str(self.path / entry.path)
            wanted = f"sha256 {entry.sha256}"
            raise BundleError("EDGE-BUNDLE-004", where, wanted=wanted, got=sha256, hint=_CHANGED)

    def close(self) -> None:
        """Nothing is held open: there for the sake of `Model`."""


def _sha256(path: Path) -> str:
    with coded(str(path)):
        fd = open_file(path)
        try:
            return sha256_open(fd)
        finally:
            os.close(fd)


def real_file(root: Path, member: str) -> os.stat_result:
    """Make sure that ``root/member`` is a regular file with no link on the way; its status.

    Raises:
        BundleError: EDGE-BUNDLE-009 the name is not allowed, -053 it is something else or missing.
    """
    check_name(member)
    path = root
    for part in member.split("/"):
        path = path / part
        try:
            status = path.lstat()
        except OSError as error:
            raise _changed(path, "a file", error.strerror or str(error)) from error
        if stat.S_ISLNK(status.st_mode):
            raise _changed(path, "a regular file", "a link")
    if not stat.S_ISREG(status.st_mode):
        raise _changed(path, "a regular file", "something else")
    return status


def _changed(path: Path, wanted: str, got: str) -> BundleError:
    return BundleError("EDGE-BUNDLE-053", str(path), wanted=wanted, got=got, hint=_CHANGED)
