"""A small text model through a real export: tokens that look at each other, and their mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn

from edgeserve.validate.inputs.media import paraphrases

LONGEST = 48


VOCABULARY = 1024


def tokenizer() -> bytes:
    """A ``tokenizer.json`` that knows the letters and short words of the generated texts."""
    text = " ".join(text.lower() for pair in paraphrases() for text in pair)
    letters = sorted(set(text) - {" "})
    words = sorted({word for word in text.split() if word.isascii() and 1 < len(word) < 5})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{c}" for c in letters), *words]
    vocabulary = {piece: i for i, piece in enumerate(pieces[:VOCABULARY])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made.to_str().encode()


class Attending(nn.Module):
    """One vector a token [batch, tokens, 24]: each token looks at all that the mask lets it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.places = nn.Embedding(VOCABULARY, 24), nn.Embedding(LONGEST, 24)
        self.asks, self.gives = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        words = self.words(ids) + 0.1 * self.places(torch.arange(ids.shape[1]))
        scores = self.asks(words) @ words.transpose(1, 2) / 24**0.5
        blocked = (1.0 - mask[:, None, :].float()) * -1e9
        looked = torch.softmax(scores + blocked, -1) @ self.gives(words)
        return words + looked


def processing() -> dict[str, Any]:
    """Two tokenized inputs; the mean of the tokens' vectors, of length 1."""

    def step(part: str) -> dict[str, Any]:
        named = {"step": "tokenize/1", "tokenizer": "assets/tokenizer.json", "part": part}
        return {"steps": [named | {"max_length": LONGEST}]}

    return {
        "inputs": [{"name": "ids", **step("ids")}, {"name": "mask", **step("attention_mask")}],
        "outputs": [
            {"step": "pool/1", "output": "tokens", "mask": "mask"},
            {"step": "l2_normalize/1", "output": "tokens"},
        ],
    }


def phrases(count: int) -> list[str]:
    """Short texts, some of them nearly alike."""
    who = ("the cook", "my aunt", "a pilot", "our teacher", "the old sailor", "her twin", "the vet")
    does = ("lost", "painted", "repaired", "sold", "dreamt of", "cleaned")
    what = ("a kite", "the red boat", "seven clocks", "a wooden spoon", "the piano", "two maps")
    rng = np.random.default_rng(11)
    made: dict[str, None] = {}
    while len(made) < count:
        three = [str(rng.choice(words)) for words in (who, does, what)]
        made[f"{' '.join(three)} {rng.integers(2, 9)} times"] = None
    return list(made)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``data.jsonl`` of texts, each a group of its own."""
    path = tmp_path_factory.mktemp("texts") / "data.jsonl"
    path.write_text("".join(json.dumps({"input": text}) + "\n" for text in phrases(240)))
    return path


@pytest.fixture(scope="session")
def embedder(build: Any, texts: Path) -> Any:
    """`Attending`, converted, its length free, with the exported program's answers to `texts`."""
    length = torch.export.Dim("length", min=1, max=LONGEST)
    shapes = ({0: "batch", 1: length}, {0: "batch", 1: length})
    examples = (torch.randint(4, VOCABULARY, (2, 9)), torch.ones(2, 9, dtype=torch.int64))
    made = build(
        Attending(),
        *examples,
        dynamic_shapes=shapes,
        input_names=("ids", "mask"),
        output_names=("tokens",),
        task="feature-extraction",
        processing=processing(),
        assets={"assets/tokenizer.json": tokenizer()},
    )
    made.answers(data=str(texts), golden=8)
    return made
