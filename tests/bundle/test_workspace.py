"""Workspaces: one writer, readers who never lock, a manifest that is whole."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from edgeserve.bundle import Workspace, open_model
from edgeserve.errors import BundleError, FilesError
from edgeserve.files import Fs, describe

MODEL = "artifacts/onnx-fp32/model.onnx"

HOLD = """
import sys, time
from edgeserve.bundle import Workspace
with Workspace(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_workspace_is_what_its_manifest_says(workspace: Path) -> None:
    with Workspace(workspace) as opened:
        assert opened.exists
        assert opened.manifest.name == "colour"
        assert opened.read(MODEL) == (workspace / MODEL).read_bytes()
        assert opened.local(opened.manifest.artifacts[0]) == workspace
        folders = [opened.artifacts, opened.failed, opened.golden, opened.logs, opened.reports]
        assert [f.name for f in folders] == ["artifacts", "failed", "golden", "logs", "reports"]
        assert (opened.source.name, opened.samples.name) == ("source", "samples")


def test_an_empty_folder_is_none_yet(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not-there"):
        opened = Workspace(path)
        assert not opened.exists
        with pytest.raises(BundleError, match="EDGE-BUNDLE-051"):
            _ = opened.manifest


def test_a_new_manifest_is_seen_at_once(workspace: Path) -> None:
    reader, writer = Workspace(workspace), Workspace(workspace)
    for version in (2, 3, 4):
        writer.write_manifest(msgspec.structs.replace(writer.manifest, version=version))
        assert reader.manifest.version == version
    assert reader.manifest is reader.manifest  # not decoded again while it has not changed


@pytest.mark.parametrize("harm", ["flip", "missing", "link", "folder-link"])
def test_a_changed_file_is_not_handed_out(harm: str, workspace: Path, tmp_path: Path) -> None:
    model = workspace / MODEL
    right = model.read_bytes()
    if harm == "flip":
        model.write_bytes(right[:-1] + b"\xff")
    elif harm == "folder-link":
        model.parent.rename(tmp_path / "moved")
        model.parent.symlink_to(tmp_path / "moved", target_is_directory=True)
    else:
        model.unlink()
        if harm == "link":
            (tmp_path / "model.onnx").write_bytes(right)
            model.symlink_to(tmp_path / "model.onnx")
    opened = Workspace(workspace)
    code = "EDGE-BUNDLE-004" if harm == "flip" else "EDGE-BUNDLE-053"
    for ask in (lambda: opened.read(MODEL), lambda: opened.local(opened.manifest.artifacts[0])):
        with pytest.raises(BundleError) as refused:
            ask()
        assert refused.value.code == code


def test_a_manifest_is_written_only_when_its_files_are_there(workspace: Path) -> None:
    opened = Workspace(workspace)
    before = (workspace / "manifest.json").read_bytes()
    manifest = opened.manifest
    (workspace / "golden" / "000.png").write_bytes(b"other")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-053"):
        opened.write_manifest(manifest)
    (workspace / "golden" / "000.png").unlink()
    with pytest.raises(BundleError, match="EDGE-BUNDLE-053"):
        opened.write_manifest(manifest)
    assert (workspace / "manifest.json").read_bytes() == before


def test_a_bad_manifest_on_disk_is_refused(workspace: Path) -> None:
    (workspace / "manifest.json").write_bytes(b"{")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-031"):
        open_model(workspace)
    with open(workspace / "manifest.json", "wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(BundleError, match="EDGE-BUNDLE-030"):
        open_model(workspace)


def test_a_second_writer_is_told_who_holds_it(workspace: Path) -> None:
    command = [sys.executable, "-P", "-c", HOLD, str(workspace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        opened = Workspace(workspace)
        with pytest.raises(BundleError) as refused, opened.lock(timeout=0.05):
            pass
        assert refused.value.code == "EDGE-BUNDLE-050"
        assert f"process {holder.pid} " in refused.value.got
        assert opened.manifest.version == 1  # readers do not mind
        opened.read(MODEL)
        holder.kill()  # a holder that dies lets go
    with opened.lock(timeout=5):
        told = json.loads((workspace / ".lock.json").read_bytes())
        assert told["pid"] == os.getpid()
    assert not (workspace / ".lock.json").exists()


def test_the_lock_may_be_held_again_within(workspace: Path) -> None:
    opened = Workspace(workspace)
    with opened.lock(), opened.lock():
        opened.write_manifest(opened.manifest)
        assert (workspace / ".lock.json").exists()
    with Workspace(workspace).lock(timeout=0):
        pass


def test_another_thread_waits_its_turn(workspace: Path) -> None:
    opened = Workspace(workspace)
    order: list[str] = []

    def second() -> None:
        with Workspace(workspace).lock(timeout=10):
            order.append("second")

    with opened.lock():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(BundleError, match="EDGE-BUNDLE-052"),
        Workspace(tmp_path / "file" / "out").lock(),
    ):
        pass


def test_a_first_manifest_makes_the_folder(workspace: Path, tmp_path: Path) -> None:
    manifest = Workspace(workspace).manifest
    made = Workspace(tmp_path / "a" / "b")
    with made.lock():
        for entry in manifest.files:
            (made.path / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (made.path / entry.path).write_bytes((workspace / entry.path).read_bytes())
        made.write_manifest(manifest)
    assert Workspace(made.path).read("identity.json") == (workspace / "identity.json").read_bytes()


def test_leftovers_are_swept_and_nothing_else(workspace: Path) -> None:
    kept = sorted(p for p in workspace.rglob("*") if p.is_file())
    for place in (workspace, workspace / "artifacts", workspace / "samples", workspace / "source"):
        (place / ".tmp-0123abcd").mkdir()
        (place / ".tmp-0123abcd" / "half").write_bytes(b"half")
        (place / ".tmp-89abcdef").write_bytes(b"half")
    Workspace(workspace).sweep()
    assert sorted(p for p in workspace.rglob("*") if p.is_file() and p.name != ".lock") == kept


class Failing(Fs):
    """Fails at one operation."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _may(self, name: str) -> None:
        if name == self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, path: Path, data: bytes) -> None:
        if path.name != ".lock.json":
            self._may("write")
            if self.name == "write-half":
                super().write(path, data[: len(data) // 2])
                self._may("write-half")
        super().write(path, data)

    def replace(self, source: Path, target: Path) -> None:
        self._may("replace")
        super().replace(source, target)


@pytest.mark.parametrize("name", ["write", "write-half", "replace"])
def test_a_full_disk_leaves_the_old_manifest(
    name: str, workspace: Path, check_same: Callable[[], None]
) -> None:
    opened = Workspace(workspace, Failing(name))
    with pytest.raises(FilesError, match="EDGE-FILES-001"):
        opened.write_manifest(msgspec.structs.replace(opened.manifest, version=9))
    check_same()


@pytest.fixture
def check_same(workspace: Path) -> Callable[[], None]:
    """A look that the workspace holds what it held, and nothing more."""

    def listed() -> dict[str, str]:
        paths = [p for p in workspace.rglob("*") if p.is_file() and p.name != ".lock"]
        return {
            str(p): describe(workspace, p.relative_to(workspace).as_posix()).sha256 for p in paths
        }

    before = listed()

    def check() -> None:
        assert listed() == before

    return check
