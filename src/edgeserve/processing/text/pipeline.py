"""From one text to the inputs of a model: what `Processor` does where the medium is "text"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import Pad, Prepared, SampleOrigin
from edgeserve.processing.inputs import StepTimer, check_names, check_task, wrong_order
from edgeserve.processing.steps.tokenize import Assets, Encoder, Tokenize, TokenizePart, as_text
from edgeserve.tasks import decides, schema
from edgeserve.types.processing import InputProcessing
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task

_DTYPES = ("int32", "int64")


class _TokenRow(NamedTuple):
    """One input: where its numbers come from, and their dtype."""

    name: str
    part: TokenizePart
    dtype: np.dtype[np.signedinteger]
    encoder: int


class TextPipeline:
    """Inputs made from a text, compiled. Immutable, so threads may share it.

    Attributes:
        pads: For each input, how `edgeserve.processing.arrays.stack_samples` pads it.
    """

    __slots__ = ("_encoders", "_places", "_rows", "pads")

    def __init__(
        self,
        inputs: Sequence[InputProcessing],
        signature: Signature,
        task: Task,
        assets: Assets | None,
    ) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 003, 005 or 020 to 024.
        """
        steps = {each.name: _only_step(each) for each in inputs}
        check_task(task, "text")
        check_names(steps, signature, "text")
        for name, step in steps.items():
            _check_tensor(signature.input(name), step, signature)
        _check_together(steps, signature)
        kinds = list(dict.fromkeys(map(_alike, steps.values())))
        first = {_alike(step): step for step in reversed(steps.values())}
        self._encoders = tuple(Encoder(first[kind], assets) for kind in kinds)
        self._places = decides(task) and schema(task).reads_places
        self._rows = tuple(
            _TokenRow(
                name, step.part, np.dtype(signature.input(name).dtype), kinds.index(_alike(step))
            )
            for name, step in steps.items()
        )
        self.pads = {
            name: Pad(step.pad_id, step.padding == "left", _length(name, signature)[0])
            for name, step in steps.items()
        }

    def __call__(self, raw: object, clock: StepTimer) -> dict[str, np.ndarray]:
        """One sample of one text; see `Processor.prepare`."""
        text = as_text(raw)
        encodings = [encode(text) for encode in self._encoders]
        # A part is called in the library as it is here.
        sample: dict[str, np.ndarray] = {
            row.name: np.array(getattr(encodings[row.encoder], row.part), row.dtype)
            for row in self._rows
        }
        if self._places:
            offsets = self._encoders[0].offsets(text, encodings[0])
            sample = Prepared(sample, (SampleOrigin(offsets=offsets),))
        clock("tokenize")
        return sample


def _alike(step: Tokenize) -> tuple[str, int, str]:
    """Steps with equal values share one run of the tokenizer."""
    return step.tokenizer.sha256, step.max_length, step.truncation


def _only_step(processing: InputProcessing) -> Tokenize:
    if len(processing.steps) == 1 and isinstance(step := processing.steps[0], Tokenize):
        return step
    hint = "leave out the other steps: tokenize/1 makes the row of numbers that the model takes"
    raise wrong_order(processing, "tokenize and nothing else", hint)


def _check_tensor(spec: TensorSpec, step: Tokenize, signature: Signature) -> None:
    """Rows of integers, and room for the longest of them."""
    if spec.dtype not in _DTYPES or len(spec.shape) != 2:
        where = f"steps of input {spec.name!r}"
        wanted = f"{spec.dtype} {list(spec.shape)}"
        got = "int32 or int64 [batch, tokens]"
        hint = "export the model with token ids as its input, one row of integers a text"
        raise ProcessingError("EDGE-PROCESS-003", where, wanted=wanted, got=got, hint=hint)
    longest = _length(spec.name, signature)[1]
    if step.max_length > longest:
        where = f"steps of input {spec.name!r}"
        wanted = f"max_length up to {longest}, the longest row that the signature allows"
        got = str(step.max_length)
        hint = "lower max_length, or export the model with a wider range of lengths"
        raise ProcessingError("EDGE-PROCESS-023", where, wanted=wanted, got=got, hint=hint)


def _length(name: str, signature: Signature) -> tuple[int, int]:
    """Shortest and longest row that an input takes."""
    size = signature.input(name).shape[1]
    return (size, size) if isinstance(size, int) else signature.dims[size]


def _check_together(steps: dict[str, Tokenize], signature: Signature) -> None:
    """Inputs that share a dynamic length have to get rows of one length, padded on one side."""
    by_size: dict[int | str, tuple[str, Tokenize]] = {}
    for name, step in steps.items():
        size = signature.input(name).shape[1]
        other, first = by_size.setdefault(size, (name, step))
        if (_alike(step), step.padding) != (_alike(first), first.padding):
            where = f"steps of input {name!r}"
            wanted = f"the tokenizer, max_length and sides of {other!r}, whose length it shares"
            hint = "tokenize inputs that belong together alike; only part and pad_id differ"
            raise ProcessingError("EDGE-PROCESS-023", where, wanted=wanted, got="others", hint=hint)
