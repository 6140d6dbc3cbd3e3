"""`Wrapper` on a text model: the whole way from a str to an embedding, on files of every shape."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper
from edgeserve.errors import BundleError, InputError, ProcessingError, WrapperError
from edgeserve.package import package
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.options import PackageOptions
from edgeserve.types.records import Tensors
from edgeserve.wrapper import verify

#: The dynamic file, and the one that is fixed to one text of 32 tokens in int32.
FILES = ["onnx-fp32", "onnx-fp16"]


@pytest.mark.parametrize("name", FILES)
def test_a_text_alone_and_texts_in_a_list(text: Any, name: str) -> None:
    with Wrapper(text.workspace(name), threads=1) as model:
        assert model.ran_on.proof == "golden"
        assert f"{model.ran_on.format}-{model.ran_on.precision}" == name
        for each in text.texts:
            assert text.agrees(model.predict(each), each)
        assert text.agrees(model.predict(text.texts[3].encode()), text.texts[3])
        many = [f"{'the birds over the sea ' * (n % 7)}{n} cats" for n in range(21)]
        answers = model.predict(many)
        assert len(answers) == 21
        assert all(text.agrees(a, each) for a, each in zip(answers, many, strict=True))
        assert model.predict([]) == []


@pytest.mark.parametrize("name", FILES)
def test_named_tensors_come_back_as_the_source_gives_them(text: Any, name: str) -> None:
    rows = [text.ids(each) for each in (text.texts[0], text.texts[1])]
    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    with Wrapper(text.workspace(name), threads=1) as model:
        answer = model.predict({"ids": ids, "mask": mask})
        assert isinstance(answer, Tensors)
        assert answer["vectors"].shape == (2, longest, 16)
        for n, row in enumerate(rows):
            wanted = text.tokens(text.texts[n])
            np.testing.assert_allclose(answer["vectors"][n, : len(row)], wanted, atol=1e-5)
        both = model.predict([{"ids": ids[:1], "mask": mask[:1]}, {"ids": ids, "mask": mask}])
        assert [x["vectors"].shape[0] for x in both] == [1, 2]
        np.testing.assert_allclose(both[1]["vectors"], answer["vectors"], atol=1e-6)
        small = model.predict({"ids": ids.astype(np.int32), "mask": mask.astype(np.int32)})
        np.testing.assert_allclose(small["vectors"], answer["vectors"], atol=1e-6)
        with pytest.raises(InputError) as refused:
            model.predict({"ids": np.ones((1, 33), np.int64), "mask": np.ones((1, 33), np.int64)})
        assert refused.value.code == "EDGE-INPUT-015"


def test_what_is_no_text_is_named(text: Any) -> None:
    with Wrapper(text.workspace(), threads=1) as model:
        for raw, code in ((Path("a.txt"), "020"), (7, "020"), ("\ud83d", "021"), (b"\xff", "021")):
            with pytest.raises(InputError) as refused:
                model.predict(raw)
            assert refused.value.code == f"EDGE-INPUT-{code}"
        with pytest.raises(InputError, match="item 1: raw input") as refused:
            model.predict(["the cat", None])
        assert refused.value.code == "EDGE-INPUT-020"


def test_a_bundle_carries_its_tokenizer(
    text: Any, tmp_path: Path, write_reports: Callable[[Path], None]
) -> None:
    workspace = text.workspace(*FILES)
    write_reports(workspace)
    bundle = tmp_path / "words.edge"
    package(PackageOptions(out=str(workspace), bundle=str(bundle)))
    with Wrapper(bundle) as model:  # two artifacts, several threads: tried in a child process
        assert model.ran_on.proof == "golden"
        assert text.agrees(model.predict("the cat"), "the cat")
    certificate = verify(bundle)
    assert certificate.verdict == "pass"
    assert {(p.passed, p.total) for p in certificate.proofs} == {(6, 6)}
    assert all(float(p.max_difference) < 1e-9 for p in certificate.proofs)
    wanted = _margin(text)
    assert all(
        float(p.min_margin or 0) == pytest.approx(wanted, abs=1e-5) for p in certificate.proofs
    )


def _margin(text: Any) -> float:
    """Smallest lead of a nearest neighbour among the golden texts, by numpy."""
    vectors = np.stack([text.vector(each) for each in text.texts])
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    ordered = np.sort(cosines, axis=1)
    return float((ordered[:, -1] - ordered[:, -2]).min())


def test_another_model_does_not_hold(text: Any) -> None:
    with pytest.raises(WrapperError, match="cosine distance within 1e-06") as refused:
        Wrapper(text.workspace(right=False), threads=1)
    assert refused.value.code == "EDGE-WRAPPER-001"


def test_another_nearest_neighbour_does_not_hold_however_near(text: Any) -> None:
    """The first case's own vector is right to the bit; what it stands nearest to is elsewhere."""
    first, near, *_ = texts = list(text.texts)
    cosines = [float(text.vector(first) @ text.vector(each)) for each in texts[1:]]
    assert texts[1 + int(np.argmax(cosines))] == near
    swapped = [texts[i] for i in (0, 4, 2, 3, 1, 5)]
    wanted = "golden/000.txt: wanted case 4 as its nearest neighbour, got case 1"
    with pytest.raises(WrapperError, match=wanted):
        Wrapper(text.workspace(answers=swapped), threads=1)


def test_threads_share_a_wrapper(text: Any) -> None:
    many = [f"{n} birds over the {'old ' * (n % 5)}harbour" for n in range(40)]
    with Wrapper(text.workspace(), threads=1) as model, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(model.predict, many))
    assert all(text.agrees(a, each) for a, each in zip(answers, many, strict=True))


def test_without_tokenizers_the_bundle_does_not_open(
    text: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = text.workspace()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for opening in (Wrapper, verify):
        with pytest.raises(ProcessingError, match=r"pip install .*\[text\]") as refused:
            opening(root)
        assert refused.value.code == "EDGE-PROCESS-020"


def test_a_tokenizer_that_was_changed_is_never_used(text: Any) -> None:
    root = text.workspace()
    asset = root / "assets/tokenizer.json"
    data = asset.read_bytes()
    asset.write_bytes(data.replace(b'"cat"', b'"act"'))
    with pytest.raises(BundleError) as refused:
        Wrapper(root)
    assert refused.value.code == "EDGE-BUNDLE-004"


def test_without_golden_cases_texts_are_answered_all_the_same(text: Any) -> None:
    with Wrapper(text.workspace(golden=False), threads=1) as model:
        assert model.ran_on.proof == "none"
        answer = model.predict("the cat")
        assert isinstance(answer, Embedding)
        assert text.agrees(answer, "the cat")
