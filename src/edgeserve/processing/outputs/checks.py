"""What all readers of model outputs share: the model, numbers that are none, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import SampleOrigin
from edgeserve.processing.text.tokenizer import Assets
from edgeserve.types.processing import Processing, TopK
from edgeserve.types.records import Record
from edgeserve.types.steps import TaskOutput
from edgeserve.types.tensors import Signature

__all__ = [
    "ModelOutputs",
    "OutputArrays",
    "RecordReader",
    "are_probabilities",
    "check_labels",
    "check_numbers",
    "check_probabilities",
    "each_sample",
    "flat_map",
    "labels_error",
    "result_output",
    "sigmoid",
    "softmax",
    "unusable_outputs",
    "wrong_outputs",
]


OutputArrays = Mapping[str, np.ndarray]
#: ``(outputs, feed, origins)`` to one record a sample; no origins where callers brought tensors.
RecordReader = Callable[[OutputArrays, OutputArrays, Sequence[SampleOrigin]], Sequence[Record]]


class ModelOutputs(NamedTuple):
    """What a task's reader is made for.

    Attributes:
        processing: The model's; its last output step reads the record where the task has steps.
        signature: The source's.
        labels: Class names by index; none: classes are called by their number.
        assets: Gives the bytes of files that the processing names.
    """

    processing: Processing
    signature: Signature
    labels: tuple[str, ...]
    assets: Assets | None

    @property
    def step(self) -> TaskOutput | None:
        """The step that reads the record."""
        return self.processing.task_output


def each_sample(output: str, read: Callable[[np.ndarray], Record]) -> RecordReader:
    """A record of each sample's output alone."""
    return lambda values, feed, origins: [read(value) for value in values[output]]


#: How far beyond 0..1 a probability may lie: quantized graphs end in steps of 1/256.
_SLACK = 0.01


def softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    """softmax/1: exponentials of ``scores - max`` over their sum, all in float32.

    NaN, and infinities of the kind that have no softmax, come out as NaN.
    """
    scores = np.asarray(scores, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        normal: np.ndarray = powers / powers.sum(axis=axis, keepdims=True, dtype=np.float32)
    return normal


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` in float64, rounded once to float32."""
    exact = np.asarray(scores, np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-exact)), np.float32)


def check_numbers(values: np.ndarray, what: str) -> np.ndarray:
    """The values, which are to be finite.

    Raises:
        ProcessingError: EDGE-PROCESS-009, they are not.
    """
    finite = np.isfinite(values)
    if finite.all():
        return values
    raise ProcessingError(
        "EDGE-PROCESS-009",
        what,
        wanted="numbers",
        got=f"NaN or infinity in {int(finite.size - finite.sum())} of {finite.size}",
        hint="check this input for NaN; if it has none, the artifact is broken: validate it",
    )


def are_probabilities(values: np.ndarray) -> bool:
    """Whether all numbers lie between 0 and 1, a hundredth beyond allowed for."""
    return not values.size or bool(values.min() >= -_SLACK and values.max() <= 1 + _SLACK)


def check_probabilities(scores: np.ndarray) -> np.ndarray:
    """The scores, which are to lie between 0 and 1, a hundredth beyond allowed for.

    Raises:
        ProcessingError: EDGE-PROCESS-010, they do not.
    """
    if are_probabilities(scores):
        return scores
    raise ProcessingError(
        "EDGE-PROCESS-010",
        "scores",
        wanted="probabilities, between 0 and 1",
        got=f"{float(scores.min()):.6g} to {float(scores.max()):.6g}",
        hint="declare how the step makes probabilities of scores: its activation",
    )


def check_labels(labels: Sequence[str], allowed: bool, wanted: str) -> None:
    """Refuse a label list that does not fit the outputs.

    Raises:
        ProcessingError: EDGE-PROCESS-007, there are labels, and they are not ``allowed``.
    """
    if labels and not allowed:
        raise labels_error(wanted, labels)


def labels_error(wanted: str, labels: Sequence[str]) -> ProcessingError:
    """The error for a label list that does not fit the outputs."""
    return ProcessingError(
        "EDGE-PROCESS-007",
        "labels",
        wanted=wanted,
        got=str(len(labels)),
        hint="give the label list that the model was trained with, or none at all",
    )


def flat_map(value: np.ndarray) -> np.ndarray:
    """One sample's map [height, width]; axes of size 1 before or after it are left out.

    Raises:
        ProcessingError: EDGE-PROCESS-008, it has further axes.
    """
    shape = value.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 2:
        raise wrong_outputs("one number a pixel, [height, width] a sample", str(list(value.shape)))
    return value.reshape(shape)


def result_output(model: ModelOutputs) -> str:
    """The output that holds the result: the ranked one, else the only one named or there.

    Raises:
        ProcessingError: EDGE-PROCESS-006, there are several.
    """
    steps = model.processing.outputs
    ranked = [step.output for step in steps if isinstance(step, TopK)]
    named = ranked or sorted({step.output for step in steps})
    named = named or [spec.name for spec in model.signature.outputs]
    if len(named) != 1:
        raise unusable_outputs(f"{len(named)} outputs", "a step that names the only one to read")
    return named[0]


def wrong_outputs(wanted: str, got: str) -> ProcessingError:
    """The error for a model that gives something else than its processing was declared for."""
    return ProcessingError(
        "EDGE-PROCESS-008",
        "model outputs",
        wanted=wanted,
        got=got,
        hint="declare the task and signature that fit what the model gives",
    )


def unusable_outputs(got: str, wanted: str) -> ProcessingError:
    """The error for output steps that do not fit the signature."""
    return ProcessingError(
        "EDGE-PROCESS-006",
        "output steps",
        wanted=wanted,
        got=got,
        hint="name the model's outputs as the signature does (`edgeserve inspect` shows it)",
    )
