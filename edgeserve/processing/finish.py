"""The half of processing behind the model: batched outputs to one record a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.outsteps import apply_output, wrong_outputs
from edgeserve.processing.prepared import Origin, origins_of
from edgeserve.processing.readers import Reader, reader_of, reading_of
from edgeserve.processing.scores import classify
from edgeserve.processing.tokenizer import Assets
from edgeserve.processing.vectors import embedding
from edgeserve.types.processing import OutputStep, Pool, Processing, Reading, TopK, outputs_of
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.types.words import Task

__all__ = ["CLASSIFICATIONS", "Finish"]

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


class Finish:
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
        self._reader: Reader | None = reader_of(processing, signature, task, self._labels, assets)
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
            if not isinstance(step, Reading):
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


def _origins(feed: Mapping[str, np.ndarray] | None, samples: int) -> tuple[Origin, ...]:
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
    for output in (output for step in steps for output in outputs_of(step)):
        if output not in names:
            raise _unusable_outputs(f"{output!r} in an output step", f"one of {list(names)}")
    reading_of(steps, task)
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
