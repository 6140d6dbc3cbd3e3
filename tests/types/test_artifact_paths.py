"""Where an artifact's files lie: a file beside others, or a folder that is opened as a whole."""

from __future__ import annotations

import hashlib

import pytest

from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.tensors import IO

PACKAGE = (
    "model.mlpackage/Data/com.apple.CoreML/model.mlmodel",
    "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin",
    "model.mlpackage/Manifest.json",
)


def folder(*paths: str, entry: str = "model.mlpackage") -> Artifact:
    files = tuple(FileEntry(p, len(p), hashlib.sha256(p.encode()).hexdigest()) for p in paths)
    return Artifact(format="coreml", precision="fp32", entry=entry, files=files, io=IO((), ()))


def test_a_folder_may_be_the_entry() -> None:
    artifact = folder(*PACKAGE)
    assert artifact.folder == ""
    assert artifact.size == sum(map(len, PACKAGE))


@pytest.mark.parametrize("target", ["artifacts/coreml-fp32", "failed/x/y", ""])
def test_a_folder_moves_with_all_that_is_in_it(target: str) -> None:
    moved = folder(*PACKAGE).moved(target)
    start = f"{target}/" if target else ""
    assert moved.entry == f"{start}model.mlpackage"
    assert [f.path for f in moved.files] == [start + path for path in PACKAGE]
    assert moved.folder == target
    assert moved.moved("") == folder(*PACKAGE)


def test_moving_changes_no_identity_and_other_names_do() -> None:
    artifact = folder(*PACKAGE)
    assert artifact.moved("artifacts/coreml-fp32").sha256 == artifact.sha256
    lines = "".join(f"{hashlib.sha256(p.encode()).hexdigest()}  {p}\n" for p in PACKAGE)
    assert artifact.sha256 == hashlib.sha256(lines.encode()).hexdigest()
    renamed = folder(*(p.replace("weight.bin", "other.bin") for p in PACKAGE))
    assert renamed.sha256 != artifact.sha256


@pytest.mark.parametrize(
    ("paths", "entry", "said"),
    [
        (PACKAGE, "model", "not among the files"),
        (PACKAGE, "model.mlpack", "not among the files"),
        (("model.mlpackage2/Manifest.json",), "model.mlpackage", "not among the files"),
        (("a/model.mlpackage/x", "b/y"), "a/model.mlpackage", "outside its folder"),
        (PACKAGE[::-1], "model.mlpackage", "not sorted"),
    ],
)
def test_files_that_do_not_fit_the_entry_are_refused(
    paths: tuple[str, ...], entry: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        folder(*paths, entry=entry)
