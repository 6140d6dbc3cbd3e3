"""Speech: tokens that an artifact puts in where the reference is sure that nothing is, and WER."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from edgeserve.tasks import DecisionRule
from edgeserve.tasks.text_generation import Picks, Text
from edgeserve.tasks.text_generation.device import text
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.validate.accuracy.evaluators import GroundTruthEvaluator
from edgeserve.validate.flips.counter import MultiDecisionCounter
from edgeserve.validate.stats.paired_tests import PairedCost, ratio_stats, student_quantile

STEP = Picks(output="y", blank=0)


def collapsed(best: list[int]) -> list[int]:
    return [token for token, _ in groupby(best) if token]


def put_in(tokens: list[int], longer: list[int]) -> set[int]:
    """Gaps of ``tokens`` in which one token more makes ``longer``."""
    return {
        gap
        for gap in range(len(tokens) + 1)
        if len(longer) == len(tokens) + 1 and [*tokens[:gap], longer[gap], *tokens[gap:]] == longer
    }


@pytest.mark.parametrize("seed", range(40))
def test_gaps_in_doubt_are_those_that_one_frame_can_fill(seed: int) -> None:
    """Every frame's second best is tried in its place, and the whole sequence read again."""
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((14, 4)) < 0.5, 0.0, 6.0) + rng.uniform(0, 0.01, (14, 4))
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    order = np.argsort(-shares, axis=1)
    lead = np.take_along_axis(shares, order, 1)
    best = order[:, 0].tolist()
    tokens = collapsed(best)
    record = text(STEP, scores.astype(np.float32), np.arange(14), lambda tokens: "")
    assert list(record.tokens) == tokens
    assert record.unsure is not None
    found = 0
    for frame in np.flatnonzero(lead[:, 0] - lead[:, 1] < 0.05):
        tried = [*best[:frame], int(order[frame, 1]), *best[frame + 1 :]]
        longer = collapsed(tried)
        if len(longer) > len(tokens):
            found += 1
            gaps = put_in(tokens, longer)
            assert not gaps or gaps & set(record.unsure), (best, tried)
    assert found or not record.unsure
    assert len(record.unsure) <= 3 * found


class Frames(nn.Module):
    """Scores of blank and three tokens a frame, [batch, frames, 4]: its input and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        with torch.no_grad():
            self.line.weight.copy_(torch.eye(4))
            self.line.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x)


def sounds(count: int) -> np.ndarray:
    """Scores of frames: tokens of two frames with three blanks between; silence between is sure."""
    rng = np.random.default_rng(9)
    found = np.zeros((count, 20, 4), np.float32)
    found[..., 0] = 4.0
    for each in found:
        for place in range(0, 20, 5):
            each[place : place + 2] = 0
            each[place : place + 2, 2 + rng.integers(2)] = 8.0
    return found + rng.normal(0, 0.01, found.shape).astype(np.float32)


@pytest.fixture(scope="module")
def spoken(build: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    steps = {"outputs": [{"step": "tokens/1", "output": "y", "blank": 0}]}
    made = build(
        Frames(),
        torch.from_numpy(sounds(1)),
        input_names=("x",),
        output_names=("y",),
        task="automatic-speech-recognition",
        processing=steps,
        labels=["-", "a", "b", "c"],
    )
    data = tmp_path_factory.mktemp("sounds") / "data.npz"
    np.savez(data, x=sounds(120))
    made.answers(data=str(data))
    return made


def test_a_token_put_into_silence_is_harm(spoken: Any, sabotaged: Callable[..., Any]) -> None:
    """Each silent frame now says "a", by a hair: the artifact is sure of none of them."""

    def louder(graph: Any) -> None:
        (name,) = [n for n, w in graph.weights().items() if w.shape == (4,)]
        graph.put({name: np.array([0, 4.08, 0, 0], np.float32)})

    assert spoken.judged().judgement.verdict == "pass"
    report = spoken.judged(sabotaged(spoken, louder), precision="fp16")
    assert report.judgement.verdict == "fail"
    stats_ = report.decisions
    assert stats_ is not None
    assert stats_.decided.count == stats_.raw.count == 60 * 4, "one in each of four silences"
    assert float(stats_.figures["wer"]) == 1.0, "its only word is another"


def test_a_token_put_in_where_the_reference_doubts_is_none() -> None:
    reference = Text(tokens=(2, 3), text="bc", margins=(0.9, 0.9), unsure=(1,))
    rule = DecisionRule("automatic-speech-recognition", 0.05)
    tally = MultiDecisionCounter(rule)
    answer = Text(tokens=(2, 1, 3), text="bac", margins=(0.9, 0.02, 0.9), unsure=())
    tally.add(Sample(id="1", group="1"), StoredAnswer("", reference, 0.9, True), answer)
    assert (tally.rows()[0].units.flips, tally.rows()[0].units.decided_flips) == (1, 0)


def words_wrong(said: str, truth: str) -> int:
    """Levenshtein by the whole table."""
    a, b = truth.split(), said.split()
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            change = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, change)
    return int(table[-1, -1])


def test_word_errors_against_transcripts() -> None:
    rows = [
        ("x", "the cat sat", "the cat sat", "a cat sat"),
        ("x", "on the mat", "on a mat", "on a mat"),
        ("y", "it rained all day", "it rained day", "rained day"),
        ("z", "nobody knew why", "nobody new why", "nobody knew why"),
    ]
    tally = GroundTruthEvaluator("automatic-speech-recognition", (), Processing())
    for i, (group, truth, reference, answer) in enumerate(rows):
        sample = Sample(id=str(i), group=group, label=truth)
        wanted, got = (
            Text(tokens=tuple(map(hash, t.split())), text=t) for t in (reference, answer)
        )
        tally.add(sample, {}, wanted, got)
    tally.add(Sample(id="9", group="9"), {}, wanted, got)  # no transcript
    (found,) = tally.stats()
    of_reference = [words_wrong(r[2], r[1]) for r in rows]
    of_answer = [words_wrong(r[3], r[1]) for r in rows]
    assert (found.metric, found.inputs, found.groups) == ("wer", 4, 3)
    assert float(found.reference) == pytest.approx(sum(of_reference) / 13)
    assert float(found.artifact) == pytest.approx(sum(of_answer) / 13)
    assert (found.lost, found.won) == (2, 1)
    assert float(found.p) == pytest.approx(stats.binomtest(2, 3, alternative="greater").pvalue)


@pytest.mark.parametrize("freedom", [1, 2, 7, 30, 400])
def test_students_quantile(freedom: int) -> None:
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.95, freedom), rel=1e-9)


def test_bounds_hold_the_true_difference_in_95_of_100() -> None:
    """Word errors that differ by 0.05 a word, in clusters; both bounds, one-sided each."""
    rng = np.random.default_rng(4)
    above = below = 0
    for _ in range(400):
        costs = []
        for group in range(40):
            bad = rng.gamma(2.0, 0.05)
            for _ in range(3):
                size = int(rng.integers(5, 15))
                mine, other = (
                    rng.binomial(size, min(1, bad)),
                    rng.binomial(size, min(1, bad + 0.05)),
                )
                costs.append(PairedCost(str(group), float(mine), float(other), size))
        found = ratio_stats("wer", costs)
        assert found is not None
        above += float(found.upper) < 0.05
        below += float(found.lower) > 0.05
    assert above < 400 * 0.09
    assert below < 400 * 0.09


def test_one_group_says_nothing_of_the_difference() -> None:
    found = ratio_stats("wer", [PairedCost("a", 1.0, 2.0, 10)])
    assert found is not None
    assert (found.lower, found.upper) == ("-inf", "inf")
    assert ratio_stats("wer", []) is None
