"""Next-token distributions: divergence and perplexity, against PyTorch's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

VOCABULARY, LENGTH = 23, 12


class Writer(nn.Module):
    """Scores of the next token at each position, from the token there and a mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words, self.out = nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = 3 * self.out(self.words(input_ids)) * attention_mask[..., None]
        return found


STEPS = {"outputs": [{"step": "tokens/1", "output": "logits", "mask": "attention_mask"}]}


def rows(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    ids = rng.integers(0, VOCABULARY, (count, LENGTH))
    lengths = rng.integers(4, LENGTH + 1, count)
    return {"input_ids": ids, "attention_mask": (np.arange(LENGTH) < lengths[:, None]).astype(int)}


@pytest.fixture(scope="module")
def writer(build: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    example = rows(1)
    made = build(
        Writer(),
        *(torch.from_numpy(example[n]) for n in ("input_ids", "attention_mask")),
        input_names=("input_ids", "attention_mask"),
        output_names=("logits",),
        task="text-generation",
        processing=STEPS,
    )
    data = tmp_path_factory.mktemp("texts") / "data.npz"
    np.savez(data, **rows(60))
    return made, made.answers(data=str(data))


def by_torch(answers: Any, changed: nn.Module) -> dict[str, float]:
    """The same figures over the evaluation half, by PyTorch."""
    table = rows(60)
    apart: list[torch.Tensor] = []
    nats = np.zeros(2)
    count = same = places = 0
    for sample in answers.samples:
        ids = torch.from_numpy(table["input_ids"][sample.row : sample.row + 1])
        mask = torch.from_numpy(table["attention_mask"][sample.row : sample.row + 1])
        kept = int(mask.sum())
        with torch.no_grad():
            sides = [net(ids, mask)[0, :kept].double() for net in (Writer(), changed)]
        logs = [side.log_softmax(-1) for side in sides]
        apart.append(functional.kl_div(logs[1], logs[0], log_target=True, reduction="none").sum(-1))
        following = ids[0, 1:kept]
        for i, side in enumerate(sides):
            nats[i] += float(functional.cross_entropy(side[:-1], following, reduction="sum"))
        count += kept - 1
        same += int((sides[0].argmax(-1) == sides[1].argmax(-1)).sum())
        places += kept
    every = torch.cat(apart)
    return {
        "kl": float(every.mean()),
        "kl_worst": float(every.max()),
        "agreement": same / places,
        "reference": math.exp(nats[0] / count),
        "artifact": math.exp(nats[1] / count),
    }


def test_divergence_and_perplexity_are_pytorchs(writer: Any, sabotaged: Callable[..., Any]) -> None:
    """A file whose output layer is rounded to a coarse grid."""
    changed = Writer()
    with torch.no_grad():
        changed.out.weight.copy_((changed.out.weight * 12).round() / 12)
    (weight,) = (changed.out.weight.detach().numpy(),)

    def rounded(graph: Any) -> None:
        found = {
            n: w for n, w in graph.weights().items() if sorted(w.shape) == sorted(weight.shape)
        }
        near = {
            name: array
            for name, held in found.items()
            for array in (weight, weight.T)
            if array.shape == held.shape and np.abs(array - held).max() < 0.05
        }
        assert len(near) == 1
        graph.put({name: np.ascontiguousarray(array) for name, array in near.items()})

    model, answers = writer
    report = model.judged(sabotaged(model, rounded), precision="w8")
    wanted = by_torch(answers, changed)
    assert report.decisions is not None
    figures = {name: float(value) for name, value in report.decisions.figures.items()}
    assert wanted["kl"] > 1e-4
    for name in ("kl", "kl_worst", "agreement"):
        assert figures[name] == pytest.approx(wanted[name], rel=1e-3), name
    (found,) = report.metrics
    assert found.metric == "perplexity"
    assert float(found.reference) == pytest.approx(wanted["reference"], rel=1e-4)
    assert float(found.artifact) == pytest.approx(wanted["artifact"], rel=1e-4)
    apart = wanted["artifact"] - wanted["reference"]
    assert float(found.lower) < apart < float(found.upper)
    assert found.lost + found.won == found.groups


def test_a_faithful_file(writer: Any) -> None:
    report = writer[0].judged()
    assert report.judgement.verdict == "pass"
    assert report.decisions is not None
    assert float(report.decisions.figures["kl_worst"]) < 1e-6
    assert float(report.decisions.figures["agreement"]) == 1.0
    (found,) = report.metrics
    assert float(found.upper) - float(found.lower) < 1e-3


def test_classifications_tell_their_divergence_too(classifier: Any, photos: Path) -> None:
    report = classifier.judged()
    assert report.decisions is not None
    assert 0 <= float(report.decisions.figures["kl"]) < 1e-6
    assert report.metrics == ()
