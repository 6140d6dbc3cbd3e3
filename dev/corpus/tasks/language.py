"""What the text tasks share: words, a tokenizer built with the real library, a tiny encoder."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from dev.corpus.paths import OUT, write_atomic

#: Tokens of a row, special ones included; what is longer is cut off at its end.
LENGTH = 20


def _words(text: str) -> list[str]:
    return text.split()


#: Aspects that a sentence speaks of, and the words of either side of each.
VALUES = {
    "food": _words("soup bread cheese apple noodle pepper salad butter rice tomato kitchen plate"),
    "sport": _words("ball match runner stadium coach racket goal sprint referee swimmer team net"),
    "good": _words("great lovely fine superb pleasant brilliant"),
    "bad": _words("awful boring poor terrible nasty dreadful"),
}
FILLERS = _words(
    "the a this that was is very quite really so today again here there we they it for with "
    "and then also just still maybe some every one time day people"
)

#: Slots of a sentence to be found again: for each of its values, words that mean the same.
SLOTS = [
    [[f"{slot}{value}{word}" for word in "abc"] for value in "kmprstvz"]
    for slot in ("ba", "de", "fi", "go", "hu", "ly")
]

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def _vocabulary() -> dict[str, int]:
    words = [w for held in VALUES.values() for w in held] + FILLERS + ["not"]
    words += [word for slot in SLOTS for value in slot for word in value]
    return {word: i for i, word in enumerate((*_SPECIAL, *dict.fromkeys(words)))}


def tokenizer_json(lower: bool = True, unknown: int = 0) -> str:
    """A ``tokenizer.json``; without ``lower`` capitals are unknown words.

    Args:
        lower: Whether it makes letters small first.
        unknown: So many words, from the end of the list of fillers, are not in it.
    """
    held = _vocabulary()
    for word in FILLERS[len(FILLERS) - unknown :]:
        place = held.pop(word)
        held[f"[gone-{place}]"] = place
    made = Tokenizer(models.WordLevel(held, unk_token="[UNK]"))
    if lower:
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return str(made.to_str(pretty=True))


@functools.cache
def tokenizer_file() -> Path:
    """The right one, on disk for the factory."""
    return write_atomic(OUT / "training" / "tokenizer.json", tokenizer_json().encode())


@functools.cache
def tokenizer() -> Any:
    """The server's own."""
    made = Tokenizer.from_str(tokenizer_json())
    made.enable_truncation(LENGTH)
    made.enable_padding(length=LENGTH, pad_id=0, pad_token="[PAD]")
    return made


def tokens(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, int64 [n, 20], as the server makes them."""
    encoded = tokenizer().encode_batch(texts)
    return torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])


def cased(rng: np.random.Generator, words: list[str]) -> str:
    """Join words as people write them: some with a capital, a few in capitals."""
    given = list(words)
    for i, roll in enumerate(rng.random(len(given))):
        if roll < 0.25 or i == 0:
            given[i] = given[i].capitalize()
        elif roll < 0.3:
            given[i] = given[i].upper()
    return " ".join(given)


class Encoder(torch.nn.Module):
    """One block of attention and one of two layers, over words and their places."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(len(_vocabulary()), width)
        self.places = torch.nn.Embedding(LENGTH, width)
        self.taken = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.before = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)
        self.after = torch.nn.LayerNorm(width)
        self.heads, self.width = heads, width
        self.scale = (width // heads) ** -0.5

    def place(self, ids: torch.Tensor) -> torch.Tensor:
        """The vectors of the places, [1, 20, d]."""
        return self.places.weight[None]

    def weigh(self, scores: torch.Tensor) -> torch.Tensor:
        """Attention scores [n, heads, from, to] to weights."""
        return scores.softmax(-1)

    def mask(self, mask: torch.Tensor) -> torch.Tensor:
        """What is added to the scores, [n, 1, 1, 20]."""
        return (1.0 - mask[:, None, None].float()) * -1e4

    def turn(self, k: torch.Tensor) -> torch.Tensor:
        """Keys [n, heads, to, d] to [n, heads, d, to]."""
        return k.transpose(-1, -2)

    def attend(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention over [n, 20, d]."""
        parts = self.qkv(x).view(-1, LENGTH, 3, self.heads, self.width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ self.turn(k) * self.scale + self.mask(mask)
        mixed = (self.weigh(scores) @ v).transpose(1, 2).reshape(-1, LENGTH, self.width)
        return self.out(mixed)  # type: ignore[no-any-return]

    def act(self, x: torch.Tensor) -> torch.Tensor:
        """The function between the two layers."""
        return torch.nn.functional.gelu(x)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Ids and mask [n, 20] to vectors [n, 20, d]."""
        x = self.taken(self.words(ids) + self.place(ids))
        x = self.before(x + self.attend(x, mask))
        return self.after(x + self.down(self.act(self.up(x))))  # type: ignore[no-any-return]


def example() -> tuple[torch.Tensor, torch.Tensor]:
    """Two rows of ids with their masks."""
    return tokens(["the soup was great", "a very boring match today"])


def rows(max_length: int = LENGTH) -> list[dict[str, Any]]:
    """The processing of both inputs."""
    step = {"step": "tokenize/1", "tokenizer": "assets/tokenizer.json", "max_length": max_length}
    return [
        {"name": "ids", "steps": [{**step, "part": "ids"}]},
        {"name": "mask", "steps": [{**step, "part": "attention_mask"}]},
    ]
