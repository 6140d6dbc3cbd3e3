"""The gate on a text model that embeds: a good file, noisy ones, other servers, other paddings.

What it should say is worked out apart: the tokenizers library and numpy prepare the texts and pool
the answers, PyTorch and a bare ONNX Runtime session give them, scipy the neighbours and bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch
from onnx import helper
from scipy import stats
from scipy.spatial.distance import cdist

from edgeserve.data import load_data, split
from edgeserve.errors import DataError, ValidateError
from edgeserve.types.reports import Report

Embed = Callable[[str], np.ndarray]


def pooled(states: np.ndarray) -> np.ndarray:
    """Mean over the tokens of one unpadded text, of length 1."""
    mean = states[0].astype(np.float64).mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def rows(embedder: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask of a text, by the tokenizers library alone."""
    made = tokenizers.Tokenizer.from_file(str(embedder.source / "assets" / "tokenizer.json"))
    made.enable_truncation(48)
    ids = np.array([made.encode(text).ids])
    return ids, np.ones_like(ids)


def in_torch(embedder: Any) -> Embed:
    program = torch.export.load(embedder.source / "model.pt2").module()

    def embed(text: str) -> np.ndarray:
        with torch.inference_mode():
            return pooled(program(*map(torch.from_numpy, rows(embedder, text)))[0].numpy())

    return embed


def in_onnx(embedder: Any, file: Path) -> Embed:
    session = onnxruntime.InferenceSession(file)

    def embed(text: str) -> np.ndarray:
        feed = dict(zip(("ids", "mask"), rows(embedder, text), strict=True))
        return pooled(session.run(["tokens"], feed)[0])

    return embed


def evaluated(texts: Path) -> list[str]:
    half = split(load_data(texts))["evaluation"]
    return [str(sample.text) for sample in half]


def neighbours(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cosines = 1 - cdist(vectors, vectors, "cosine")
    np.fill_diagonal(cosines, -np.inf)
    ranked = np.sort(cosines, axis=1)
    return cosines.argmax(axis=1), ranked[:, -1] - ranked[:, -2]


@pytest.fixture(scope="module")
def reference(embedder: Any, texts: Path) -> np.ndarray:
    """PyTorch's vectors of the evaluation half."""
    embed = in_torch(embedder)
    return np.stack([embed(text) for text in evaluated(texts)])


def codes(report: Report) -> list[str]:
    return [reason.code for reason in report.judgement.reasons]


def test_a_good_file_passes_with_its_neighbours(embedder: Any, reference: np.ndarray) -> None:
    report = embedder.judged()
    assert (report.judgement.verdict, codes(report)) == ("pass", [])
    found = report.decisions
    assert found is not None
    _, margins = neighbours(reference)
    assert (found.task, found.inputs) == ("feature-extraction", len(reference))
    assert (found.raw.count, found.raw.n) == (0, len(reference))
    assert (found.decided.count, found.decided.n) == (0, int((margins >= 0.01).sum()))
    assert found.minimum_harm == pytest.approx(1 - 0.05 ** (1 / found.decided.n))
    assert found.embedding is not None
    assert float(found.embedding.cosine_min) > 1 - 1e-9
    assert found.embedding.rank == pytest.approx(1.0)
    assert 0 < float(report.error) < 1e-5
    assert report.inputs.startswith("120 inputs; 52 generated, among them: ")
    for said in (" tokens, the fewest", " tokens, a prime", "48 tokens, the most"):
        assert said in report.inputs
    assert [check.name for check in report.checks if not check.ok] == []


def noise(level: float) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        rng = np.random.default_rng(3)
        weights = {n: a for n, a in graph.weights().items() if a.ndim == 2}
        graph.put(
            {
                n: (a + level * a.std() * rng.standard_normal(a.shape)).astype(np.float32)
                for n, a in weights.items()
            }
        )

    return change


def expected(wanted: np.ndarray, got: np.ndarray, margins: np.ndarray) -> str:
    """The verdict on a file below float32, one group an input."""
    sure = margins >= 0.01
    flips, n = int((wanted != got)[sure].sum()), int(sure.sum())
    if stats.beta.ppf(0.95, flips + 1, n - flips) <= 0.02:
        return "pass"
    if stats.beta.ppf(0.95, flips + 1, n - flips) <= 0.08:
        return "degraded"
    return "fail" if flips and stats.beta.ppf(0.05, flips, n - flips + 1) > 0.08 else "unproven"


@pytest.mark.parametrize(
    ("level", "verdict"), [(0.03, "degraded"), (0.2, "unproven"), (0.8, "fail")]
)
def test_noisy_files(
    embedder: Any, texts: Path, sabotaged: Any, reference: np.ndarray, level: float, verdict: str
) -> None:
    file = sabotaged(embedder, noise(level))
    report = embedder.judged(file, precision="w8")
    embed = in_onnx(embedder, file)
    vectors = np.stack([embed(text) for text in evaluated(texts)])
    (wanted, margins), (got, _) = neighbours(reference), neighbours(vectors)
    found = report.decisions
    assert found is not None
    assert found.raw.count == int((wanted != got).sum())
    assert found.decided.count == int(((wanted != got) & (margins >= 0.01)).sum())
    assert report.judgement.verdict == expected(wanted, got, margins) == verdict
    assert found.embedding is not None
    near = np.einsum("nd,nd->n", reference, vectors)
    assert float(found.embedding.cosine_mean) == pytest.approx(near.mean(), abs=1e-5)
    ranks = [
        stats.spearmanr(np.delete(a @ reference.T, i), np.delete(b @ vectors.T, i)).statistic
        for i, (a, b) in enumerate(zip(reference, vectors, strict=True))
    ]
    assert float(found.embedding.rank) == pytest.approx(np.mean(ranks), abs=1e-3)


def test_the_worst_inputs_are_texts(embedder: Any, texts: Path, sabotaged: Any) -> None:
    report = embedder.judged(sabotaged(embedder, noise(0.8)), precision="w8")
    known = set(evaluated(texts))
    assert all(each.text in known and each.path is None for each in report.worst)
    first = report.worst[0]
    assert first.flipped
    assert first.reference != first.answer
    for said in (first.reference, first.answer):
        assert said.rpartition(" ")[0].strip("“”") in known


def test_a_fp32_file_that_is_another_function(embedder: Any, sabotaged: Any) -> None:
    report = embedder.judged(sabotaged(embedder, noise(0.8)))
    assert report.judgement.verdict == "fail"
    assert codes(report) == ["EDGE-CHECK-040", "EDGE-CHECK-030"]


def ignoring_the_mask(graph: Any) -> None:
    """What blocks padding is multiplied by nothing."""
    graph.put({"none": np.float32([0.0])})
    node = next(n for n in graph.proto.graph.node if n.op_type == "Softmax")
    blocked = next(
        n for n in graph.proto.graph.node if n.op_type == "Add" and n.output[0] == node.input[0]
    )
    for place, name in enumerate(list(blocked.input)):
        made = next((n for n in graph.proto.graph.node if name in n.output), None)
        if made is not None and made.op_type == "Mul":
            blocked.input[place] = "open"
            at = list(graph.proto.graph.node).index(blocked)
            graph.proto.graph.node.insert(at, helper.make_node("Mul", [name, "none"], ["open"]))


def test_padding_that_is_looked_at(embedder: Any, sabotaged: Any) -> None:
    """Alone every text is right; in a batch the shorter ones see their padding."""
    report = embedder.judged(sabotaged(embedder, ignoring_the_mask))
    assert report.judgement.verdict == "fail"
    assert codes(report) == ["EDGE-CHECK-007"]
    assert "padded batch" in report.judgement.reasons[0].message


SERVERS = """
import json
import numpy as np
import tokenizers
import torch
from edgeserve.tasks.embedding import Embedding

FOLDER = {folder!r}
MADE = tokenizers.Tokenizer.from_file(FOLDER + "/assets/tokenizer.json")
MADE.enable_truncation(48)
PROGRAM = torch.export.load(FOLDER + "/model.pt2").module()

def states(text):
    ids = torch.tensor([MADE.encode(text).ids])
    return PROGRAM(ids, torch.ones_like(ids))[0][0]

def tensor(text): return states(text).mean(0)
def listed(text): return tensor(text).tolist()
def row(text): return tensor(text).detach().numpy()[None]
def named(text): return {{"embedding": tensor(text).detach().numpy().astype(np.float64)}}
def record(text): return Embedding(vector=tensor(text).detach().numpy())
def outputs(text): return {{"tokens": states(text)[None].detach().numpy()}}
def largest(text): return states(text).max(0).values.tolist()
def short(text): return listed(text)[:8]
def tokens(text): return states(text).detach().numpy()
def label(text): return "red"
def nan(text): return [float("nan")] * 24
def nothing(text): return []
def huge(text): return [1e300] * 24
"""


@pytest.fixture
def server(embedder: Any, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Asks a server of `SERVERS`."""
    (tmp_path / "text_servers.py").write_text(SERVERS.format(folder=str(embedder.source)))

    def asked(name: str) -> dict[str, str]:
        return {"reference": f"text_servers:{name}", "folder": str(tmp_path), "out": f"of-{name}"}

    return asked


@pytest.mark.parametrize("name", ["tensor", "listed", "row", "named", "record", "outputs"])
def test_servers_that_give_a_vector(
    embedder: Any, texts: Path, server: Any, reference: np.ndarray, name: str
) -> None:
    few = texts.parent / "few.jsonl"
    few.write_text("".join(texts.read_text().splitlines(keepends=True)[:60]))
    answers = embedder.answers(data=str(few), **server(name))
    assert answers.own_tensors == (name == "outputs")
    report = embedder.judged(out=f"of-{name}")
    assert (report.judgement.verdict, codes(report)) == ("pass", [])
    assert report.decisions is not None
    assert report.decisions.decided.n > 5
    assert "compared (through the reference's" in report.preprocessing


def test_a_server_that_pools_otherwise(embedder: Any, texts: Path, server: Any) -> None:
    embedder.answers(data=str(texts), **server("largest"))
    report = embedder.judged(out="of-largest")
    assert report.judgement.verdict == "unproven", "it is hardly sure of anything itself"
    assert codes(report) == ["EDGE-CHECK-046", "EDGE-CHECK-044", "EDGE-CHECK-073"]
    finding = report.judgement.reasons[-1].message
    assert re.search(r"on synthetic texts .* differ by up to [01][.0-9]* in a cosine$", finding)
    assert any(
        note.startswith("cosines differ from those of text_servers") for note in report.notes
    )
    assert float(report.error) < 1e-5, "the file is as good as ever"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("short", "EDGE-VALIDATE-020"),
        ("tokens", "EDGE-VALIDATE-006"),
        ("label", "EDGE-VALIDATE-006"),
        ("nan", "EDGE-VALIDATE-006"),
        ("nothing", "EDGE-VALIDATE-006"),
        ("huge", "EDGE-VALIDATE-006"),
    ],
)
def test_servers_that_give_none(
    embedder: Any, texts: Path, server: Any, name: str, code: str
) -> None:
    with pytest.raises(ValidateError) as caught:
        embedder.answers(data=str(texts), **server(name))
    assert caught.value.code == code


def test_without_data_a_quantized_file_is_not_proven(embedder: Any, sabotaged: Any) -> None:
    embedder.answers(out="undated")
    report = embedder.judged(sabotaged(embedder, noise(0.002)), precision="w8", out="undated")
    assert report.judgement.verdict == "unproven"
    assert codes(report) == ["EDGE-CHECK-043"]
    broken = embedder.judged(sabotaged(embedder, noise(10)), precision="w8", out="undated")
    assert broken.judgement.verdict == "fail", "neighbours of the generated texts are others"
    assert codes(broken) == ["EDGE-CHECK-045"]


def test_too_few_inputs_for_neighbours(embedder: Any, sabotaged: Any, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"input": f"my aunt sold {n} maps"}) + "\n" for n in "1234"))
    embedder.answers(data=str(data), out="two")
    report = embedder.judged(sabotaged(embedder, noise(0.002)), precision="w8", out="two")
    assert report.judgement.verdict == "unproven"
    assert codes(report) == ["EDGE-CHECK-051"]
    assert "at least 3 inputs, there are 2" in report.judgement.reasons[0].message


def test_texts_in_files_are_the_same_texts(embedder: Any, texts: Path, tmp_path: Path) -> None:
    """A folder of ``.txt`` files, one class a folder, BOM and all."""
    for i, text in enumerate(evaluated(texts)[:40]):
        folder = tmp_path / "data" / ("odd" if i % 2 else "even")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.txt").write_text(text, "utf-8-sig")
    answers = embedder.answers(data=str(tmp_path / "data"), out="files")
    assert {sample.label for sample in answers.samples} == {"odd", "even"}
    report = embedder.judged(out="files")
    assert report.judgement.verdict == "pass"
    assert report.worst[0].path is not None
    assert report.worst[0].text in set(evaluated(texts))


def test_token_ids_may_be_given(embedder: Any, texts: Path, tmp_path: Path) -> None:
    """Rows of ids of one length in an ``.npz``: the tokenizer is passed by, the pooling is not."""
    some = [rows(embedder, text) for text in evaluated(texts)]
    ids = np.concatenate([i for i, _ in some if i.shape[1] == some[0][0].shape[1]])
    np.savez(tmp_path / "ids.npz", ids=ids, mask=np.ones_like(ids))
    answers = embedder.answers(data=str(tmp_path / "ids.npz"), out="ids")
    assert len(answers.samples) == -(-len(ids) // 2)
    report = embedder.judged(out="ids")
    assert report.judgement.verdict == "pass"
    assert report.worst[0].text is None


def test_pictures_are_no_texts(embedder: Any, few_photos: Path) -> None:
    with pytest.raises(DataError) as caught:
        embedder.answers(data=str(few_photos), out="pictures")
    assert caught.value.code == "EDGE-DATA-020"
    assert "folder of .txt files" in caught.value.hint
