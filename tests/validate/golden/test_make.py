"""Golden cases: decided by a wide margin, answered by the reference, drawn or given by consent."""

from __future__ import annotations

import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from edgeserve import tasks
from edgeserve.errors import ValidateError
from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.base import encode
from edgeserve.types.samples import Golden
from edgeserve.validate.golden.make import make_golden
from edgeserve.validate.requests import GoldenRequest, LocatedArtifact


def golden(model: Any, out: Path, **request: Any) -> Golden:
    return make_golden(GoldenRequest(source_folder=str(model.source), out=str(out), **request))


def checked(out: Path, entry: FileEntry) -> bytes:
    data = (out / entry.path).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.size, entry.sha256)
    return data


def test_generated_cases_hold_in_another_runtime(classifier: Any, tmp_path: Path) -> None:
    made = golden(classifier, tmp_path, error=0.02)
    assert made.origin == "generated"
    assert 3 <= len(made.cases) <= 8
    known = classifier.exported
    processor = Processor(known.processing, known.signature, known.task, known.labels)
    session = onnxruntime.InferenceSession(classifier.onnx)
    for case in made.cases:
        data = checked(tmp_path, case.input)
        assert Image.open(io.BytesIO(data)).format == "PNG"
        assert (case.medium, case.outputs) == ("image", None)
        assert float(case.margin) > 3 * 0.02
        assert case.tolerance == pytest.approx(0.06)
        image = processor.batch([processor.prepare(data)])["image"]
        (answer,) = processor.finish({"logits": session.run(None, {"image": image})[0]})
        assert case.record is not None
        assert tasks.same(case.record, answer)  # type: ignore[arg-type]


def test_paths_and_repetition(classifier: Any, tmp_path: Path) -> None:
    first = golden(classifier, tmp_path / "a")
    assert [c.input.path for c in first.cases][:2] == ["golden/001.png", "golden/002.png"]
    assert encode(golden(classifier, tmp_path / "b")) == encode(first)
    other = golden(classifier, tmp_path / "a", seed=1, count=3)
    assert {c.input.sha256 for c in other.cases}.isdisjoint(c.input.sha256 for c in first.cases)
    left = {p.name for p in (tmp_path / "a" / "golden").iterdir()}
    assert left == {"001.png", "002.png", "003.png"}, "replaced as a whole"


def test_several_classes_before_more_of_one(classifier: Any, tmp_path: Path) -> None:
    made = golden(classifier, tmp_path, count=5)
    classes = [case.record.index for case in made.cases]  # type: ignore[union-attr]
    distinct = len(set(classes))
    assert distinct >= 3
    assert len(set(classes[:distinct])) == distinct
    margins = [float(case.margin) for case in made.cases]
    assert margins[:distinct] == sorted(margins[:distinct], reverse=True)
    assert margins[distinct:] == sorted(margins[distinct:], reverse=True)


def test_given_files_are_copied_as_they_are(classifier: Any, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "consent"
    folder.mkdir()
    for number in (1, 2, 3, 10):
        shutil.copy(photos / f"card-{number}.png", folder / f"my photo {number}.PNG")
    made = golden(classifier, tmp_path, given=str(folder))
    assert made.origin == "given"
    assert [checked(tmp_path, c.input) for c in made.cases] == [
        (photos / f"card-{number}.png").read_bytes() for number in (1, 2, 3, 10)
    ]
    assert [c.input.path for c in made.cases] == [f"golden/00{i}.png" for i in (1, 2, 3, 4)]
    assert made.note == ""
    assert "photo" not in str(made), "names of the user's files stay private"


def test_given_files_that_are_not_decided(
    classifier: Any, few_photos: Path, tmp_path: Path
) -> None:
    every = golden(classifier, tmp_path, given=str(few_photos))
    margins = sorted(float(case.margin) for case in every.cases)
    error = (margins[30] + margins[31]) / 6
    fewer = golden(classifier, tmp_path, given=str(few_photos), error=error)
    assert len(fewer.cases) == len(margins) - 31
    assert f"{len(fewer.cases)} of 80 inputs are decided by a margin above" in fewer.note


def test_nothing_is_decided(classifier: Any, tmp_path: Path) -> None:
    for given in (None, "few"):
        if given:
            given = str(tmp_path / "few")
            Path(given).mkdir()
            Image.new("RGB", (40, 40)).save(Path(given) / "black.png")
        with pytest.raises(ValidateError) as caught:
            golden(classifier, tmp_path, error=0.4, given=given)
        assert caught.value.code == "EDGE-VALIDATE-009"
        assert "--golden DIR" in caught.value.hint
    assert not (tmp_path / "golden").exists()


def test_a_servers_answers(classifier: Any, tmp_path: Path) -> None:
    """Where the server says otherwise than the model it is no case: it would fail everywhere."""
    (tmp_path / "golden_server.py").write_text("def predict(raw):\n    return 'red plain'\n")
    asked = {"given": str(tmp_path / "few"), "folder": str(tmp_path)}
    (tmp_path / "few").mkdir()
    for case in golden(classifier, tmp_path).cases:
        shutil.copy(tmp_path / case.input.path, tmp_path / "few")
    made = golden(classifier, tmp_path, reference="golden_server:predict", **asked)
    own = golden(classifier, tmp_path, **asked)
    red = [case for case in own.cases if case.record.label == "red plain"]  # type: ignore[union-attr]
    assert 0 < len(red) < len(own.cases)
    assert {c.input.sha256 for c in made.cases} == {c.input.sha256 for c in red}
    assert {c.record.score for c in made.cases} == {  # type: ignore[union-attr]
        c.record.score  # type: ignore[union-attr]
        for c in red
    }


def test_tensors(pair: Any, tmp_path: Path) -> None:
    made = golden(pair, tmp_path, error=2e-4)
    assert len(made.cases) == 8
    program = torch.export.load(pair.source / "model.pt2").module()
    for case in made.cases:
        assert (case.medium, case.record) == ("tensors", None)
        assert case.tolerance == pytest.approx(1e-3)
        with np.load(io.BytesIO(checked(tmp_path, case.input))) as held:
            assert held.files == ["left", "right"]
            wanted = program(*(torch.from_numpy(held[n]) for n in held.files))
        assert case.outputs is not None
        with np.load(io.BytesIO(checked(tmp_path, case.outputs))) as held:
            for name, tensor in zip(("a", "b"), wanted, strict=True):
                np.testing.assert_allclose(held[name], tensor.detach().numpy(), atol=1e-6)


def test_a_model_that_decides_on_tensors(on_rows: Any, tmp_path: Path) -> None:
    made = golden(on_rows, tmp_path)
    assert made.cases
    for case in made.cases:
        assert case.input.path.endswith(".npz")
        assert case.record is not None
        assert float(case.margin) > 0.05


def test_rows_may_be_given(pair: Any, tmp_path: Path) -> None:
    rows = {n: np.ones((3, 5), np.float32) * i for i, n in enumerate(("left", "right"))}
    np.savez(tmp_path / "rows.npz", **rows)
    made = golden(pair, tmp_path, given=str(tmp_path / "rows.npz"))
    assert (made.origin, len(made.cases)) == ("given", 3)
    with np.load(tmp_path / made.cases[0].input.path) as held:
        np.testing.assert_array_equal(held["right"], np.ones((1, 5), np.float32))


def noisy(graph: Any) -> None:
    rng = np.random.default_rng(3)
    graph.put(
        {
            n: (a + 0.15 * a.std() * rng.standard_normal(a.shape)).astype(np.float32)
            for n, a in graph.weights().items()
        }
    )


def test_artifacts_are_asked_where_their_worst_error_forbids_every_case(
    classifier: Any, sabotaged: Any, few_photos: Path, tmp_path: Path
) -> None:
    """Each case holds for the noisy file too, by three times what it changes on that very input."""
    file = sabotaged(classifier, noisy)
    artifact = Artifact(
        format="onnx",
        precision="w8",
        entry=file.name,
        files=(describe(file.parent, file.name),),
        io=classifier.artifact.io,
    )
    artifacts = (
        LocatedArtifact(artifact=artifact, root=str(file.parent)),
        LocatedArtifact(artifact=classifier.artifact, root=str(classifier.root / "candidate")),
    )
    for given in (None, str(few_photos)):
        with pytest.raises(ValidateError, match="EDGE-VALIDATE-009"):
            golden(classifier, tmp_path, error=0.4, given=given)
        made = golden(classifier, tmp_path, error=0.4, given=given, artifacts=artifacts)
        assert len(made.cases) >= 4
        session = onnxruntime.InferenceSession(file)
        known = classifier.exported
        processor = Processor(known.processing, known.signature, known.task, known.labels)
        for case in made.cases:
            image = processor.batch([processor.prepare(checked(tmp_path, case.input))])["image"]
            (answer,) = processor.finish({"logits": session.run(None, {"image": image})[0]})
            assert case.record is not None
            assert tasks.same(case.record, answer)  # type: ignore[arg-type]
            moved = abs(answer.score - case.record.score)  # type: ignore[union-attr]
            assert float(case.margin) > 3 * moved
            assert 3 * moved <= case.tolerance * (1 + 1e-6)
            assert case.tolerance < 1.2, "its own, not three times the worst of all"
    assert "three times what each artifact changes" in made.note
