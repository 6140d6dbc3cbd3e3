"""Classifications read from probabilities, and compared: the best class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import Arrays, SampleOrigin, are_probabilities, wrong_outputs
from edgeserve.processing.outputs.reader import (
    ModelOutputs,
    RecordReader,
    check_labels,
    result_output,
)
from edgeserve.processing.steps.top_k import TopK, top_k
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison
from edgeserve.tasks.classification import Classification


def margin(record: Classification) -> float:
    """Probability of the best class minus that of the second.

    A record that keeps its best class only gets the least that can be: ``2 * score - 1``, at least
    0, since probabilities sum to 1.
    """
    if len(record.top) > 1:
        return record.top[0][1] - record.top[1][1]
    return max(0.0, 2 * record.score - 1)


def same(reference: Classification, answer: Classification) -> bool:
    """Whether both have the same best class, by index where both know it, else by label."""
    if reference.index >= 0 and answer.index >= 0:
        return reference.index == answer.index
    return reference.label == answer.label


def same_top(reference: Classification, answer: Classification, k: int) -> bool:
    """Whether the best ``k`` classes are the same, in any order."""
    k = min(k, len(reference.top), len(answer.top))
    if reference.indexes and answer.indexes:
        return set(reference.indexes[:k]) == set(answer.indexes[:k])
    # Two classes may share a label, so that labels are counted.
    first, second = ([label for label, _ in each.top[:k]] for each in (reference, answer))
    return Counter(first) == Counter(second)


def _score_gap(reference: Classification, answer: Classification) -> float:
    """Largest difference between the scores of classes that both records keep; 0 where none."""
    wanted, got = _scores(reference), _scores(answer)
    return max((abs(wanted[c] - got[c]) for c in wanted.keys() & got.keys()), default=0.0)


def _scores(record: Classification) -> dict[int | str, float]:
    if record.indexes:
        scores = (score for _, score in record.top)
        return dict(zip(record.indexes, scores, strict=True))
    return dict(record.top)


def _compare(
    rule: DecisionRule, reference: Classification, answer: Classification, sure: float
) -> DecisionCounts:
    flips, decided = not same(reference, answer), margin(reference) >= sure
    return DecisionCounts(1, int(flips), int(decided), int(flips and decided))


COMPARISON = RecordComparison(
    compare=_compare,
    margin=lambda rule, record: margin(record),
    gap=lambda rule, reference, answer: _score_gap(reference, answer),
    describe=lambda record: f"{record.label} {record.score:.2f}",
    details=lambda record: [f"{score:.3f}  {label}" for label, score in record.top[1:]],
    class_of=lambda record: (record.index, record.label),
)


_DEFAULT_K = 5


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the best classes of each sample.

    Raises:
        ProcessingError: EDGE-PROCESS-006 no single output to read, -007 the labels.
    """
    output, labels = result_output(model), model.labels
    ranking = next((step for step in model.processing.outputs if isinstance(step, TopK)), None)
    k = ranking.k if ranking else _DEFAULT_K
    size = model.signature.output(output).shape[-1:]
    if size and isinstance(size[0], int):
        _check_classes(labels, size[0], output)

    def read(values: Arrays, feed: Arrays, origins: Sequence[SampleOrigin]) -> list[Classification]:
        scores = values[output]
        if scores.ndim != 2 or scores.shape[1] == 0 or scores.dtype.kind != "f":
            wanted = f"scores {output!r} as floats [batch, classes]"
            raise wrong_outputs(wanted, f"{scores.dtype} {list(scores.shape)}")
        _check_classes(labels, scores.shape[1], output)
        return [classify(row, k, labels) for row in np.asarray(scores, np.float32)]

    return read


def _check_classes(labels: Sequence[str], classes: int, output: str) -> None:
    check_labels(labels, len(labels) == classes, f"{classes}, one a class of output {output!r}")


def classify(scores: np.ndarray, k: int, labels: Sequence[str]) -> Classification:
    """Read the decision from probabilities [n], float32.

    Args:
        scores: Probability of each class.
        k: Length of ``top``; at least two entries are kept where there are two classes, so that the
            decision has a margin.
        labels: Name of each class; where empty, a class is called by its index.

    Raises:
        ProcessingError: EDGE-PROCESS-009 (NaN), EDGE-PROCESS-010 (scores beyond 0..1).
    """
    best = top_k(scores, max(k, 2))
    if not are_probabilities(scores):
        wanted = "probabilities, between 0 and 1"
        got = f"{scores.min():.6g} to {scores[best[0]]:.6g}"
        hint = "declare the output step softmax/1: the model gives logits"
        raise ProcessingError("EDGE-PROCESS-010", "scores", wanted=wanted, got=got, hint=hint)
    indexes = best.tolist()
    names = [labels[index] if labels else str(index) for index in indexes]
    top = tuple(zip(names, scores[best].tolist(), strict=True))
    label, score = top[0]
    return Classification(
        label=label, score=score, top=top, index=indexes[0], indexes=tuple(indexes)
    )
