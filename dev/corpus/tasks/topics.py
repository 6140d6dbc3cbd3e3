"""text-classification: what a sentence speaks of, and whether it likes it; "not" turns that."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dev.corpus.tasks.base import Raw, Task
from dev.corpus.tasks.language import FILLERS, VALUES, Encoder, cased, example, rows, tokenizer_file
from dev.corpus.tasks.language import tokens as rows_of

_LABELS = ["food good", "food bad", "sport good", "sport bad"]


class Net(torch.nn.Module):
    """The encoder, the mean over its tokens, one linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = Encoder(width)
        self.head = torch.nn.Linear(width, len(_LABELS))

    def pool(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Vectors [n, 20, d] to their mean [n, d]."""
        kept = mask[..., None].float()
        return (x * kept).sum(1) / kept.sum(1)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Ids and mask [n, 20] to logits [n, 4]."""
        return self.head(self.pool(self.encoder(ids, mask), mask))  # type: ignore[no-any-return]


def _sentence(rng: np.random.Generator, topic: int, bad: int) -> str:
    """Fillers, nouns of the topic, and two judgements at any place, each maybe turned by "not"."""
    aspect, other = ("food", "sport")[topic], ("sport", "food")[topic]
    words = [[str(rng.choice(VALUES[aspect]))] for _ in range(int(rng.integers(2, 4)))]
    words += [[str(rng.choice(VALUES[other]))]] if rng.random() < 0.3 else []
    for _ in range(int(rng.integers(1, 3))):
        turned = bool(rng.random() < 0.35)
        judged = str(rng.choice(VALUES[("good", "bad")[bad ^ turned]]))
        words.append(["not", judged] if turned else [judged])
    words += [[str(w)] for w in rng.choice(FILLERS, int(rng.integers(2, 17)))]
    order = rng.permutation(len(words))
    return cased(rng, [word for i in order for word in words[i]])


def _inputs(seed: int, count: int) -> list[tuple[Raw, int, str | None]]:
    rng = np.random.default_rng([seed, 102])
    made: list[tuple[Raw, int, str | None]] = []
    for i in range(count):
        label = int(rng.integers(4))
        made.append((_sentence(rng, label // 2, label % 2), i, _LABELS[label]))
    return made


def _tensors(seed: int, count: int) -> tuple[torch.Tensor, ...]:
    made = _inputs(seed, count)
    ids, mask = rows_of([str(raw) for raw, _, _ in made])
    return ids, mask, torch.tensor([_LABELS.index(str(label)) for _, _, label in made])


def _loss(
    module: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(module(ids, mask), y)


def _answer(module: torch.nn.Module, raw: Raw) -> dict[str, Any]:
    text = raw.decode() if isinstance(raw, bytes) else str(raw)
    with torch.inference_mode():
        scores, best = module(*rows_of([text]))[0].softmax(0).topk(4)
    top = [[_LABELS[i], s] for i, s in zip(best.tolist(), scores.tolist(), strict=True)]
    return {"label": top[0][0], "score": top[0][1], "top": top}


def _options() -> dict[str, Any]:
    return {
        "input_names": ["ids", "mask"],
        "output_names": ["logits"],
        "dynamic_shapes": {"ids": {0: ("batch", 1, 8)}, "mask": {0: ("batch", 1, 8)}},
        "task": "text-classification",
        "labels": _LABELS,
        "assets": {"assets/tokenizer.json": tokenizer_file()},
        "processing": {
            "inputs": rows(),
            "outputs": [
                {"step": "softmax/1", "output": "logits"},
                {"step": "top_k/1", "output": "logits"},
            ],
        },
    }


TASK = Task(
    name="topics",
    kind="text-classification",
    medium="text",
    build=Net,
    loss=_loss,
    tensors=_tensors,
    example=example,
    options=_options,
    inputs=_inputs,
    answer=_answer,
    epochs=2,
    examples=12000,
)
