"""Extraction: verified, whole or not at all, shared by processes, pruned by size."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from edgeserve.bundle import Bundle
from edgeserve.bundle.cache import ArtifactCache, default_limit, default_root
from edgeserve.errors import BundleError, EdgeError, FilesError
from edgeserve.files import Fs, describe
from edgeserve.types.artifact import FileEntry


def files_below(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_an_artifact_lies_there_whole(folder: Path, tmp_path: Path) -> None:
    with Bundle(folder, ArtifactCache(tmp_path / "cache")) as bundle:
        for artifact in bundle.manifest.artifacts:
            root = bundle.local(artifact)
            assert files_below(root) == {e.path: bundle.read(e.path) for e in artifact.files}
            assert (root / artifact.entry).exists()
            assert all((root / e.path).stat().st_nlink == 1 for e in artifact.files)


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colour: Path
) -> None:
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("EDGESERVE_CACHE_LIMIT", "1000")
    assert default_root() == tmp_path / "mine"
    assert default_limit() == 1000
    with Bundle(colour) as bundle:
        assert tmp_path / "mine" in bundle.local(bundle.manifest.artifacts[0]).parents
    monkeypatch.delenv("EDGESERVE_CACHE")
    assert default_root().name == "edgeserve"
    for wrong in ("8G", "-1", "", "\u0663"):
        monkeypatch.setenv("EDGESERVE_CACHE_LIMIT", wrong)
        with pytest.raises(BundleError, match="EDGE-BUNDLE-061"):
            default_limit()


def test_what_is_there_is_used_again(colour: Path, tmp_path: Path) -> None:
    with Bundle(colour, ArtifactCache(tmp_path / "cache")) as bundle:
        artifact = bundle.manifest.artifacts[0]
        first = bundle.local(artifact)
        inode = (first / artifact.entry).stat().st_ino
        assert bundle.local(artifact) == first
        assert (first / artifact.entry).stat().st_ino == inode


@pytest.mark.parametrize(
    "harm",
    ["flip", "longer", "cut", "missing", "extra", "link", "hard-link", "folder-link", "file"],
)
def test_what_was_changed_is_extracted_again(harm: str, colour: Path, tmp_path: Path) -> None:
    with Bundle(colour, ArtifactCache(tmp_path / "cache")) as bundle:
        artifact = bundle.manifest.artifacts[0]
        root = bundle.local(artifact)
        model = root / artifact.entry
        right = model.read_bytes()
        do_harm(harm, root, model, tmp_path / "elsewhere")
        assert bundle.local(artifact) == root
        assert not model.is_symlink()
        assert not root.is_symlink()
        assert files_below(root) == {artifact.entry: right}


def do_harm(harm: str, root: Path, model: Path, elsewhere: Path) -> None:
    data = model.read_bytes()
    elsewhere.write_bytes(data)
    if harm in ("flip", "longer", "cut"):
        changed = {"flip": b"\xff" + data[1:], "longer": data + b"x", "cut": data[:-1]}[harm]
        model.write_bytes(changed)
    elif harm == "extra":
        (model.parent / "model.onnx.data").write_bytes(b"weights that nobody proved")
    elif harm == "folder-link":
        root.rename(root.with_name("moved"))
        root.symlink_to(root.with_name("moved"), target_is_directory=True)
    elif harm == "file":
        root.rename(root.with_name("moved"))
        root.write_bytes(b"a file")
    else:
        model.unlink()
        if harm == "link":
            model.symlink_to(elsewhere)
        elif harm == "hard-link":
            os.link(elsewhere, model)


EXTRACT = """
import sys
from pathlib import Path
from edgeserve.bundle import Bundle
from edgeserve.bundle.cache import ArtifactCache
with Bundle(sys.argv[1], ArtifactCache(sys.argv[2] and Path(sys.argv[2]))) as bundle:
    for _ in range(3):
        for artifact in bundle.manifest.artifacts:
            root = bundle.local(artifact)
            for entry in artifact.files:
                assert (root / entry.path).read_bytes() == bundle.read(entry.path)
"""


def test_many_processes_extract_at_once(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-P", "-c", EXTRACT, str(folder), str(cache)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(5)]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    left = sorted(path.name for path in next(cache.iterdir()).iterdir())
    assert [name for name in left if name.startswith(".tmp-")] == []
    assert len([name for name in left if name[0] != "." and not name.endswith(".used")]) == 2


class Full(Fs):
    """A disk that is full at its n-th operation, and from then on."""

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
            yield chunk
            self._count()

    def sync_tree(self, path: Path) -> None:
        self._count()
        super().sync_tree(path)

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)


def test_a_full_disk_leaves_nothing_half_written(folder: Path, tmp_path: Path) -> None:
    failed = 0
    for after in range(40):
        cache = tmp_path / f"cache-{after}"
        with Bundle(folder, ArtifactCache(cache, fs=Full(after))) as bundle:
            artifact = bundle.manifest.artifacts[1]
            root = None
            with contextlib.suppress(FilesError):
                root = bundle.local(artifact)
            if root:
                assert len(files_below(root)) == len(artifact.files)
                break
            failed += 1
            there = [path.name for path in (cache / "artifacts-1").iterdir()]
            assert [name for name in there if name != ".lock"] == []
    assert failed >= 8


def entry_of(tmp_path: Path, name: str, size: int) -> tuple[FileEntry, bytes]:
    (tmp_path / name).write_bytes(os.urandom(size))
    return describe(tmp_path, name), (tmp_path / name).read_bytes()


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache", limit=2500)
    folders = []
    for n in range(4):
        entry, data = entry_of(tmp_path, f"file{n}", 1000)
        folders.append(cache.folder(f"f{n}", [entry], lambda _, data=data: [data]))
        long_ago = time.time() - 10_000 + n
        os.utime(folders[-1].with_name(folders[-1].name + ".used"), (long_ago, long_ago))
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    marks = list(folders[0].parent.glob("*.used"))
    assert len(marks) == 2


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache", limit=0)
    folders = []
    for n in range(3):
        entry, data = entry_of(tmp_path, f"file{n}", 1000)
        folders.append(cache.folder(f"f{n}", [entry], lambda _, data=data: [data]))
    assert all(folder.exists() for folder in folders)


def test_a_fill_that_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    entry, data = entry_of(tmp_path, "file", 1000)

    def fill(_: FileEntry) -> Iterable[bytes]:
        yield data[:500]
        raise BundleError("EDGE-BUNDLE-004", "file", got="other bytes", hint="again")

    with pytest.raises(EdgeError, match="EDGE-BUNDLE-004"):
        cache.folder("f", [entry], fill)
    assert [p.name for p in cache.root.iterdir()] == [".lock"]


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_the_cache_is_for_its_user_alone_whatever_the_umask(
    umask: int, colour: Path, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        with Bundle(colour, ArtifactCache(tmp_path / "cache")) as bundle:
            first = bundle.local(bundle.manifest.artifacts[0])
            assert bundle.local(bundle.manifest.artifacts[0]) == first
    finally:
        os.umask(before)
    for folder in (tmp_path / "cache", tmp_path / "cache" / "artifacts-1"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("below", ["", "artifacts-1"])
@pytest.mark.parametrize("harm", ["group", "others", "owner"])
def test_a_cache_that_others_may_write_to_is_refused(
    harm: str, below: str, colour: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    (cache / "artifacts-1").mkdir(mode=0o700, parents=True)
    if harm == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives folders away")
        os.chown(cache / below, 12_345, -1)
    else:
        (cache / below).chmod(0o770 if harm == "group" else 0o707)
    with Bundle(colour, ArtifactCache(cache)) as bundle:
        with pytest.raises(BundleError, match="EDGE-BUNDLE-062") as refused:
            bundle.local(bundle.manifest.artifacts[0])
        assert f"chmod go-w {cache / below}" in refused.value.hint
        if harm != "owner":  # the hint works
            subprocess.run(["chmod", "go-w", cache / below], check=True)
            assert bundle.local(bundle.manifest.artifacts[0]).is_dir()


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, colour: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    bundle = Bundle(colour, ArtifactCache(tmp_path / "file"))
    with bundle, pytest.raises(BundleError, match="EDGE-BUNDLE-060") as refused:
        bundle.local(bundle.manifest.artifacts[0])
    assert "EDGESERVE_CACHE" in refused.value.hint
