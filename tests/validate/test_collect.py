"""The reference's stored answers: what is asked, what is kept, and when it is asked again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import jobs
from edgeserve.data import input_sha256, read_arrays
from edgeserve.errors import DataError, ValidateError
from edgeserve.types.base import encode
from edgeserve.types.reports import Report
from edgeserve.validate.reference_store import read_answers, read_synthetic, write_answers
from edgeserve.validate.requests import Answers, AnswersRequest, JudgeRequest
from edgeserve.validate.verdict import COLLECT_VERB, JUDGE_VERB, crash_report


def test_answers_are_of_the_evaluation_half(classifier: Any, photos: Path) -> None:
    answers: Answers = classifier.answers(data=str(photos))
    assert len(answers.samples) == len(answers.answers) == 200
    for sample, answer in zip(answers.samples[:5], answers.answers, strict=False):
        assert answer.input_sha256 == input_sha256(Path(str(sample.path)).read_bytes())
        assert answer.record is not None
        assert answer.margin == answer.record.top[0][1] - answer.record.top[1][1]  # type: ignore[union-attr]


def test_stored_tensors_are_pytorchs(classifier: Any, photos: Path) -> None:
    answers: Answers = classifier.answers(data=str(photos))
    program = torch.export.load(classifier.source / "model.pt2").module()
    fillers = read_synthetic(classifier.root / "samples", answers, classifier.exported.signature)
    assert len(fillers) == len(answers.fillers) == 23
    for filler in fillers:
        wanted = program(torch.from_numpy(filler.feed["image"]))[0].detach().numpy()
        np.testing.assert_allclose(filler.outputs["logits"], wanted, rtol=1e-4, atol=1e-4)
    (chunk,) = answers.chunks
    assert (chunk.start, chunk.count) == (0, 200)


def test_asked_again_only_when_something_changed(
    classifier: Any, photos: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted(photos.iterdir())[:12]:
        shutil.copy(path, few)
    ask = {"data": str(few), "out": "few"}
    assert not classifier.answers(**ask).cached
    assert classifier.answers(**ask).cached
    assert classifier.answers(**ask, reference="pt2").cached
    assert not classifier.answers(**ask, refresh=True).cached
    assert not classifier.answers(**ask, seed=1).cached
    assert not classifier.answers(**ask).cached
    victim = classifier.answers(**ask).samples[0].path
    shutil.copy(sorted(photos.iterdir())[50], victim)
    assert not classifier.answers(**ask).cached, "a picture changed"


def test_a_servers_code_is_part_of_the_question(classifier: Any, tmp_path: Path) -> None:
    server = tmp_path / "changing_server.py"
    ask = {"reference": "changing_server:predict", "folder": str(tmp_path), "out": "changing"}
    server.write_text("def predict(raw):\n    return 0\n")
    assert not classifier.answers(**ask).cached
    assert classifier.answers(**ask).cached
    server.write_text("def predict(raw):\n    return 1\n")
    assert not classifier.answers(**ask).cached
    server.unlink()
    stored = classifier.answers(out="changing")
    assert stored.cached, "stored answers need no server"
    assert stored.reference == "changing_server:predict"


def test_repeated_inputs_count_once(classifier: Any, photos: Path, tmp_path: Path) -> None:
    some = sorted(photos.iterdir())[:6]
    for i in range(24):
        shutil.copy(some[i % 6], tmp_path / f"{i}.png")
    (tmp_path / "LICENSE").write_text("as is")
    answers = classifier.answers(data=str(tmp_path), out="repeated")
    assert len(answers.samples) <= 6
    repeated, skipped = 12 - len(answers.samples), "LICENSE"
    assert any(f"{repeated} inputs repeat others" in note for note in answers.notes)
    assert any(skipped in note for note in answers.notes)


def test_tensors_are_stored_up_to_a_limit(classifier: Any, photos: Path) -> None:
    answers = classifier.answers(data=str(photos), out="limited", tensor_bytes=6 * 4 * 50)
    assert sum(chunk.count for chunk in answers.chunks) == 50
    report: Report = classifier.judged(out="limited")
    assert report.judgement.verdict == "pass"
    assert any("first 50 of 200" in note for note in report.notes)
    assert report.decisions is not None
    assert report.decisions.inputs == 200


def test_a_picture_that_changed_since(classifier: Any, photos: Path, tmp_path: Path) -> None:
    for path in sorted(photos.iterdir())[:8]:
        shutil.copy(path, tmp_path)
    answers = classifier.answers(data=str(tmp_path), out="changed")
    shutil.copy(sorted(photos.iterdir())[30], answers.samples[0].path)
    with pytest.raises(DataError) as caught:
        classifier.judged(out="changed")
    assert caught.value.code == "EDGE-DATA-021"


def test_data_that_the_model_cannot_take(classifier: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "b.txt").write_text("another")
    with pytest.raises(DataError) as caught:
        classifier.answers(data=str(tmp_path), out="texts")
    assert caught.value.code == "EDGE-DATA-020"
    (tmp_path / "c.png").write_bytes(b"no picture")
    (tmp_path / "d.png").write_bytes(b"none either")
    with pytest.raises(DataError) as caught:
        classifier.answers(data=str(tmp_path), out="texts")
    assert caught.value.code == "EDGE-DATA-020"
    assert caught.value.thing in ("c.png", "d.png")


def test_an_interrupted_run_leaves_the_old_answers(
    classifier: Any, photos: Path, tmp_path: Path
) -> None:
    classifier.answers(out="kept")
    (tmp_path / "failing.py").write_text("def predict(raw):\n    raise RuntimeError('down')\n")
    with pytest.raises(ValidateError):
        classifier.answers(
            out="kept", data=str(photos), reference="failing:predict", folder=str(tmp_path)
        )
    kept = read_answers(classifier.root / "kept")
    assert kept is not None
    assert kept.reference == "pt2"
    assert not [p for p in classifier.root.iterdir() if p.name.startswith(".tmp-")]


def test_tampered_tensors_are_not_compared_with(classifier: Any) -> None:
    classifier.answers(out="tampered")
    path = classifier.root / "tampered" / "fillers.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValidateError) as caught:
        classifier.judged(out="tampered")
    assert caught.value.code == "EDGE-VALIDATE-008"


def test_no_answers_and_no_source(classifier: Any, pair: Any, tmp_path: Path) -> None:
    with pytest.raises(ValidateError) as caught:
        classifier.judged(out="never-asked")
    assert caught.value.code == "EDGE-VALIDATE-010"
    with pytest.raises(ValidateError) as caught:
        classifier.judged(out=pair.root / "samples")
    assert caught.value.code == "EDGE-VALIDATE-010"
    assert "another program" in caught.value.message
    with pytest.raises(ValidateError) as caught:
        classifier.answers(source_folder=str(tmp_path))
    assert caught.value.code == "EDGE-VALIDATE-008"


def test_rows_of_an_npz(on_rows: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x0=rows)
    answers = on_rows.answers(data=str(tmp_path / "data.npz"), out="npz")
    assert answers.preprocessing == "none: the model takes tensors"
    report = on_rows.judged(out="npz")
    assert report.judgement.verdict == "pass"
    assert report.decisions is not None
    assert report.decisions.inputs == 30
    assert all(w.path is None for w in report.worst), "a row has no picture to show"


class Dividing(nn.Module):
    """NaN where the first number is zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x / x[:, :1], -1)


def test_a_reference_that_cannot_decide(build: Any, tmp_path: Path) -> None:
    example = torch.tensor([[1.0, -1.0, 0.5, 2.0]])
    made = build(Dividing(), example, task="image-classification")
    rows = np.random.default_rng(0).uniform(1, 2, (20, 4)).astype(np.float32)
    rows[:, 0][[3, 4, 5, 6]] = 0
    rows[[3, 4, 5, 6], 1] = 0
    np.savez(tmp_path / "data.npz", x=rows)
    with pytest.raises(ValidateError) as caught:
        made.answers(data=str(tmp_path / "data.npz"))
    assert caught.value.code == "EDGE-VALIDATE-012"
    assert "row" in caught.value.thing
    made.answers()
    report = made.judged()
    assert report.judgement.verdict == "pass", "NaN on generated inputs is the reference's own"


def test_judging_needs_no_torch() -> None:
    """The reference's answers are stored, so that a judge starts fast and stays small."""
    code = (
        "import sys, edgeserve.validate.judge; "
        "sys.exit(int(bool({'torch', 'onnx', 'PIL', 'onnxruntime'} & set(sys.modules))))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_both_verbs_in_workers(classifier: Any, photos: Path, tmp_path: Path) -> None:
    out = str(classifier.root / "by-worker")
    asked = AnswersRequest(source_folder=str(classifier.source), out=out, data=str(photos))
    steps: list[jobs.Progress] = []
    answers = jobs.run(COLLECT_VERB, asked, Answers, tmp_path / "a", on_progress=steps.append)
    assert [s.what for s in steps if s.total == 200]
    stored = read_answers(Path(out))
    assert stored is not None
    assert encode(answers) == encode(stored)
    request = JudgeRequest(
        artifact=classifier.artifact,
        root=str(classifier.root / "candidate"),
        source_folder=str(classifier.source),
        samples=out,
    )
    report = jobs.run(JUDGE_VERB, request, Report, tmp_path / "j")
    assert report.judgement.verdict == "pass"
    assert json.loads((tmp_path / "j" / "result.json").read_bytes())["reference"] == "pt2"


def test_a_worker_that_hangs_fails_the_artifact(classifier: Any, tmp_path: Path) -> None:
    answers = classifier.answers(out="samples-hang")
    request = JudgeRequest(
        artifact=classifier.artifact,
        root=str(classifier.root / "candidate"),
        source_folder=str(classifier.source),
        samples=str(classifier.root / "samples-hang"),
    )
    with pytest.raises(Exception, match="EDGE-WORKER-003") as caught:
        jobs.run(JUDGE_VERB, request, Report, tmp_path / "j", timeout=0.05)
    report = crash_report(request, answers, caught.value)  # type: ignore[arg-type]
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-012"
    assert not report.checks[0].ok


def test_a_judge_that_meets_an_unexpected_error_fails_the_artifact(
    classifier: Any, tmp_path: Path
) -> None:
    answers = classifier.answers(out="samples-odd")
    folder = classifier.root / "samples-odd"
    more = (*answers.fillers, msgspec.structs.replace(answers.fillers[0], name="of which no array"))
    write_answers(folder, msgspec.structs.replace(answers, fillers=more))
    request = JudgeRequest(
        artifact=classifier.artifact,
        root=str(classifier.root / "candidate"),
        source_folder=str(classifier.source),
        samples=str(folder),
    )
    with pytest.raises(Exception, match="EDGE-WORKER-001") as caught:
        jobs.run(JUDGE_VERB, request, Report, tmp_path / "j")
    report = crash_report(request, answers, caught.value)  # type: ignore[arg-type]
    assert report.judgement.verdict == "fail"
    assert report.judgement.reasons[0].code == "EDGE-CHECK-015"
    assert "log.txt" in report.judgement.reasons[0].message


def test_examples_are_what_was_exported(classifier: Any) -> None:
    assert list(read_arrays(classifier.source / "examples.npz")) == ["image"]
