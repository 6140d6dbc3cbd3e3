"""Token classification through the gate: spans of characters in texts of many lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgeserve.tasks.token_classification import Tokens
from edgeserve.types.source import Exported

LABELS = ("O", "B-WHO", "I-WHO")


class Names(nn.Module):
    """Scores [batch, tokens, 3]: each token by itself, and a little by the one before it."""

    def __init__(self, turn: int = 0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(1024, 3)
        self.turn = turn

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        own = self.words(ids) * 3.0
        return torch.roll(own, self.turn, -1) * mask[..., None].float()


def spotter(build: Any, embedder: Any, turn: int = 0) -> Any:
    known: Exported = embedder.exported
    length = torch.export.Dim("length", min=1, max=48)
    shapes = ({0: "batch", 1: length}, {0: "batch", 1: length})
    examples = (torch.randint(4, 1024, (2, 9)), torch.ones(2, 9, dtype=torch.int64))
    asset = (embedder.source / "assets/tokenizer.json").read_bytes()
    processing = {
        "inputs": [
            {
                "name": each.name,
                "steps": [
                    {
                        "step": "tokenize/1",
                        "tokenizer": "assets/tokenizer.json",
                        "part": each.steps[0].part,
                        "max_length": 48,
                    }  # type: ignore[union-attr]
                ],
            }
            for each in known.processing.inputs
        ],
        "outputs": [{"step": "spans/1", "output": "scores"}],
    }
    return build(
        Names(turn),
        *examples,
        dynamic_shapes=shapes,
        input_names=("ids", "mask"),
        output_names=("scores",),
        task="token-classification",
        processing=processing,
        labels=LABELS,
        assets={"assets/tokenizer.json": asset},
    )


def test_spans(build: Any, embedder: Any, texts: Path) -> None:
    good = spotter(build, embedder)
    answers = good.answers(data=str(texts), golden=4)
    record = answers.answers[0].record
    assert isinstance(record, Tokens)
    assert record.spans
    report = good.judged()
    assert report.judgement.verdict == "pass"
    stats = report.decisions
    assert stats is not None
    assert (stats.unit, stats.raw.count, stats.figures["f1"]) == ("spans", 0, 1.0)
    assert stats.decided.n > stats.inputs
    bad = spotter(build, embedder, turn=1)
    report = good.judged(bad.onnx, precision="fp16")
    assert report.judgement.verdict == "fail"
    assert report.worst[0].text


def test_true_spans_say_who_is_right(
    build: Any, embedder: Any, texts: Path, tmp_path: Path
) -> None:
    """The truth lacks each text's first span; so F1 follows from how many there are."""
    good, bad = spotter(build, embedder), spotter(build, embedder, turn=1)
    answers = good.answers(data=str(texts))
    found = {
        sample.text: [[s.start, s.end, s.label] for s in answer.record.spans]
        for sample, answer in zip(answers.samples, answers.answers, strict=True)
        if isinstance(answer.record, Tokens)
    }
    lines = [json.loads(line)["input"] for line in texts.read_text().splitlines()]
    path = tmp_path / "data.jsonl"
    path.write_text(
        "\n".join(json.dumps({"input": t, "spans": found.get(t, [])[1:]}) for t in lines)
    )
    good.answers(data=str(path), out="true")
    [stats] = good.judged(out="true").metrics
    assert (stats.metric, stats.inputs, stats.more_is_better) == ("f1", len(found), True)
    total = sum(len(spans) for spans in found.values())
    kept = sum(len(spans[1:]) for spans in found.values())
    assert 0 < kept < total
    assert float(stats.reference) == pytest.approx(2 * kept / (kept + total))
    assert stats.artifact == stats.reference
    [stats] = good.judged(bad.onnx, precision="fp16", out="true").metrics
    assert float(stats.artifact) < float(stats.reference)
    assert float(stats.upper) < 0
