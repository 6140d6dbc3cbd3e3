"""`validate`: a whole workspace judged in worker processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeserve.bundle import Workspace
from edgeserve.bundle.rules import identity_bytes, model_id
from edgeserve.errors import BundleError, DataError
from edgeserve.files import describe
from edgeserve.types.artifact import Judgement
from edgeserve.types.manifest import FORMAT_VERSION, Manifest
from edgeserve.types.reports import Limits
from edgeserve.validate import validate


@pytest.fixture
def workspace(classifier: Any, tmp_path: Path) -> Path:
    """What convert leaves behind, with the classifier's ONNX file in it."""
    out = tmp_path / "out"
    shutil.copytree(classifier.source, out / "source")
    shutil.copytree(classifier.root / "candidate", out / "artifacts/onnx-fp32")
    known = classifier.exported
    artifact = msgspec.structs.replace(
        classifier.artifact.moved("artifacts/onnx-fp32"), judgement=Judgement(verdict="unproven")
    )
    identity = identity_bytes(known)
    (out / "identity.json").write_bytes(identity)
    files = (*artifact.files, describe(out, "identity.json"))
    Workspace(out).write_manifest(
        Manifest(
            edgeserve=FORMAT_VERSION,
            name="cards",
            version=1,
            min_wrapper="0.1.0",
            model_id=model_id(identity),
            task=known.task,
            signature=known.signature,
            processing=known.processing,
            labels=known.labels,
            artifacts=(artifact,),
            files=files,
        )
    )
    return out


def test_a_workspace(workspace: Path, few_photos: Path, tmp_path: Path) -> None:
    before = (workspace / "manifest.json").read_bytes()
    (report,) = validate(workspace, data=few_photos)
    assert (report.format, report.precision, report.judgement.verdict) == ("onnx", "fp32", "pass")
    assert report.inputs.startswith("40 inputs; ")
    assert (workspace / "manifest.json").read_bytes() == before
    (again,) = validate(workspace)
    assert again.inputs == report.inputs, "the data of the last run"
    (tmp_path / "steady_server.py").write_text("def predict(raw):\n    return 'red plain'\n")
    (other,) = validate(
        workspace, reference="steady_server:predict", folder=tmp_path, limits=Limits(pass_flips=0.5)
    )
    assert other.reference == "steady_server:predict"
    assert other.judgement.verdict == "unproven", "a server that always says the same"
    assert [reason.code for reason in other.judgement.reasons] == ["EDGE-CHECK-022"]
    assert other.limits.pass_flips == 0.5
    assert "steady_server" not in sys.modules, "the user's code ran in a worker"


def test_errors_come_back_as_they_are(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        validate(workspace, data=tmp_path / "nothing")
    assert caught.value.code == "EDGE-DATA-001"
    with pytest.raises(BundleError):
        validate(tmp_path / "no-workspace")
