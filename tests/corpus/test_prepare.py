"""The oracle's own processing gives what the servers' own preprocessing gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dev.corpus.oracle.prepare import feeds
from dev.corpus.tasks import digits, language, topics
from dev.corpus.tasks.base import ORACLE_SEED
from dev.corpus.tasks.digits import TASK
from dev.corpus.tasks.shapes import levels


def test_pictures_are_prepared_as_the_server_does_it() -> None:
    raws = [raw for raw, _, _ in TASK.inputs(ORACLE_SEED, 40)]
    made = feeds({"processing": TASK.options()["processing"]}, raws, None)["image"]  # type: ignore[arg-type]
    right = np.stack([digits._prepare(raw).numpy() for raw in raws])  # type: ignore[arg-type]
    assert np.abs(made - right).max() < 1e-6


def test_shapes_are_prepared_as_the_server_does_it() -> None:
    from dev.corpus.tasks.segments import TASK as SEGMENTS

    raws = [raw for raw, _, _ in SEGMENTS.inputs(ORACLE_SEED, 5)]
    made = feeds({"processing": SEGMENTS.options()["processing"]}, raws, None)["image"]  # type: ignore[arg-type]
    assert np.abs(made - torch.cat([levels(raw) for raw in raws]).numpy()).max() < 1e-6  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"padding": "left"}, {"truncation": "left"}])
def test_rows_of_tokens(changes: dict[str, Any], tmp_path: Any) -> None:
    texts = [str(raw) for raw, _, _ in topics.TASK.inputs(ORACLE_SEED, 60)]
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "tokenizer.json").write_text(language.tokenizer_json())
    steps = {**language.rows()[0]["steps"][0], **changes}
    steps["tokenizer"] = {"path": "assets/tokenizer.json"}
    spec = {"name": "ids", "dtype": "int64", "shape": ["batch", language.LENGTH]}
    said = {
        "processing": {"inputs": [{"name": "ids", "steps": [steps]}]},
        "signature": {"inputs": [spec]},
    }
    made = feeds(said, texts, tmp_path)["ids"]
    right = language.tokens(texts)[0].numpy()
    assert np.array_equal(made, right) == (changes == {})
    long = [i for i, text in enumerate(texts) if len(text.split()) > language.LENGTH - 2]
    assert long
    if changes == {"truncation": "left"}:
        short = [i for i in range(len(texts)) if i not in long]
        assert np.array_equal(made[short], right[short])
        assert (made[long] != right[long]).any()
