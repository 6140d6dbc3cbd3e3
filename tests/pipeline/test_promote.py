"""Golden cases where one of several artifacts moves the answers so far that none fits it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import onnx
import onnx.numpy_helper
import pytest

from edgeserve.files import describe
from edgeserve.pipeline.judge import JudgedArtifact
from edgeserve.pipeline.promote import golden_cases
from edgeserve.pipeline.stage_context import QUIET, StageContext, open_stage
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode
from edgeserve.types.reports import Report
from edgeserve.validate.requests import Answers


def turned(workspace: Path) -> None:
    """Write a second file beside the first, whose head has the opposite sign."""
    folder = workspace / "artifacts" / "onnx-fp16"
    shutil.copytree(workspace / "artifacts" / "onnx-fp32", folder)
    (file,) = folder.glob("*.onnx")
    model = onnx.load(file)
    (head,) = [each for each in model.graph.initializer if list(each.dims) == [3, 3]]
    head.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(head), head.name))
    onnx.save(model, file)


def judged(bench: StageContext, artifact: Artifact, error: float) -> JudgedArtifact:
    report = decode((bench.root / "reports" / "onnx-fp32.validate.json").read_bytes(), Report)
    return JudgedArtifact(artifact, bench.root, msgspec.structs.replace(report, error=error), "")


def test_one_that_moves_too_far_does_not_cost_the_others_their_proof(
    workspace: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    turned(workspace)
    with open_stage(str(workspace), QUIET, 300) as bench:
        (sound,) = bench.workspace.manifest.artifacts
        answers = decode((bench.root / "samples" / "answers.json").read_bytes(), Answers)
        folder = "artifacts/onnx-fp16"
        file = describe(bench.root, f"{folder}/{Path(sound.entry).name}")
        wrong = msgspec.structs.replace(sound, precision="fp16", files=(file,), entry=file.path)
        both = [judged(bench, wrong, 1.0), judged(bench, sound, 1e-6)]
        golden = golden_cases(bench, answers, both, None, None)
        assert golden is not None
        assert len(golden.cases) >= 3
        assert "onnx-fp16" in golden.note
        assert "onnx-fp32" not in golden.note
        assert golden_cases(bench, answers, both[:1], None, None) is None


def test_given_cases_that_fit_none_are_refused(
    workspace: Path, edgeserve: object, project: Path
) -> None:
    given = workspace / "given"
    given.mkdir()
    (given / "grey.png").write_bytes(_grey())
    done = edgeserve("validate", str(workspace), "--golden", str(given), "--json")  # type: ignore[operator]
    assert json.loads(done.out)["error"]["code"] == "EDGE-VALIDATE-009"


def _grey() -> bytes:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (20, 20), (90, 90, 90)).save(buffer, "png")
    return buffer.getvalue()
