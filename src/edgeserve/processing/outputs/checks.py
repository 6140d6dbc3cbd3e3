"""What all readers of model outputs share: the model, and checks against its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import Arrays, SampleOrigin
from edgeserve.processing.outputs.numbers import wrong_outputs
from edgeserve.processing.steps.tokenize import Assets
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record
from edgeserve.types.steps import TaskOutput
from edgeserve.types.tensors import Signature

#: ``(outputs, feed, origins)`` to one record a sample; no origins where callers brought tensors.
RecordReader = Callable[[Arrays, Arrays, Sequence[SampleOrigin]], Sequence[Record]]


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


def check_labels(labels: Sequence[str], allowed: bool, wanted: str) -> None:
    """Refuse a label list that does not fit the outputs.

    Raises:
        ProcessingError: EDGE-PROCESS-007, there are labels, and they are not ``allowed``.
    """
    if labels and not allowed:
        raise labels_error(wanted, labels)


def labels_error(wanted: str, labels: Sequence[str]) -> ProcessingError:
    """The error for a label list that does not fit the outputs."""
    got = str(len(labels))
    hint = "give the label list that the model was trained with, or none at all"
    return ProcessingError("EDGE-PROCESS-007", "labels", wanted=wanted, got=got, hint=hint)


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


def unusable_outputs(got: str, wanted: str) -> ProcessingError:
    """The error for output steps that do not fit the signature."""
    hint = "name the model's outputs as the signature does (`edgeserve inspect` shows it)"
    return ProcessingError("EDGE-PROCESS-006", "output steps", wanted=wanted, got=got, hint=hint)


def check_form(output: str, signature: Signature, rank: int, wanted: str) -> None:
    """Refuse an output of another rank, or of whole numbers.

    Raises:
        ProcessingError: EDGE-PROCESS-006.
    """
    spec = signature.output(output)
    if len(spec.shape) != rank or not spec.dtype.startswith("float"):
        got = f"{spec.dtype} {list(spec.shape)} of output {output!r}"
        raise unusable_outputs(got, f"floats {wanted}")
