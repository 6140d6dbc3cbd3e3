"""From a workspace to a sealed bundle: what goes in, what stays out, the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundlecases.content import Json, colour_files, colour_manifest, folder_files
from bundlecases.rawzip import Member, build, join
from bundlecases.texts import text_files

from edgeserve import backends
from edgeserve.bundle import Bundle
from edgeserve.errors import BundleError, FilesError, PackageError
from edgeserve.package import Packaged, package
from edgeserve.types.options import PackageOptions
from edgeserve.types.vocabulary import TARGETS

MODEL = "artifacts/onnx-fp32/model.onnx"


def packaged(workspace: Path, **request: Any) -> Packaged:
    out = request.pop("out", workspace.parent / "model.edge")
    return package(PackageOptions(out=str(workspace), bundle=str(out), **request))


def test_what_forbids_that_data_leaves_is_kept(workspace: Path) -> None:
    """All else under ``x`` is the workspace's own."""
    file = workspace / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(manifest | {"x": {"local_only": True, "note": 1}}), "utf-8")
    with zipfile.ZipFile(packaged(workspace).path) as archive:
        assert json.loads(archive.read("manifest.json"))["x"] == {"local_only": True}
    file.write_text(json.dumps(manifest | {"x": {"localOnly": True}}), "utf-8")
    with pytest.raises(BundleError) as error:
        packaged(workspace)
    assert error.value.code == "EDGE-BUNDLE-044"


def test_it_holds_the_allow_list_and_nothing_else(workspace: Path) -> None:
    done = packaged(workspace)
    with zipfile.ZipFile(done.path) as archive:  # the oracle: another program, other code
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", MODEL, "golden/000.png", "identity.json"]
        manifest = json.loads(archive.read("manifest.json"))
        assert {n: archive.read(n) for n in archive.namelist()[1:]} == colour_files()
    assert (manifest["reference"], manifest["x"]) == (None, {})
    assert manifest["golden"]["cases"][0]["record"]["label"] == "red"
    assert manifest["reports"] == colour_manifest()["reports"]
    assert manifest["files"] == colour_manifest()["files"]


def test_assets_that_the_processing_names_go_in_and_others_stay(text: Path) -> None:
    done = packaged(text, target="web")
    with zipfile.ZipFile(done.path) as archive:
        assert archive.namelist()[1:] == list(text_files())
        assert {n: archive.read(n) for n in archive.namelist()[1:]} == text_files()


def test_an_asset_that_was_changed_is_not_packaged(text: Path) -> None:
    asset = text / "assets" / "tokenizer.json"
    asset.write_bytes(asset.read_bytes().replace(b"green", b"greet"))
    with pytest.raises(PackageError) as refused:
        packaged(text)
    assert refused.value.code == "EDGE-PACKAGE-007"
    asset.unlink()
    with pytest.raises(BundleError) as missing:
        packaged(text)
    assert missing.value.code == "EDGE-BUNDLE-053"
    assert not (text.parent / "model.edge").exists()


def test_the_answer_says_what_was_written(workspace: Path) -> None:
    done = packaged(workspace)
    data = Path(done.path).read_bytes()
    assert (done.size, done.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert done.model_id == hashlib.sha256(colour_files()["identity.json"]).hexdigest()
    assert done.artifacts == ("onnx-fp32",)


def test_the_bytes_are_those_that_the_description_gives(several: Path) -> None:
    """The generator of the conformance cases builds the same file from the same members."""
    data = Path(packaged(several).path).read_bytes()
    with zipfile.ZipFile(several.parent / "model.edge") as archive:
        members = [Member(n.encode(), archive.read(n)) for n in archive.namelist()]
    assert join(build(members)) == data
    with Bundle(several.parent / "model.edge") as bundle:
        bundle.verify()


def test_the_same_workspace_gives_the_same_bytes(several: Path, tmp_path: Path) -> None:
    first = packaged(several, out=tmp_path / "a.edge")
    moved = shutil.copytree(several, tmp_path / "elsewhere" / "copy")
    assert packaged(moved, out=tmp_path / "b" / "c.edge").sha256 == first.sha256


@pytest.mark.parametrize(
    ("target", "artifacts", "refused"),
    [
        (None, ("onnx-fp32", "coreml-fp16"), {"tflite", "coreml"}),
        ("android", ("onnx-fp32",), {"tflite"}),
        ("web", ("onnx-fp32",), {"tflite"}),
        ("linux", ("onnx-fp32",), {"tflite"}),
        ("ios", ("onnx-fp32", "coreml-fp16"), {"coreml"}),
    ],
)
def test_a_target_takes_the_formats_that_run_there(
    target: str | None, artifacts: tuple[str, ...], refused: set[str], several: Path
) -> None:
    done = packaged(several, target=target)
    assert done.artifacts == artifacts
    with Bundle(done.path) as bundle:
        assert tuple(a.name for a in bundle.manifest.artifacts) == artifacts
        assert {r.format for r in bundle.manifest.refused} == refused
        assert all(r.path is None for r in bundle.manifest.refused)
        folders = {name.split("/")[1] for name in bundle.members if name.startswith("artifacts/")}
        assert folders == set(artifacts)
        assert "golden/000.png" in bundle.members


def test_artifacts_can_be_named(several: Path) -> None:
    done = packaged(several, only=("coreml-fp16",))
    assert done.artifacts == ("coreml-fp16",)
    with Bundle(done.path) as bundle:
        assert MODEL not in bundle.members
        assert bundle.manifest.reports == ()


def test_the_model_stays_the_same_model(several: Path, tmp_path: Path) -> None:
    whole = packaged(several, out=tmp_path / "whole.edge")
    slice_ = packaged(several, out=tmp_path / "slice.edge", target="web")
    assert slice_.model_id == whole.model_id
    assert slice_.sha256 != whole.sha256


def test_name_version_and_license_can_be_given(workspace: Path) -> None:
    done = packaged(workspace, name="tagger", version=7, license="MIT OR Apache-2.0")
    with Bundle(done.path) as bundle:
        manifest = bundle.manifest
    assert (manifest.name, manifest.version, manifest.license) == ("tagger", 7, "MIT OR Apache-2.0")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"target": "toaster"}, "003"),
        ({"only": ("onnx-w8",)}, "004"),
        ({"only": ("tflite-w8a8",)}, "004"),
        ({"only": ("coreml-fp16",), "target": "android"}, "004"),
        ({"name": "../x"}, "005"),
        ({"name": "a/b"}, "005"),
        ({"version": 0}, "005"),
        ({"license": "do what you want"}, "005"),
        ({"license": ""}, ""),
    ],
)
def test_a_request_that_cannot_be_met(request_: dict[str, Any], code: str, several: Path) -> None:
    if not code:
        packaged(several, **request_)
        return
    with pytest.raises(PackageError) as refused:
        packaged(several, **request_)
    assert refused.value.code == f"EDGE-PACKAGE-{code}"
    assert refused.value.hint
    assert not (several.parent / "model.edge").exists()


def test_without_golden_cases_there_is_no_bundle(
    write_workspace: Callable[[Json, dict[str, bytes]], Path],
) -> None:
    files = {k: v for k, v in colour_files().items() if not k.startswith("golden")}
    manifest = colour_manifest() | {"golden": None}
    manifest["files"] = [e for e in manifest["files"] if not e["path"].startswith("golden")]
    workspace = write_workspace(manifest, files)
    with pytest.raises(PackageError) as refused:
        packaged(workspace)
    assert refused.value.code == "EDGE-PACKAGE-002"
    assert "edgeserve validate" in refused.value.hint


def test_without_an_artifact_there_is_no_bundle(
    write_workspace: Callable[[Json, dict[str, bytes]], Path],
) -> None:
    workspace = write_workspace(colour_manifest() | {"artifacts": []}, colour_files())
    with pytest.raises(PackageError, match="EDGE-PACKAGE-001"):
        packaged(workspace)


def test_a_target_that_nothing_runs_on(
    write_workspace: Callable[[Json, dict[str, bytes]], Path],
) -> None:
    files = folder_files()
    core = "artifacts/coreml-fp32/colour.mlpackage"
    listed = colour_manifest()["artifacts"][0]
    data = files["artifacts/onnx-fp32/model.onnx"]
    path = f"{core}/model.mlmodel"
    file = {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    artifact = listed | {"format": "coreml", "entry": core, "files": [file]}
    kept = {k: v for k, v in colour_files().items() if k != MODEL} | {path: data}
    manifest = colour_manifest({MODEL: data} | kept) | {"artifacts": [artifact]}
    manifest["files"] = sorted(
        (e for e in [*manifest["files"], file] if e["path"] != MODEL), key=lambda e: e["path"]
    )
    manifest["files"] = list({e["path"]: e for e in manifest["files"]}.values())
    workspace = write_workspace(manifest, kept)
    with pytest.raises(PackageError, match="EDGE-PACKAGE-001") as refused:
        packaged(workspace, target="android")
    assert "coreml-fp32" in refused.value.got
    assert packaged(workspace, target="ios").artifacts == ("coreml-fp32",)


@pytest.mark.parametrize("path", [MODEL, "golden/000.png", "identity.json"])
@pytest.mark.parametrize("harm", ["flip", "longer", "cut"])
def test_a_file_that_changed_is_not_sealed(path: str, harm: str, workspace: Path) -> None:
    packaged(workspace)
    before = (workspace.parent / "model.edge").read_bytes()
    data = (workspace / path).read_bytes()
    changed = {"flip": data[:-1] + b"\xff", "longer": data + b"x", "cut": data[:-1]}[harm]
    (workspace / path).write_bytes(changed)
    with pytest.raises(PackageError, match="EDGE-PACKAGE-007"):
        packaged(workspace)
    assert (workspace.parent / "model.edge").read_bytes() == before


def test_a_link_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes((workspace / MODEL).read_bytes())
    (workspace / MODEL).unlink()
    (workspace / MODEL).symlink_to(tmp_path / "secret")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-053"):
        packaged(workspace)


def test_paths_of_this_machine_stay_here(
    write_workspace: Callable[[Json, dict[str, bytes]], Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = colour_manifest()
    reason = {"code": "EDGE-CHECK-009", "message": f"more data needed, see {out}/logs/log.txt"}
    manifest["artifacts"][0]["judgement"] = {"verdict": "unproven", "reasons": [reason]}
    manifest["refused"] = [
        {
            "format": "tflite",
            "precision": "fp32",
            "verdict": "fail",
            "code": "EDGE-CHECK-001",
            "message": f"cannot load {out}/failed/tflite-fp32/model.tflite",
            "hint": f"the log is {Path.home()}/log.txt",
            "path": "failed/tflite-fp32",
        }
    ]
    done = packaged(write_workspace(manifest, colour_files()))
    with Bundle(done.path) as bundle:
        kept = bundle.manifest
    assert kept.refused[0].message == "cannot load OUT/failed/tflite-fp32/model.tflite"
    assert kept.refused[0].hint == "the log is ~/log.txt"
    judgement = kept.artifacts[0].judgement
    assert judgement is not None
    assert judgement.reasons[0].message == "more data needed, see OUT/logs/log.txt"
    data = Path(done.path).read_bytes()
    assert str(tmp_path).encode() not in data
    assert b"server:predict" not in data


def test_where_it_is_written(workspace: Path, tmp_path: Path) -> None:
    assert Path(packaged(workspace, out=tmp_path / "new" / "folder" / "m.edge").path).is_file()
    with pytest.raises(PackageError, match="EDGE-PACKAGE-006"):
        packaged(workspace, out=tmp_path)
    with pytest.raises(FilesError, match="EDGE-FILES-001"):
        packaged(workspace, out=workspace / "manifest.json" / "m.edge")
    with pytest.raises(BundleError, match="EDGE-BUNDLE-051"):
        packaged(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("target", "runs"),
    [
        ("android", {"onnx", "tflite"}),
        ("ios", {"onnx", "coreml"}),
        ("linux", {"onnx", "tflite"}),
        ("web", {"onnx", "tflite"}),
    ],
)
def test_a_target_runs_the_formats_whose_backends_name_it(target: str, runs: set[str]) -> None:
    assert {b.format for b in backends.installed() if target in b.targets} == runs
    assert list(TARGETS) == sorted(TARGETS)


def test_a_verdict_that_the_gate_did_not_give_is_not_sealed(
    workspace: Path, tmp_path: Path
) -> None:
    report = next((workspace / "reports").glob("*.validate.json"))
    report.write_bytes(report.read_bytes().replace(b'"artifact_sha256":"', b'"artifact_sha256":"0'))
    with pytest.raises(PackageError) as caught:
        package(PackageOptions(out=str(workspace), bundle=str(tmp_path / "m.edge")))
    assert caught.value.code == "EDGE-PACKAGE-009"
    report.unlink()
    with pytest.raises(PackageError) as caught:
        package(PackageOptions(out=str(workspace), bundle=str(tmp_path / "m.edge")))
    assert caught.value.code == "EDGE-PACKAGE-009"
    assert not (tmp_path / "m.edge").exists()
