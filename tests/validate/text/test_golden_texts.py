"""Golden cases of a text model: chosen as a set, held by another runtime, made without torch."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from scipy.spatial.distance import cdist

from edgeserve.errors import ValidateError
from edgeserve.processing import Processor
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances, nearest_neighbours
from edgeserve.types.base import encode
from edgeserve.types.samples import Golden
from edgeserve.validate.golden.candidates import GoldenCandidate
from edgeserve.validate.golden.make import make_golden
from edgeserve.validate.golden.select import SelectionRule, select_embeddings
from edgeserve.validate.inputs.media import paraphrases
from edgeserve.validate.requests import GoldenRequest, JudgeRequest


def golden(model: Any, out: Path, **request: Any) -> Golden:
    return make_golden(GoldenRequest(source_folder=str(model.source), out=str(out), **request))


def answers_of(model: Any, out: Path, made: Golden) -> np.ndarray:
    """What a bare ONNX Runtime session and the packaged processing make of the cases' bytes."""
    known = model.exported
    processor = Processor(
        known.processing,
        known.signature,
        known.task,
        known.labels,
        assets=lambda name: (model.source / name).read_bytes(),
    )
    session = onnxruntime.InferenceSession(model.onnx)
    vectors = []
    for case in made.cases:
        data = (out / case.input.path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == case.input.sha256
        feed = processor.batch([processor.prepare(data)])
        outputs = {"tokens": session.run(["tokens"], feed)[0]}
        (record,) = processor.finish(outputs, feed)
        assert isinstance(record, Embedding)
        vectors.append(record.vector)
    return np.stack(vectors)


def held(made: Golden, vectors: np.ndarray, wanted: float) -> None:
    """Each case decides in ``vectors`` as in its record, by the margin that it says."""
    records = np.stack([case.record.vector for case in made.cases])  # type: ignore[union-attr]
    cosines = 1 - cdist(records, records, "cosine")
    np.fill_diagonal(cosines, -np.inf)
    ranked = np.sort(cosines, axis=1)
    margins = [float(case.margin) for case in made.cases]
    np.testing.assert_allclose(margins, ranked[:, -1] - ranked[:, -2], atol=1e-6)
    assert min(margins) > wanted
    np.testing.assert_array_equal(nearest_neighbours(vectors)[0], cosines.argmax(axis=1))
    tolerance = {case.tolerance for case in made.cases}
    assert cosine_distances(records, vectors).max() < min(tolerance)


def test_generated_cases_hold_in_another_runtime(embedder: Any, tmp_path: Path) -> None:
    made = golden(embedder, tmp_path, error=0.001)
    assert (made.origin, len(made.cases), made.note) == ("generated", 8, "")
    assert {case.medium for case in made.cases} == {"text"}
    assert [case.input.path for case in made.cases][:2] == ["golden/001.txt", "golden/002.txt"]
    assert [case.tolerance for case in made.cases] == [pytest.approx(0.003)] * 8
    held(made, answers_of(embedder, tmp_path, made), wanted=0.03)
    known = {text for both in paraphrases() for text in both}
    lengths = set()
    for case in made.cases:
        text = (tmp_path / case.input.path).read_text("utf-8")
        assert text in known
        lengths.add(len(text) // 20)
    assert len(lengths) > 1, "texts of several lengths"


def test_a_smaller_error_has_a_floor(embedder: Any, tmp_path: Path) -> None:
    made = golden(embedder, tmp_path, error=1e-9)
    assert [case.tolerance for case in made.cases] == [pytest.approx(0.002)] * 8
    held(made, answers_of(embedder, tmp_path, made), wanted=0.01)


def test_given_texts(embedder: Any, tmp_path: Path) -> None:
    """All that hold are kept as they are, and what is nearly the same three times is not."""
    folder = tmp_path / "mine"
    folder.mkdir()
    texts = [text for both in paraphrases()[:5] for text in both]
    triple = ["it rains.", "it rains!", "it rains?"]
    for i, text in enumerate([*texts, *triple]):
        (folder / f"{i}.TXT").write_text(text)
    made = golden(embedder, tmp_path, given=str(folder))
    kept = [(tmp_path / case.input.path).read_text() for case in made.cases]
    assert made.origin == "given"
    assert len(kept) >= 6
    assert sum(text in triple for text in kept) < 3
    assert f"{len(kept)} of 13 inputs are decided" in made.note
    held(made, answers_of(embedder, tmp_path, made), wanted=0.01)


def test_no_set_is_sure_enough(embedder: Any, tmp_path: Path) -> None:
    with pytest.raises(ValidateError) as caught:
        golden(embedder, tmp_path, error=0.6)
    assert caught.value.code == "EDGE-VALIDATE-009"


SERVER = """
import numpy as np
import tokenizers
import torch

FOLDER = {folder!r}
MADE = tokenizers.Tokenizer.from_file(FOLDER + "/assets/tokenizer.json")
MADE.enable_truncation(48)
PROGRAM = torch.export.load(FOLDER + "/model.pt2").module()

def turned(text):
    ids = torch.tensor([MADE.encode(text).ids])
    vector = PROGRAM(ids, torch.ones_like(ids))[0][0].mean(0).tolist()
    return vector if len(text) % 2 else vector[::-1]
"""


def test_texts_on_which_a_server_is_far_from_the_program_are_no_cases(
    embedder: Any, tmp_path: Path
) -> None:
    (tmp_path / "turning.py").write_text(SERVER.format(folder=str(embedder.source)))
    made = golden(embedder, tmp_path, reference="turning:turned", folder=str(tmp_path), error=0.01)
    texts = [(tmp_path / case.input.path).read_text("utf-8") for case in made.cases]
    assert all(len(text) % 2 for text in texts), texts
    held(made, answers_of(embedder, tmp_path, made), wanted=0.03)


IN_A_WORKER = """
import sys
from pathlib import Path
from edgeserve.types.base import decode, encode
from edgeserve.validate.{module} import {verb}
from edgeserve.validate.requests import {request}

made = {verb}(decode(Path(sys.argv[1]).read_bytes(), {request}))
Path(sys.argv[2]).write_bytes(encode(made))
heavy = {{"torch", "transformers", "litert_torch", "coremltools"}} & set(sys.modules)
assert not heavy, heavy
"""


def in_a_worker(tmp_path: Path, module: str, verb: str, request: Any) -> dict[str, Any]:
    """Run a verb in a process of its own, which fails if anything heavy has been loaded."""
    code = IN_A_WORKER.format(module=module, verb=verb, request=type(request).__name__)
    asked, made = tmp_path / "request.json", tmp_path / "result.json"
    asked.write_bytes(encode(request))
    subprocess.run([sys.executable, "-P", "-c", code, asked, made], check=True, timeout=120)
    found: dict[str, Any] = json.loads(made.read_bytes())
    return found


def test_cases_are_made_without_torch(embedder: Any, tmp_path: Path) -> None:
    """The candidates lie with the reference's answers: its engine is not started again."""
    (tmp_path / "samples").symlink_to(embedder.root / "samples")
    request = GoldenRequest(source_folder=str(embedder.source), out=str(tmp_path), error=0.01)
    made = in_a_worker(tmp_path, "golden.make", "make_golden", request)
    assert len(made["cases"]) == 8
    again = golden(embedder, tmp_path / "again", error=0.01)
    assert json.loads(encode(again)) == made, "as if they had been asked for now"


def test_a_file_is_judged_without_torch(embedder: Any, tmp_path: Path) -> None:
    request = JudgeRequest(
        artifact=embedder.artifact,
        root=str(embedder.root / "candidate"),
        source_folder=str(embedder.source),
        samples=str(embedder.root / "samples"),
    )
    assert in_a_worker(tmp_path, "judge", "judge", request)["judgement"]["verdict"] == "pass"


@pytest.mark.parametrize("change", ["answers", "file", "seed"])
def test_candidates_of_something_else_are_not_used(
    embedder: Any, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    for file in (embedder.root / "samples").iterdir():
        (samples / file.name).write_bytes(file.read_bytes())
    seed = 0
    if change == "answers":
        text = (samples / "answers.json").read_text()
        (samples / "answers.json").write_text(
            text.replace('"reference":"pt2"', '"reference":"a:b"')
        )
    elif change == "file":
        (samples / "candidates.npz").write_bytes(b"other")
    else:
        seed = 3
    started = []
    from edgeserve.validate.golden import make as module

    oracle = module.Reference
    monkeypatch.setattr(module, "Reference", lambda *args: started.append(1) or oracle(*args))
    assert len(golden(embedder, tmp_path, error=0.01, seed=seed).cases) == 8
    assert started == [1]


def drawn(
    vector: list[float],
    size: int = 0,
    program: list[float] | None = None,
    answers: tuple[list[float], ...] = (),
) -> GoldenCandidate:
    record = Embedding(vector=np.array(vector))
    other = record if program is None else Embedding(vector=np.array(program))
    said = tuple(Embedding(vector=np.array(answer)) for answer in answers)
    return GoldenCandidate("x", "", ".txt", record, 0.0, other, {}, size, answers=said)


def rule(error: float) -> SelectionRule:
    return SelectionRule("feature-extraction", error)


def test_what_one_decides_depends_on_the_others() -> None:
    """Alone among far ones a pair is sure; the third of a triple goes, and two are left."""
    far = [drawn([0, 0, 1, 0]), drawn([0, 0, 1, 0.2]), drawn([0, 1, 0, 0]), drawn([0, 1, 0, 0.2])]
    triple = [drawn([1, 0, 0, 0]), drawn([1, 0, 0, 0.1]), drawn([1, 0, 0, 0.15])]
    chosen = select_embeddings([*far, *triple], None, rule(0.05))
    assert len(chosen) == 6
    assert [each.record for each in chosen][:4] == [each.record for each in far]
    assert all(each.margin > 0.15 for each in chosen)


def test_pairs_of_several_lengths_come_first() -> None:
    def pair(axis: int, size: int, turn: float) -> list[GoldenCandidate]:
        one, other = np.eye(6)[axis], np.eye(6)[axis] + turn * np.eye(6)[5]
        return [drawn(one.tolist(), size), drawn(other.tolist(), size)]

    found = [*pair(0, 8, 0.0), *pair(1, 9, 0.1), *pair(2, 100, 0.3), *pair(3, 10, 0.2)]
    chosen = select_embeddings(found, 4, rule(0.01))
    assert sorted(each.size for each in chosen) == [8, 8, 100, 100]


def test_what_the_program_decides_otherwise_is_no_case() -> None:
    far = [drawn([0, 1, 0]), drawn([0, 1, 0.2])]
    turned = drawn([1, 0, 0.3], program=[0.9, 0.43, 0.3])
    kept = select_embeddings([*far, drawn([1, 0, 0]), turned], None, rule(0.02))
    assert turned not in kept
    assert select_embeddings([*far, turned], None, rule(0.0)) == []


def test_what_artifacts_change_on_these_inputs_counts_not_the_worst_of_all() -> None:
    """With an error of 0.4 nothing would hold; on these three pairs the artifacts hardly move."""
    pairs_ = [[[1, 0, 0], [1, 0.1, 0]], [[0, 1, 0], [0, 1, 0.1]], [[0, 0, 1], [0.1, 0, 1]]]
    still = [v for pair in pairs_ for v in pair]
    assert select_embeddings([drawn(v) for v in still], None, rule(0.4)) == []
    moved = np.array(still) + 0.02 * np.random.default_rng(0).normal(size=(6, 3))
    found = [drawn(v, answers=(v, m.tolist())) for v, m in zip(still, moved, strict=True)]
    chosen = select_embeddings(found, None, rule(0.4))
    assert len(chosen) == 6
    assert all(0 < (each.error or 0) < 0.2 for each in chosen)
    assert all(each.margin > 3 * (each.error or 0) for each in chosen)
    flipped = [drawn(v, answers=(v, w)) for v, w in zip(still, still[::-1], strict=True)]
    flipped[0] = drawn(still[0], answers=(still[0], still[3]))
    assert len(select_embeddings(flipped, None, rule(0.4))) < 6
