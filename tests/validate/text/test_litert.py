"""The gate on real LiteRT files: one text at a time, int32 ids, three fixed lengths, 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.convert.calibration import calibration
from edgeserve.types.artifact import Artifact, Recipe
from edgeserve.types.reports import Report
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import JudgeRequest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(
    embedder: Any, texts: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Artifact, Path]]:
    """The text model as fp32 and as w8a8, calibrated on the half that is not judged on."""
    tflite, root = backends.get("tflite"), tmp_path_factory.mktemp("litert")
    fp32 = tflite.export(embedder.exported, embedder.source, root / "fp32")
    feeds = calibration(embedder.exported, embedder.source, str(texts), count=32)
    w8a8 = tflite.quantize(fp32, root / "fp32", Recipe(precision="w8a8"), feeds, root / "w8a8")
    return {"fp32": (fp32, root / "fp32"), "w8a8": (w8a8, root / "w8a8")}


def judged(embedder: Any, files: Any, precision: str) -> Report:
    artifact, root = files[precision]
    return judge(
        JudgeRequest(
            artifact=artifact,
            root=str(root),
            source_folder=str(embedder.source),
            samples=str(embedder.root / "samples"),
        )
    )


def test_fp32_in_buckets(embedder: Any, files: Any) -> None:
    artifact, root = files["fp32"]
    assert [io.inputs[0].shape for io in artifact.buckets] == [(1, 16), (1, 32), (1, 48)]
    report = judged(embedder, files, "fp32")
    assert report.judgement.verdict == "pass", report.judgement
    assert report.decisions is not None
    assert report.decisions.raw.count == 0
    assert any("fixed to 16, 32, 48" in note for note in report.notes)
    assert not any("does not fit" in note for note in report.notes), "every generated length fits"
    # The longest bucket by a bare interpreter, against what the adapter gives.
    engine = Interpreter(model_path=str(root / artifact.entry))
    runner = engine.get_signature_runner(artifact.io.signature)
    ids = np.arange(4, 44)[None]
    padded = {
        "ids": np.pad(ids, ((0, 0), (0, 8))),
        "mask": np.pad(np.ones_like(ids), ((0, 0), (0, 8))),
    }
    bare = runner(**{name: array.astype(np.int32) for name, array in padded.items()})["tokens"]
    known = embedder.exported
    with backends.get("tflite").load(artifact, root) as session:
        adapter = Adapter(session, known.signature, known.processing.padding)
        ours = adapter.run({"ids": ids, "mask": np.ones_like(ids)})["tokens"]
    np.testing.assert_allclose(ours, bare[:, :40], atol=1e-5)


def test_eight_bits_are_judged_by_neighbours(embedder: Any, files: Any) -> None:
    report = judged(embedder, files, "w8a8")
    checks = {check.name: check for check in report.checks}
    assert all(check.ok for check in report.checks), report.judgement
    assert float(checks["weights-8bit"].value or 0) > 0.9
    assert float(report.outputs[0].relative) > 0
    assert report.decisions is not None
    assert report.decisions.embedding is not None
    assert 0.9 < float(report.decisions.embedding.cosine_mean) < 1.0
    assert report.judgement.verdict in ("degraded", "unproven"), report.judgement
    assert report.judgement.executed_by.startswith("litert ")
