"""The half of processing behind the model: batched outputs to one record a sample.

Which step reads which task's record, what reads it, and the checks of task, labels and output
steps against the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import SampleOrigin, origins_of
from edgeserve.processing.outputs.dense import depth, segmentation, voice
from edgeserve.processing.outputs.detection import Detector
from edgeserve.processing.outputs.steps import apply_output, classify, embedding, wrong_outputs
from edgeserve.processing.outputs.tokens import label_detokenizer, positions, spans, text
from edgeserve.processing.text.tokenizer import Assets, detokenizer
from edgeserve.tasks.depth import Depths
from edgeserve.tasks.detection import Detect
from edgeserve.tasks.segmentation import Segment
from edgeserve.tasks.text_generation import Picks
from edgeserve.tasks.token_classification import Spans
from edgeserve.tasks.voice_activity import Frames
from edgeserve.types.processing import CenterCrop, Pool, Processing, Resize, TopK
from edgeserve.types.records import Record, Tensors
from edgeserve.types.steps import OutputStep, Slice, TaskOutput
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

__all__ = [
    "CLASSIFICATIONS",
    "TASK_OUTPUTS",
    "OutputReader",
    "RecordReader",
    "record_reader",
    "task_output_of",
]


#: The step that reads each task's record, for tasks that need one.
TASK_OUTPUTS: dict[Task, type] = {
    "object-detection": Detect,
    "image-segmentation": Segment,
    "depth-estimation": Depths,
    "token-classification": Spans,
    "automatic-speech-recognition": Picks,
    "voice-activity": Frames,
    "text-generation": Picks,
}
_Arrays = Mapping[str, np.ndarray]
#: ``(outputs, feed, origins)`` to one record a sample.
RecordReader = Callable[[_Arrays, _Arrays, Sequence[SampleOrigin]], Sequence[Record]]


def task_output_of(steps: Sequence[OutputStep], task: Task) -> TaskOutput | None:
    """The step that reads the record; None for tasks that need none.

    Raises:
        ProcessingError: EDGE-PROCESS-030, the task needs one that is not there, or another stands
            in its place, or it does not stand last.
    """
    wanted = TASK_OUTPUTS.get(task)
    found = [step for step in steps if isinstance(step, TaskOutput)]
    if wanted is None and not found:
        return None
    if len(found) == 1 and steps[-1] is found[0] and wanted and isinstance(found[0], wanted):
        return found[0]
    names = ", ".join(_tag(type(step)) for step in steps) or "no output step"
    needed = f"{_tag(wanted)}, once and last" if wanted else "no step that reads another task"
    raise ProcessingError(
        "EDGE-PROCESS-030",
        f"output steps of the task {task!r}",
        wanted=needed,
        got=names,
        hint="say which outputs hold what (docs/processing.md), or declare the task 'tensors'",
    )


def _tag(step: type) -> str:
    return str(step.__struct_config__.tag)  # type: ignore[attr-defined]


def record_reader(
    processing: Processing,
    signature: Signature,
    task: Task,
    labels: tuple[str, ...],
    assets: Assets | None,
) -> RecordReader | None:
    """What reads the records of a task; None where no step does.

    Raises:
        ProcessingError: EDGE-PROCESS-030 (step), -006 (outputs), -002 (the input that boxes are
            places in), -025 (a mask), -020 to -022 (a tokenizer).
    """
    step = task_output_of(processing.outputs, task)
    if isinstance(step, Detect):
        return _detector(step, processing, signature, labels)
    if isinstance(step, Segment):
        return _each(step.output, lambda value: segmentation(step, value, labels))
    if isinstance(step, Depths):
        return _each(step.output, lambda value: depth(step, value))
    if isinstance(step, Frames):
        return _each(step.output, lambda value: voice(step, value))
    if isinstance(step, Spans | Picks):
        _check_mask(step, signature)
        return _tokens(step, processing, labels, assets)
    return None


def _each(output: str, read: Callable[[np.ndarray], Record]) -> RecordReader:
    """A record of each sample's output alone."""
    return lambda values, feed, origins: [read(value) for value in values[output]]


def _detector(
    step: Detect, processing: Processing, signature: Signature, labels: tuple[str, ...]
) -> RecordReader:
    for what, each in step.slices.items():
        _check_slice(each, what, signature)
    made = [each for each in processing.inputs if step.input in ("", each.name)]
    if step.input and not made:
        raise ProcessingError(
            "EDGE-PROCESS-002",
            "input of detect/1",
            wanted="an input made from the picture",
            got=step.input,
            hint="name the input whose places the boxes are in, or none",
        )
    first = made[0].steps if made else ()
    read = Detector(step, [s for s in first if isinstance(s, Resize | CenterCrop)], labels)
    return lambda values, feed, origins: read(values, origins)


def _check_slice(where: Slice, what: str, signature: Signature) -> None:
    """A slice lies within its output, as far as the signature tells."""
    shape = signature.output(where.output).shape[1:]
    if len(shape) == 1 and what != "boxes":
        return
    axis = where.axis + len(shape) if where.axis < 0 else where.axis
    size = shape[axis] if 0 <= axis < len(shape) else 0
    if isinstance(size, str):
        return
    stop = size if where.stop is None else where.stop
    if not where.start < stop <= size or (what == "boxes" and stop - where.start != 4):
        raise ProcessingError(
            "EDGE-PROCESS-006",
            f"{what} of detect/1",
            wanted=f"{'four' if what == 'boxes' else 'some'} of output {where.output!r}, which is"
            f" {list(shape)} a sample",
            got=f"{where.start}:{stop} along axis {where.axis}",
            hint="count axes without the batch; `edgeserve inspect` shows the outputs",
        )


def _check_mask(step: Spans | Picks, signature: Signature) -> None:
    known = {spec.name: len(spec.shape) for spec in signature.inputs}
    if step.mask is not None and known.get(step.mask) != 2:
        raise ProcessingError(
            "EDGE-PROCESS-025",
            f"mask {step.mask!r} of {_tag(type(step))}",
            wanted="an input [batch, positions] that holds the mask",
            got=f"inputs {sorted(known)}",
            hint="name the model's input that is 1 for tokens and 0 for padding",
        )


def _tokens(
    step: Spans | Picks, processing: Processing, labels: tuple[str, ...], assets: Assets | None
) -> RecordReader:
    left = any(each.padding == "left" for each in processing.padding.values())
    own = step.tokenizer if isinstance(step, Picks) else None
    spell = (
        detokenizer(own, assets) if own else label_detokenizer(labels, getattr(step, "space", ""))
    )

    def one(value: np.ndarray, mask: np.ndarray | None, origin: SampleOrigin) -> Record:
        if value.ndim != 2:
            wanted = f"output {step.output!r} as floats [positions, scores] a sample"
            raise wrong_outputs(wanted, str(list(value.shape)))
        where = positions(len(value), mask, origin, left)
        if isinstance(step, Spans):
            return spans(step, value, labels, where)
        return text(step, value, where[0], spell)

    def read(values: _Arrays, feed: _Arrays, origins: Sequence[SampleOrigin]) -> list[Record]:
        rows = values[step.output]
        masks = _masks(step, feed, len(rows))
        known = origins or [SampleOrigin()] * len(rows)
        return [one(*each) for each in zip(rows, masks, known, strict=True)]

    return read


def _masks(step: Spans | Picks, feed: _Arrays, samples: int) -> Sequence[np.ndarray | None]:
    """The mask of each sample; None where none is asked for."""
    if step.mask is None:
        return [None] * samples
    if step.mask not in feed or len(feed[step.mask]) != samples:
        raise ProcessingError(
            "EDGE-PROCESS-026",
            f"step {_tag(type(step))!r} of output {step.output!r}",
            wanted=f"the feed, for its mask {step.mask!r}",
            got=f"a feed of {sorted(feed)}",
            hint="give finish() the batch that the model was run with: finish(outputs, feed)",
        )
    return list(feed[step.mask])


#: Tasks whose decision is one class out of several.
CLASSIFICATIONS: tuple[Task, ...] = (
    "image-classification",
    "text-classification",
    "audio-classification",
)
_HANDLED: tuple[Task, ...] = (
    "tensors",
    *CLASSIFICATIONS,
    "object-detection",
    "image-segmentation",
    "depth-estimation",
    "feature-extraction",
    "token-classification",
    "automatic-speech-recognition",
    "voice-activity",
    "text-generation",
)
_DEFAULT_K = 5

Results = list[Record | Tensors]


class OutputReader:
    """Output steps and task, checked against the signature. Immutable, so threads may share it."""

    __slots__ = ("_k", "_labels", "_names", "_read", "_reader", "_result", "_steps")

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
        ranking = next((step for step in self._steps if isinstance(step, TopK)), None)
        self._k = ranking.k if ranking else _DEFAULT_K
        self._labels = tuple(labels)
        self._result: str | None = None
        self._read: Callable[[np.ndarray], Results] | None = None
        self._reader: RecordReader | None = record_reader(
            processing, signature, task, self._labels, assets
        )
        if task in CLASSIFICATIONS:
            self._result, self._read = _result_output(self._steps, self._names), self._classified
            size = signature.output(self._result).shape[-1:]
            if size and isinstance(size[0], int):
                self._check_labels(size[0])
        elif task == "feature-extraction":
            self._result, self._read = _result_output(self._steps, self._names), _embedded
            _check_vectors(self._steps, signature, self._result)

    def __call__(
        self, outputs: Mapping[str, np.ndarray], feed: Mapping[str, np.ndarray] | None = None
    ) -> Results:
        """See `Processor.finish`."""
        values = {name: outputs[name] for name in self._names if name in outputs}
        if len(values) != len(self._names):
            raise wrong_outputs(f"outputs {list(self._names)}", f"{sorted(outputs)}")
        samples = _batch_size(values)
        for step in self._steps:
            if not isinstance(step, TaskOutput):
                values[step.output] = apply_output(step, values[step.output], feed)
        if self._reader is not None:
            return list(self._reader(values, feed or {}, _origins(feed, samples)))
        if self._result is None or self._read is None:
            return [
                Tensors({name: value[row] for name, value in values.items()})
                for row in range(samples)
            ]
        return self._read(values[self._result])

    def _classified(self, scores: np.ndarray) -> Results:
        if scores.ndim != 2 or scores.shape[1] == 0 or scores.dtype.kind != "f":
            raise wrong_outputs(
                f"scores {self._result!r} as floats [batch, classes]",
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
                wanted=f"{classes}, one a class of output {self._result!r}",
                got=str(len(self._labels)),
                hint="give the label list that the model was trained with, or none at all",
            )


def _origins(feed: Mapping[str, np.ndarray] | None, samples: int) -> tuple[SampleOrigin, ...]:
    """What each sample was made from; none where callers brought tensors."""
    origins = origins_of([feed]) if feed is not None else ()
    if origins and len(origins) != samples:
        raise wrong_outputs(f"outputs for {len(origins)} samples, as were fed", str(samples))
    return origins


def _embedded(vectors: np.ndarray) -> Results:
    if vectors.ndim != 2 or vectors.shape[1] == 0 or vectors.dtype.kind != "f":
        got = f"{vectors.dtype} {list(vectors.shape)}"
        raise wrong_outputs("one vector a sample, floats [batch, d]", got)
    return [embedding(row) for row in np.asarray(vectors, np.float32)]


def _check_steps(steps: Sequence[OutputStep], names: Sequence[str], task: Task) -> None:
    if task not in _HANDLED:
        raise ProcessingError(
            "EDGE-PROCESS-005",
            f"task {task!r}",
            wanted=f"one of {list(_HANDLED)}",
            got="a task that is not handled in this version",
            hint="declare the task 'tensors': outputs are then compared and returned as they are",
        )
    for output in (output for step in steps for output in step.outputs):
        if output not in names:
            raise _unusable_outputs(f"{output!r} in an output step", f"one of {list(names)}")
    task_output_of(steps, task)
    ranked = [step for step in steps if isinstance(step, TopK)]
    if ranked and task not in CLASSIFICATIONS:
        raise _unusable_outputs("top_k", f"no ranking for the task {task!r}")
    if len(ranked) > 1 or (ranked and steps[-1] is not ranked[0]):
        raise _unusable_outputs("top_k before other steps", "one top_k, as the last output step")


def _check_masks(processing: Processing, signature: Signature) -> None:
    """What a pooling step takes for a mask is one, and the output has tokens to pool."""
    ranks = {spec.name: len(spec.shape) for spec in signature.inputs}
    pools = [step for step in processing.outputs if isinstance(step, Pool)]
    if len({step.output for step in pools}) != len(pools):
        raise _unusable_outputs("pool/1 twice", "one pool/1 an output")
    for step in pools:
        made = processing.padding.get(step.mask)
        if ranks.get(step.mask) != 2 or (made and made.part != "attention_mask"):
            raise ProcessingError(
                "EDGE-PROCESS-025",
                f"mask {step.mask!r} of pool/1",
                wanted="an input [batch, tokens] that holds the attention mask",
                got=f"an input of {made.part}" if made else f"inputs {sorted(ranks)}",
                hint="name the model's input that is 1 for tokens and 0 for padding",
            )
        _check_form(step.output, signature, 3, "[batch, tokens, d], for pool/1")


def _check_vectors(steps: Sequence[OutputStep], signature: Signature, output: str) -> None:
    """The output of an embedding is one vector a sample once its steps are done."""
    pooled = any(isinstance(step, Pool) and step.output == output for step in steps)
    wanted = "[batch, tokens, d], which pool/1 pools" if pooled else "[batch, d]"
    hint = "" if pooled else "; a pool/1 step makes one vector out of those of the tokens"
    _check_form(output, signature, 3 if pooled else 2, f"{wanted} for an embedding{hint}")


def _check_form(output: str, signature: Signature, rank: int, wanted: str) -> None:
    spec = signature.output(output)
    if len(spec.shape) != rank or not spec.dtype.startswith("float"):
        got = f"{spec.dtype} {list(spec.shape)} of output {output!r}"
        raise _unusable_outputs(got, f"floats {wanted}")


def _result_output(steps: Sequence[OutputStep], names: Sequence[str]) -> str:
    """The output that holds the result: the ranked one, else the only one named or there."""
    ranked = [step.output for step in steps if isinstance(step, TopK)]
    named = ranked or sorted({step.output for step in steps}) or list(names)
    if len(named) != 1:
        raise _unusable_outputs(f"{len(named)} outputs", "a step that names the only one to read")
    return named[0]


def _batch_size(values: Mapping[str, np.ndarray]) -> int:
    sizes = {value.shape[0] if value.ndim else None for value in values.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        shapes = {name: list(value.shape) for name, value in values.items()}
        raise wrong_outputs("outputs that share a batch axis", str(shapes))
    return int(size)


def _unusable_outputs(got: str, wanted: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-006",
        "output steps",
        wanted=wanted,
        got=got,
        hint="name the model's outputs as the signature does (`edgeserve inspect` shows it)",
    )
