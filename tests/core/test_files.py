"""Hashing and describing files: right values, and nothing passed over in silence."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from edgeserve.errors import FilesError
from edgeserve.files import LOCAL, describe, describe_tree, sha256_bytes, sha256_file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files at several depths, written out of order."""
    for name in ("b/c.bin", "a.txt", "b/A.txt", "b.txt", "b/d/e"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 100_000)
    return tmp_path / "tree"


def test_hashes_are_those_of_sha256sum(tree: Path) -> None:
    said = subprocess.run(
        ["sha256sum", tree / "b/c.bin"], capture_output=True, check=True, text=True
    )
    assert sha256_file(tree / "b/c.bin") == said.stdout.split()[0]
    assert (
        sha256_bytes(b"abc")
        == sha256_bytes(memoryview(b"abc"))
        == hashlib.sha256(b"abc").hexdigest()
    )


def test_describe(tree: Path) -> None:
    entry = describe(tree, "b/c.bin")
    data = b"b/c.bin" * 100_000
    assert (entry.path, entry.size) == ("b/c.bin", len(data))
    assert entry.sha256 == hashlib.sha256(data).hexdigest()


def test_describe_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert describe(tmp_path, "empty").size == 0


def test_describe_tree_is_sorted_as_strings(tree: Path) -> None:
    assert [e.path for e in describe_tree(tree)] == [
        "a.txt",
        "b.txt",
        "b/A.txt",
        "b/c.bin",
        "b/d/e",
    ]
    assert [e.path for e in describe_tree(tree, "b")] == ["b/A.txt", "b/c.bin", "b/d/e"]
    assert describe_tree(tree)[3] == describe(tree, "b/c.bin")


@pytest.mark.parametrize("path", ["no such", "b", "a.txt/x"])
def test_describe_what_is_no_file(tree: Path, path: str) -> None:
    with pytest.raises(FilesError) as error:
        describe(tree, path)
    assert error.value.code == "EDGE-FILES-002"
    assert str(tree / path) in error.value.thing
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.parametrize("folder", ["no such", "a.txt"])
def test_describe_tree_of_what_is_no_folder(tree: Path, folder: str) -> None:
    with pytest.raises(FilesError) as error:
        describe_tree(tree, folder)
    assert error.value.code == "EDGE-FILES-002"


def test_a_folder_that_cannot_be_read_is_not_passed_over(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(path: str) -> object:  # root may read everything, so the refusal is played
        if str(path).endswith("d"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(FilesError) as error:
        describe_tree(tree)
    assert error.value.code == "EDGE-FILES-002"
    assert error.value.thing == str(tree / "b/d")


@pytest.mark.parametrize("target", ["a.txt", "b", "/etc/passwd", "no such"])
def test_links_are_refused(tree: Path, target: str) -> None:
    (tree / "b" / "link").symlink_to(target if target[0] == "/" else tree / target)
    with pytest.raises(FilesError) as error:
        describe_tree(tree)
    assert error.value.code == "EDGE-FILES-003"
    assert error.value.thing == str(tree / "b/link")
    assert "link" in error.value.got


def test_a_pipe_is_refused_and_not_opened(tree: Path) -> None:
    os.mkfifo(tree / "b" / "pipe")  # to open it would wait for a writer that never comes
    with pytest.raises(FilesError) as error:
        describe_tree(tree)
    assert (error.value.code, error.value.got) == ("EDGE-FILES-003", "a special file")


@pytest.mark.parametrize("name", [".hidden", "a b", "ä", "x\ny", "-x"])
def test_names_no_bundle_may_hold(tree: Path, name: str) -> None:
    (tree / name).touch()
    with pytest.raises(FilesError) as error:
        describe_tree(tree)
    assert error.value.code == "EDGE-FILES-004"
    assert "\n" not in error.value.message


def test_write_makes_new_files_only(tmp_path: Path) -> None:
    LOCAL.write(tmp_path / "new", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("new", "link"):
        with pytest.raises(FileExistsError):
            LOCAL.write(tmp_path / name, b"2")
        with pytest.raises(FileExistsError):
            LOCAL.copy(tmp_path / "new", tmp_path / name)
    assert (tmp_path / "new").read_bytes() == b"1"
    assert not (tmp_path / "elsewhere").exists()


def test_copy_makes_an_inode_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    LOCAL.copy(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").write_bytes(b"changed")
    assert (tmp_path / "b").read_bytes() == b"x" * 3_000_000


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    LOCAL.unlink(tmp_path / "no such")
    LOCAL.remove_tree(tmp_path / "no such")
    assert list(tmp_path.iterdir()) == []


def test_exchange_swaps_two_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
    LOCAL.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a/who").read_text() == "b"
    assert (tmp_path / "b/who").read_text() == "a"


def test_exchange_with_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError):
        LOCAL.exchange(tmp_path / "a", tmp_path / "b")
