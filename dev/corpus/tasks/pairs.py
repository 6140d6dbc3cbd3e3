"""feature-extraction: of each text there is another that says the same in other words.

An embedding decides which other text is its nearest neighbour. Words of a slot mean the same or
not; sentences name all slots in any order, with fillers between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dev.corpus.tasks.base import Raw, Task
from dev.corpus.tasks.language import FILLERS, SLOTS, Encoder, cased, example, rows, tokenizer_file
from dev.corpus.tasks.language import tokens as rows_of


class Net(Encoder):
    """The encoder itself; mean and length come after it."""


def _sentence(rng: np.random.Generator, meaning: np.ndarray) -> str:
    words = [str(rng.choice(SLOTS[slot][value])) for slot, value in enumerate(meaning)]
    words += [str(w) for w in rng.choice(FILLERS, int(rng.integers(1, 9)))]
    return cased(rng, [words[i] for i in rng.permutation(len(words))])


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    """``count`` groups of two texts each."""
    rng = np.random.default_rng([seed, 103])
    made: list[tuple[Raw, int, str | None]] = []
    for i in range(count):
        meaning = rng.integers(0, 8, len(SLOTS))
        made += [(_sentence(rng, meaning), i, None) for _ in range(2)]
    return made


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    ids, mask = rows_of([str(raw) for raw, _, _ in _inputs(seed, count)])
    return ids[::2], mask[::2], ids[1::2], mask[1::2]


def _pooled(module: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    kept = mask[..., None].float()
    mean = (module(ids, mask) * kept).sum(1) / kept.sum(1)
    return torch.nn.functional.normalize(mean)


def _loss(module: torch.nn.Module, *pair: torch.Tensor) -> torch.Tensor:
    one, other = _pooled(module, *pair[:2]), _pooled(module, *pair[2:])
    return torch.nn.functional.cross_entropy(one @ other.T * 12.0, torch.arange(len(one)))


def _answer(module: torch.nn.Module, raw: Raw) -> list[float]:
    text = raw.decode() if isinstance(raw, bytes) else str(raw)
    with torch.inference_mode():
        vector: list[float] = _pooled(module, *rows_of([text]))[0].tolist()
    return vector


def _options() -> dict[str, Any]:
    return {
        "input_names": ["ids", "mask"],
        "output_names": ["tokens"],
        "dynamic_shapes": {"ids": {0: ("batch", 1, 8)}, "mask": {0: ("batch", 1, 8)}},
        "task": "feature-extraction",
        "assets": {"assets/tokenizer.json": tokenizer_file()},
        "processing": {
            "inputs": rows(),
            "outputs": [
                {"step": "pool/1", "output": "tokens", "mask": "mask", "mode": "mean"},
                {"step": "l2_normalize/1", "output": "tokens"},
            ],
        },
    }


TASK = Task(
    name="pairs",
    kind="feature-extraction",
    medium="text",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=example,
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=4,
    examples=8000,
)
