"""An open bundle: what it hands out, and what it does when the file changes under it."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest

from edgeserve.bundle import Bundle, Workspace, open_model
from edgeserve.errors import BundleError

MODEL = "artifacts/onnx-fp32/model.onnx"


def test_the_one_door_opens_both(colour: Path, workspace: Path, tmp_path: Path) -> None:
    with open_model(colour) as bundle, open_model(str(workspace)) as folder:
        assert (bundle.kind, folder.kind) == ("bundle", "workspace")
        assert isinstance(folder, Workspace)
        assert bundle.manifest.model_id == folder.manifest.model_id
        assert bundle.read(MODEL) == folder.read(MODEL)
    for path, code in ((tmp_path / "none", "001"), (tmp_path, "051")):
        with pytest.raises(BundleError, match=f"EDGE-BUNDLE-{code}"):
            open_model(path)


def test_the_whole_file_has_a_hash(colour: Path) -> None:
    with Bundle(colour) as bundle:
        assert bundle.sha256 == hashlib.sha256(colour.read_bytes()).hexdigest()
        assert bundle.size == colour.stat().st_size


@pytest.mark.parametrize(
    "name", ["none", "../etc/passwd", "", "manifest.json", "samples/photo.png"]
)
def test_only_what_is_listed_can_be_read(name: str, colour: Path, workspace: Path) -> None:
    with Bundle(colour) as bundle, pytest.raises(BundleError, match="EDGE-BUNDLE-042"):
        bundle.read(name)
    with pytest.raises(BundleError, match="EDGE-BUNDLE-042"):
        Workspace(workspace).read(name)


def test_only_its_own_artifacts_are_extracted(colour: Path, folder: Path) -> None:
    with Bundle(colour) as bundle, Bundle(folder) as other:
        with pytest.raises(BundleError, match="EDGE-BUNDLE-042"):
            bundle.local(other.manifest.artifacts[1])
        lying = msgspec.structs.replace(bundle.manifest.artifacts[0], precision="fp16")
        with pytest.raises(BundleError, match="EDGE-BUNDLE-042"):
            bundle.local(lying)


def test_a_change_after_opening_is_seen_when_the_member_is_read(colour: Path) -> None:
    with Bundle(colour) as bundle:
        place = bundle.members[MODEL]
        with open(colour, "r+b") as file:
            file.seek(place.start)
            file.write(b"\xff")
        with pytest.raises(BundleError, match="EDGE-BUNDLE-004"):
            bundle.read(MODEL)
        with pytest.raises(BundleError, match="EDGE-BUNDLE-004"):
            bundle.local(bundle.manifest.artifacts[0])
        with pytest.raises(BundleError, match="EDGE-BUNDLE-004"):
            bundle.verify()
        bundle.read("identity.json")


def test_a_file_cut_short_while_open_is_an_error_not_a_crash(colour: Path) -> None:
    with Bundle(colour) as bundle:
        os.truncate(colour, 100)
        with pytest.raises(BundleError, match="EDGE-BUNDLE-018"):
            bundle.read(MODEL)


def test_a_file_replaced_while_open_stays_what_it_was(colour: Path, folder: Path) -> None:
    with Bundle(colour) as bundle:
        before = bundle.read(MODEL)
        os.replace(folder, colour)
        assert bundle.read(MODEL) == before
        bundle.verify()


def test_a_closed_bundle_says_so(colour: Path) -> None:
    bundle = Bundle(colour)
    bundle.close()
    bundle.close()
    with pytest.raises(BundleError, match="EDGE-BUNDLE-018"):
        bundle.read(MODEL)


def test_no_file_stays_open(colour: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.edge"
    bad.write_bytes(colour.read_bytes()[:-1])
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Bundle(colour).close()
        with pytest.raises(BundleError):
            Bundle(bad)
    dropped = Bundle(colour)
    del dropped
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing", "device"])
def test_what_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.edge"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/null")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-001"):
        Bundle(path)


def test_threads_share_a_bundle(folder: Path) -> None:
    wrong: list[str] = []
    with Bundle(folder) as bundle, zipfile.ZipFile(folder) as archive:
        wanted = {name: archive.read(name) for name in archive.namelist()[1:]}

        def read() -> None:
            for _ in range(20):
                wrong.extend(name for name, data in wanted.items() if bundle.read(name) != data)

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
