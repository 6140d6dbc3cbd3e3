"""The half of processing behind the model: batched outputs to one record a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.scores import classify, softmax
from edgeserve.types.processing import OutputStep, Softmax, TopK
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.types.words import Task

__all__ = ["CLASSIFICATIONS", "Finish"]

#: Tasks whose decision is one class out of several.
CLASSIFICATIONS: tuple[Task, ...] = (
    "image-classification", "text-classification", "audio-classification",
)  # fmt: skip
_DEFAULT_K = 5


class Finish:
    """Output steps and task, checked against the signature. Immutable, so threads may share it."""

    __slots__ = ("_k", "_labels", "_names", "_scores", "_softmaxes")

    def __init__(
        self,
        steps: Sequence[OutputStep],
        signature: Signature,
        task: Task,
        labels: Sequence[str],
    ) -> None:
        """Check.

        Raises:
            ProcessingError: EDGE-PROCESS-005 (task), EDGE-PROCESS-006 (outputs) or EDGE-PROCESS-007
                (labels).
        """
        self._names = tuple(spec.name for spec in signature.outputs)
        _check_steps(steps, self._names, task)
        self._softmaxes = tuple(step for step in steps if isinstance(step, Softmax))
        ranking = next((step for step in steps if isinstance(step, TopK)), None)
        self._k = ranking.k if ranking else _DEFAULT_K
        self._labels = tuple(labels)
        self._scores: str | None = None
        if task in CLASSIFICATIONS:
            self._scores = _scores_output(steps, self._names)
            size = signature.output(self._scores).shape[-1:]
            if size and isinstance(size[0], int):
                self._check_labels(size[0])

    def __call__(self, outputs: Mapping[str, np.ndarray]) -> list[Record | Tensors]:
        """See `Processor.finish`."""
        values = {name: outputs[name] for name in self._names if name in outputs}
        if len(values) != len(self._names):
            raise _wrong_outputs(f"outputs {list(self._names)}", f"{sorted(outputs)}")
        samples = _batch_size(values)
        for step in self._softmaxes:
            axis = step.axis + 1 if step.axis >= 0 else step.axis
            if not -values[step.output].ndim < axis < values[step.output].ndim:
                shape = list(values[step.output].shape)
                raise _wrong_outputs(f"output {step.output!r} with axis {step.axis}", str(shape))
            values[step.output] = softmax(values[step.output], axis)
        if self._scores is None:
            return [
                Tensors({name: value[row] for name, value in values.items()})
                for row in range(samples)
            ]
        return self._classified(values[self._scores])

    def _classified(self, scores: np.ndarray) -> list[Record | Tensors]:
        if scores.ndim != 2 or scores.shape[1] == 0 or scores.dtype.kind != "f":
            raise _wrong_outputs(
                f"scores {self._scores!r} as floats [batch, classes]",
                f"{scores.dtype} {list(scores.shape)}",
            )
        self._check_labels(scores.shape[1])
        rows = np.asarray(scores, np.float32)
        return [classify(row, self._k, self._labels) for row in rows]

    def _check_labels(self, classes: int) -> None:
        if self._labels and len(self._labels) != classes:
            raise ProcessingError(
                "EDGE-PROCESS-007",
                "labels",
                wanted=f"{classes}, one a class of output {self._scores!r}",
                got=str(len(self._labels)),
                hint="give the label list that the model was trained with, or none at all",
            )


def _check_steps(steps: Sequence[OutputStep], names: Sequence[str], task: Task) -> None:
    if task != "tensors" and task not in CLASSIFICATIONS:
        raise ProcessingError(
            "EDGE-PROCESS-005",
            f"task {task!r}",
            wanted=f"one of {['tensors', *CLASSIFICATIONS]}",
            got="a task that is not handled in this version",
            hint="declare the task 'tensors': outputs are then compared and returned as they are",
        )
    for step in steps:
        if step.output not in names:
            raise _unusable_outputs(f"{step.output!r} in an output step", f"one of {list(names)}")
    ranked = [step for step in steps if isinstance(step, TopK)]
    if ranked and task == "tensors":
        raise _unusable_outputs("top_k", "no ranking for the task 'tensors'")
    if len(ranked) > 1 or (ranked and steps[-1] is not ranked[0]):
        raise _unusable_outputs("top_k before other steps", "one top_k, as the last output step")


def _scores_output(steps: Sequence[OutputStep], names: Sequence[str]) -> str:
    """The output that holds the classes' scores: the ranked one, else the only one there is."""
    ranked = [step.output for step in steps if isinstance(step, TopK)]
    named = ranked or sorted({step.output for step in steps}) or list(names)
    if len(named) != 1:
        raise _unusable_outputs(f"{len(named)} outputs", "a top_k step that names the scores")
    return named[0]


def _batch_size(values: Mapping[str, np.ndarray]) -> int:
    sizes = {value.shape[0] if value.ndim else None for value in values.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        shapes = {name: list(value.shape) for name, value in values.items()}
        raise _wrong_outputs("outputs that share a batch axis", str(shapes))
    return int(size)


def _unusable_outputs(got: str, wanted: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-006",
        "output steps",
        wanted=wanted,
        got=got,
        hint="name the model's outputs as the signature does (`edgeserve inspect` shows it)",
    )


def _wrong_outputs(wanted: str, got: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-008",
        "model outputs",
        wanted=wanted,
        got=got,
        hint="declare the task and signature that fit what the model gives",
    )
