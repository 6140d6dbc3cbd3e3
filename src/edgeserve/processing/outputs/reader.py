"""The half of processing behind the model: batched outputs to one record a sample.

What reads a record is the task's own (`edgeserve.tasks`); here its output steps are checked against
task and signature, and the steps before it are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve import tasks
from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import Arrays, origins_of
from edgeserve.processing.outputs.checks import ModelOutputs, check_form, unusable_outputs
from edgeserve.processing.outputs.numbers import wrong_outputs
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.tokenize import Assets
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record, Tensors
from edgeserve.types.steps import OutputStep, TaskOutput
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import TASKS, Task


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
        self._steps = processing.outputs
        _check_steps(self._steps, self._names, task)
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
            if not isinstance(step, TaskOutput):
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
            raise unusable_outputs(f"{output!r} in an output step", f"one of {list(names)}")
    _check_task_output(steps, task)
    ranked = [step for step in steps if isinstance(step, TopK)]
    if ranked and not (tasks.decides(task) and tasks.schema(task).decisions == "one"):
        raise unusable_outputs("top_k", f"no ranking for the task {task!r}")
    if len(ranked) > 1 or (ranked and steps[-1] is not ranked[0]):
        raise unusable_outputs("top_k before other steps", "one top_k, as the last output step")


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
        raise unusable_outputs("pool/1 twice", "one pool/1 an output")
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
