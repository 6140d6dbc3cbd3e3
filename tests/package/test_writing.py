"""Writing: in little memory, and whole or not at all, whatever fails."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from bundlecases.content import Json, colour_files, colour_manifest

from edgeserve.bundle import Bundle
from edgeserve.errors import FilesError, PackageError
from edgeserve.files import Fs
from edgeserve.package import package
from edgeserve.types.options import PackageOptions

DATA = "artifacts/onnx-fp32/model.onnx.data"


class Full(Fs):
    """A disk that is full at its n-th operation; each chunk written is one."""

    def __init__(self, after: int) -> None:
        self.left = after

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def mkdir(self, path: Path) -> None:
        self._count()
        super().mkdir(path)

    def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
        self._count()
        super().write_chunks(path, self._some(chunks))

    def _some(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        for chunk in chunks:
            self._count()
            yield chunk

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)


@pytest.mark.parametrize("old", [None, b"an older bundle"])
def test_a_full_disk_leaves_the_old_bundle(old: bytes | None, workspace: Path) -> None:
    folder = workspace.parent / "bundles"
    folder.mkdir()
    out = folder / "model.edge"
    if old is not None:
        out.write_bytes(old)
    request = PackageOptions(out=str(workspace), bundle=str(out))
    failed = 0
    for after in range(60):
        done = None
        with contextlib.suppress(FilesError):
            done = package(request, Full(after))
        if done:
            Bundle(done.path).close()
            break
        failed += 1
        assert [p.name for p in folder.iterdir()] == (["model.edge"] if old else [])
        assert old is None or out.read_bytes() == old
    assert failed >= 12  # each header, each member, the directory, the end, the rename


def test_a_file_that_changes_while_it_is_copied(workspace: Path) -> None:
    class Late(Fs):
        def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
            model = workspace / "artifacts/onnx-fp32/model.onnx"
            model.write_bytes(b"\xff" + model.read_bytes()[1:])  # after it was read for its CRC
            super().write_chunks(path, chunks)

    out = workspace.parent / "bundles" / "model.edge"
    with pytest.raises(PackageError, match="EDGE-PACKAGE-007"):
        package(PackageOptions(out=str(workspace), bundle=str(out)), Late())
    assert list(out.parent.iterdir()) == []


def test_a_disk_that_writes_something_else(workspace: Path) -> None:
    """The finished file is read again: what is wrong on the disk never gets the bundle's name."""

    class Rotten(Fs):
        def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
            data = bytearray(b"".join(chunks))
            data[33_000] ^= 1
            super().write_chunks(path, [bytes(data)])

    out = workspace.parent / "bundles" / "model.edge"
    with pytest.raises(Exception, match="EDGE-BUNDLE-0"):
        package(PackageOptions(out=str(workspace), bundle=str(out)), Rotten())
    assert list(out.parent.iterdir()) == []


def test_weights_are_never_in_memory(
    write_workspace: Callable[[Json, dict[str, bytes]], Path], tmp_path: Path
) -> None:
    size = 96 << 20
    manifest = colour_manifest()
    digest = hashlib.sha256()
    for _ in range(size >> 20):
        digest.update(bytes(1 << 20))
    entry = {"path": DATA, "size": size, "sha256": digest.hexdigest()}
    manifest["files"].insert(1, entry)
    manifest["artifacts"][0]["files"].append(entry)
    workspace = write_workspace(manifest, colour_files())
    with open(workspace / DATA, "wb") as file:
        file.truncate(size)
    tracemalloc.start()
    done = package(PackageOptions(out=str(workspace), bundle=str(tmp_path / "model.edge")))
    with Bundle(done.path) as bundle:
        root = bundle.local(bundle.manifest.artifacts[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (root / DATA).stat().st_size == size
    assert done.size > size
    assert peak < 8 << 20
