"""A classification out of probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import SampleOrigin
from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    OutputArrays,
    RecordReader,
    are_probabilities,
    check_labels,
    result_output,
    wrong_outputs,
)
from edgeserve.processing.outputs.steps import top_k
from edgeserve.tasks.classification import Classification
from edgeserve.types.processing import TopK

__all__ = ["classify", "reader"]


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

    def read(
        values: OutputArrays, feed: OutputArrays, origins: Sequence[SampleOrigin]
    ) -> list[Classification]:
        scores = values[output]
        if scores.ndim != 2 or scores.shape[1] == 0 or scores.dtype.kind != "f":
            raise wrong_outputs(
                f"scores {output!r} as floats [batch, classes]",
                f"{scores.dtype} {list(scores.shape)}",
            )
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
        raise ProcessingError(
            "EDGE-PROCESS-010",
            "scores",
            wanted="probabilities, between 0 and 1",
            got=f"{scores.min():.6g} to {scores[best[0]]:.6g}",
            hint="declare the output step softmax/1: the model gives logits",
        )
    indexes = best.tolist()
    names = [labels[index] if labels else str(index) for index in indexes]
    top = tuple(zip(names, scores[best].tolist(), strict=True))
    label, score = top[0]
    return Classification(
        label=label, score=score, top=top, index=indexes[0], indexes=tuple(indexes)
    )
