"""The half of processing behind the model: batched outputs to one record a sample.

What reads a record is the task's own (`edgeserve.tasks`); here its output steps are checked against
task and signature, and the steps before it are carried out. `ModelOutputs` and the checks against
its signature are what the readers of all tasks share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve import tasks
from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import Arrays, SampleOrigin, origins_of, wrong_outputs
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.tokenize import Assets
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record, Tensors
from edgeserve.types.steps import OutputStep, TaskOutput
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import TASKS, Task

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
        raise _unusable_outputs(f"{len(named)} outputs", "a step that names the only one to read")
    return named[0]


def _unusable_outputs(got: str, wanted: str) -> ProcessingError:
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
        raise _unusable_outputs(got, f"floats {wanted}")


class OutputReader:
    """Output steps and task, checked against the signature. Immutable, so threads may share it."""

    __slots__ = ("_names", "_read", "_steps")

    def __init__(
        self,
        processing: Processing,
        signature: Signature,
        task: Task,
        labels: Sequence[str],
        assets: Assets | None = None,
    ) -> None:
        """Check.

        Raises:
            ProcessingError: EDGE-PROCESS-005 (task), EDGE-PROCESS-006 (outputs), EDGE-PROCESS-007
                (labels), EDGE-PROCESS-025 (the mask of a pooling step), EDGE-PROCESS-030 (no step
                that reads the task's record) or -020 to -022 (a tokenizer that spells).
        """
        self._names = tuple(spec.name for spec in signature.outputs)
        _check_steps(processing.outputs, self._names, task)
        # The others read the record, and change no value.
        kept = [s for s in processing.outputs if not isinstance(s, TaskOutput | TopK)]
        self._steps = tuple(kept)
        _check_masks(processing, signature)
        model = ModelOutputs(processing, signature, tuple(labels), assets)
        self._read = tasks.part(task, "read").reader(model) if tasks.decides(task) else None

    def __call__(self, outputs: Arrays, feed: Arrays | None = None) -> list[Record | Tensors]:
        """See `Processor.finish`."""
        values = {name: outputs[name] for name in self._names if name in outputs}
        if len(values) != len(self._names):
            raise wrong_outputs(f"outputs {list(self._names)}", f"{sorted(outputs)}")
        samples = _batch_size(values)
        for step in self._steps:
            values[step.output] = step.apply(values[step.output], feed)
        if self._read is not None:
            origins = origins_of([feed]) if feed is not None else ()  # none of callers' tensors
            if origins and len(origins) != samples:
                wanted = f"outputs for {len(origins)} samples, as were fed"
                raise wrong_outputs(wanted, str(samples))
            return list(self._read(values, feed or {}, origins))
        return [
            Tensors({name: value[row] for name, value in values.items()}) for row in range(samples)
        ]


def _check_steps(steps: Sequence[OutputStep], names: Sequence[str], task: Task) -> None:
    if task not in TASKS:
        where = f"task {task!r}"
        wanted = f"one of {list(TASKS)}"
        got = "a task that is not handled in this version"
        hint = "declare the task 'tensors': outputs are then compared and returned as they are"
        raise ProcessingError("EDGE-PROCESS-005", where, wanted=wanted, got=got, hint=hint)
    for output in (output for step in steps for output in step.outputs):
        if output not in names:
            raise _unusable_outputs(f"{output!r} in an output step", f"one of {list(names)}")
    _check_task_output(steps, task)
    ranked = [step for step in steps if isinstance(step, TopK)]
    if ranked and not (tasks.decides(task) and tasks.schema(task).decisions == "one"):
        raise _unusable_outputs("top_k", f"no ranking for the task {task!r}")
    if len(ranked) > 1 or (ranked and steps[-1] is not ranked[0]):
        raise _unusable_outputs("top_k before other steps", "one top_k, as the last output step")


def _check_task_output(steps: Sequence[OutputStep], task: Task) -> None:
    """A step that reads the record is there once and last, where the task has any."""
    wanted = tasks.schema(task).steps if tasks.decides(task) else ()
    found = [step for step in steps if isinstance(step, TaskOutput)]
    if not wanted and not found:
        return
    if len(found) == 1 and steps[-1] is found[0] and isinstance(found[0], wanted):
        return
    tags = " or ".join(str(each.__struct_config__.tag) for each in wanted)
    raise ProcessingError(
        "EDGE-PROCESS-030",
        f"output steps of the task {task!r}",
        wanted=f"{tags}, once and last" if wanted else "no step that reads another task",
        got=", ".join(step.tag for step in steps) or "no output step",
        hint="say which outputs hold what (spec/processing.md), or declare the task 'tensors'",
    )


def _check_masks(processing: Processing, signature: Signature) -> None:
    """What a pooling step takes for a mask is one, and the output has tokens to pool."""
    ranks = {spec.name: len(spec.shape) for spec in signature.inputs}
    pools = [step for step in processing.outputs if isinstance(step, Pool)]
    if len({step.output for step in pools}) != len(pools):
        raise _unusable_outputs("pool/1 twice", "one pool/1 an output")
    for step in pools:
        made = processing.padding.get(step.mask)
        if ranks.get(step.mask) != 2 or (made and made.part != "attention_mask"):
            where = f"mask {step.mask!r} of pool/1"
            wanted = "an input [batch, tokens] that holds the attention mask"
            got = f"an input of {made.part}" if made else f"inputs {sorted(ranks)}"
            hint = "name the model's input that is 1 for tokens and 0 for padding"
            raise ProcessingError("EDGE-PROCESS-025", where, wanted=wanted, got=got, hint=hint)
        check_form(step.output, signature, 3, "[batch, tokens, d], for pool/1")


def _batch_size(values: Arrays) -> int:
    sizes = {value.shape[0] if value.ndim else None for value in values.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        shapes = {name: list(value.shape) for name, value in values.items()}
        raise wrong_outputs("outputs that share a batch axis", str(shapes))
    return int(size)
