"""What a runtime opens is the file that was hashed, whatever its name means by then."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeserve.errors import BackendError, EdgeError
from edgeserve.files import describe, sha256_bytes
from edgeserve.types.artifact import FileEntry
from edgeserve.verified_files import VerifiedFiles, open_file, sha256_open

GOOD, EVIL = b"the bytes that were proven", b"other bytes of equal size."
ENTRY = "artifacts/onnx-fp32/model/part.bin"


@pytest.fixture
def entries(tmp_path: Path) -> tuple[FileEntry, ...]:
    for name in (ENTRY, "artifacts/onnx-fp32/more.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(GOOD)
    return (describe(tmp_path, ENTRY), describe(tmp_path, "artifacts/onnx-fp32/more.bin"))


def write(path: Path) -> None:
    path.write_bytes(EVIL)


def rename(path: Path) -> None:
    path.with_name("other").write_bytes(EVIL)
    path.with_name("other").rename(path)


def there_and_back(path: Path) -> None:
    """The right file has its name before and after; only in between it is another's."""
    path.rename(path.with_name("kept"))
    write(path)
    path.with_name("kept").rename(path)


def by_folder(path: Path) -> None:
    there_and_back_of_folder(path.parent)


def by_folder_above(path: Path) -> None:
    there_and_back_of_folder(path.parent.parent)


def there_and_back_of_folder(folder: Path) -> None:
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()
    folder.rmdir()
    aside.rename(folder)


def by_link(path: Path) -> None:
    os.link(path, path.with_name("kept"))
    rename(path)
    path.with_name("kept").rename(path)


HARMS = (write, rename, there_and_back, by_folder, by_folder_above, by_link)


@pytest.mark.parametrize("harm", HARMS)
def test_a_name_that_meant_another_file_meanwhile_is_found(
    harm: Callable[[Path], None], entries: tuple[FileEntry, ...], tmp_path: Path
) -> None:
    with VerifiedFiles(entries, tmp_path) as files:
        files.check_names()
        time.sleep(0.01)  # a file system counts time in steps
        harm(tmp_path / ENTRY)
        with pytest.raises(BackendError, match="EDGE-BACKEND-011"):
            files.check_names()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no files of descriptors")
@pytest.mark.parametrize("harm", HARMS[1:])
def test_a_descriptor_stays_the_file_that_was_hashed(
    harm: Callable[[Path], None], entries: tuple[FileEntry, ...], tmp_path: Path
) -> None:
    with VerifiedFiles(entries[:1], tmp_path) as files:
        path = files.path(ENTRY)
        harm(tmp_path / ENTRY)
        assert path.read_bytes() == GOOD
        files.check_names()  # nothing was opened by name


def test_neighbours_may_come_and_go(entries: tuple[FileEntry, ...], tmp_path: Path) -> None:
    """Stages that run side by side write other artifacts of the same folder."""
    with VerifiedFiles(entries, tmp_path) as files:
        (tmp_path / "artifacts" / "tflite-fp32").mkdir()
        (tmp_path / "manifest.json").write_bytes(b"{}")
        files.check_names()


def test_a_hash_is_taken_again_after_every_change(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(GOOD)
    fd = open_file(path)
    for age in (0, 100):  # a young status proves nothing, an old one saves the reading
        os.utime(path, (time.time() - age,) * 2)
        for data in (GOOD, EVIL, GOOD):
            status = path.stat()
            path.write_bytes(data)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            assert sha256_open(fd) == sha256_bytes(data)
    os.close(fd)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_trouble_of_the_machine_is_no_changed_file(
    number: int, entries: tuple[FileEntry, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(EdgeError, match="EDGE-FILES-007"):
        VerifiedFiles(entries, tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "loop"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(
    kind: str, entries: tuple[FileEntry, ...], tmp_path: Path
) -> None:
    path = tmp_path / ENTRY
    path.rename(tmp_path / "kept")
    {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(tmp_path / "kept"),
        "loop": lambda: path.symlink_to(path),
    }[kind]()
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    with pytest.raises(BackendError, match="EDGE-BACKEND-011"):
        VerifiedFiles(entries, tmp_path)
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors
