"""The golden proof as a verb: on files that no manifest lists yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeserve.bundle import Workspace
from edgeserve.errors import BundleError, PackageError
from edgeserve.pipeline.publish import package
from edgeserve.types.options import PackageOptions
from edgeserve.wrapper.certificate import Proof, ProofRequest, prove


def request_for(root: Path) -> ProofRequest:
    """The workspace's own artifact, with a manifest that does not list it."""
    manifest = Workspace(root).manifest
    (artifact,) = manifest.artifacts
    bare = msgspec.structs.replace(manifest, artifacts=(), files=())
    return ProofRequest(manifest=bare, root=str(root), artifact=artifact, files=str(root))


def test_good_files_hold_every_case(make: Any) -> None:
    proof = prove(request_for(make.workspace()))
    assert (proof.passed, proof.total, proof.wrong) == (4, 4, "")
    assert float(proof.max_difference) < 1e-4


def test_another_decision_is_named(make: Any) -> None:
    wrong = make.made("onnx-fp32", make.classifier(sign_of_w=-1.0))
    proof = prove(request_for(make.workspace(wrong)))
    assert proof.passed < proof.total == 4
    assert proof.wrong.startswith("golden/000.png: wanted ")


def test_a_runtime_that_refuses_the_file_is_the_artifacts_failure(make: Any) -> None:
    proof = prove(request_for(make.workspace(make.made("onnx-fp32", b"no model"))))
    assert (proof.passed, proof.total) == (0, 4)
    assert proof.wrong


def test_a_format_that_cannot_run_here_proves_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "edgeserve.backends.onnx.OnnxBackend.missing", lambda self: "pip install onnxruntime"
    )
    assert prove(request_for(make.workspace())) == Proof(0, 0)


def test_a_changed_case_is_nobodys_failure(make: Any) -> None:
    root = make.workspace()
    (root / "golden/001.png").write_bytes((root / "golden/000.png").read_bytes())
    with pytest.raises(BundleError) as error:
        prove(request_for(root))
    assert error.value.code == "EDGE-BUNDLE-004"


def test_package_writes_no_bundle_that_a_wrapper_would_refuse(make: Any, tmp_path: Path) -> None:
    root = make.workspace(golden=make.golden(make.folder / "given", flip=True))
    make.write_reports(root)
    out = tmp_path / "m.edge"
    with pytest.raises(PackageError) as error:
        package(PackageOptions(out=str(root), bundle=str(out)))
    assert error.value.code == "EDGE-PACKAGE-010"
    assert "golden/001.png" in error.value.got
    assert not out.exists()


def test_package_writes_what_holds(make: Any, tmp_path: Path) -> None:
    root = make.workspace()
    make.write_reports(root)
    made = package(PackageOptions(out=str(root), bundle=str(tmp_path / "m.edge")))
    assert made.artifacts == ("onnx-fp32",)
