"""`Processor`: all processing around one model, checked once, then only carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.processing.arrays import Arrays, Pad, Prepared, origins_of, stack_samples
from edgeserve.processing.audio.pipeline import AudioPipeline
from edgeserve.processing.image.pipeline import ImagePipeline
from edgeserve.processing.inputs import FeedValidator, OnStep, StepTimer
from edgeserve.processing.outputs.reader import OutputReader
from edgeserve.processing.steps.decode import Raw
from edgeserve.processing.steps.tokenize import Assets
from edgeserve.processing.text.pipeline import TextPipeline
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

if TYPE_CHECKING:
    from edgeserve.types.source import Exported

__all__ = ["Medium", "OnStep", "Processor", "load_processor", "medium_of"]

Medium = Literal["image", "audio", "text", "tensors"]


def medium_of(inputs: Sequence[InputProcessing]) -> Medium:
    """The medium; "tensors" where nothing is made.

    Raises:
        ProcessingError: EDGE-PROCESS-024, some inputs are made from one and others from another.
    """
    found: dict[str, Medium] = {}
    for each in inputs:
        media = {step.medium for step in each.steps}
        found[each.name] = "text" if "text" in media else "audio" if "audio" in media else "image"
    if len(set(found.values())) > 1:
        wanted = "all inputs made from one medium"
        got = ", ".join(f"{medium} for {name!r}" for name, medium in found.items())
        hint = "make each input of it, or leave the processing's inputs empty: bring tensors"
        raise ProcessingError("EDGE-PROCESS-024", "processing", wanted=wanted, got=got, hint=hint)
    return next(iter(found.values()), "tensors")


class Processor:
    """What happens between raw bytes and tensors, and between tensors and a decision.

    Immutable and without hidden state: any number of threads may use one processor.

    Attributes:
        medium: What `prepare` takes; "tensors" where callers bring named tensors themselves.
        padding: For each input that may be padded, the step that says how: what an adapter needs
            that feeds a file of fixed lengths.
    """

    __slots__ = ("_feed", "_finish", "_make", "_pads", "medium", "padding")

    medium: Medium

    def __init__(
        self,
        processing: Processing,
        signature: Signature,
        task: Task,
        labels: Sequence[str] = (),
        assets: Assets | None = None,
    ) -> None:
        """Check the steps against each other and the signature, and compile them.

        Args:
            processing: Steps before and after the model.
            signature: The source's inputs and outputs. Axis 0 of each is the batch.
            task: Meaning of the outputs.
            labels: Class names by index; classes are called by their index where there are none.
            assets: Gives the bytes of a file that the processing names (``assets/tokenizer.json``);
                needed where it names one. What it raises comes through, but for an OSError or
                LookupError.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 007, 012, 020 to 025 or 030: steps, parameters,
                assets, task or labels do not fit each other or the signature, or `tokenizers` is
                missing.
        """
        self.padding = processing.padding
        self._feed = FeedValidator(signature)
        self._finish = OutputReader(processing, signature, task, labels, assets)
        self._make: ImagePipeline | TextPipeline | AudioPipeline | None = None
        self._pads: Mapping[str, Pad] = {}
        self.medium = medium_of(processing.inputs)
        if self.medium == "text":
            self._make = texts = TextPipeline(processing.inputs, signature, task, assets)
            self._pads = texts.pads
        elif self.medium == "audio":
            self._make = AudioPipeline(processing.inputs, signature, task)
        elif self.medium == "image":
            self._make = ImagePipeline(processing.inputs, signature, task)

    def prepare(self, raw: Raw, on_step: OnStep | None = None) -> dict[str, np.ndarray]:
        """Make the model's inputs of one raw input.

        Args:
            raw: A picture as encoded bytes, a path, a binary file, a Pillow picture, or uint8 RGB
                pixels [height, width, 3]; a text as a str, or bytes in UTF-8; a sound as a WAV in
                bytes, at a path or in a binary file, or as `Sound`. It is never changed.
            on_step: Called after each step with its name ("decode", "resize", "normalize+layout";
                "tokenize"; "waveform", "log_mel") and the seconds it took.

        Returns:
            One sample: fresh arrays by input name, without a batch axis (`batch` adds it). Those of
            a text are rows as long as it has tokens. The dict also knows the picture's size, or
            where tokens lie in the text (`edgeserve.processing.arrays.Prepared`).

        Raises:
            InputError: EDGE-INPUT-001 to 008 or 017, ``raw`` is no picture that this model takes;
                -020 or -021, it is no text; -001, -007 or -030 to -037, no sound.
            ProcessingError: EDGE-PROCESS-011 Pillow is missing, -027 the tokenizer failed.
        """
        if self._make is None:
            wanted = f"a dict of the named tensors {self._feed.names}"
            got = f"{type(raw).__module__}.{type(raw).__qualname__}"
            hint = "this model was packaged without processing: prepare its tensors yourself"
            raise InputError("EDGE-INPUT-007", "raw input", wanted=wanted, got=got, hint=hint)
        return self._make(raw, StepTimer(on_step))

    def batch(self, samples: Sequence[Arrays]) -> dict[str, np.ndarray]:
        """Stack samples along a new axis 0; a single one is not copied.

        Rows of a text are first padded to the longest, and at least to the shortest length that the
        signature allows, with the step's ``pad_id`` on the step's side.

        Raises:
            InputError: EDGE-INPUT-016, there are no samples, or their names or shapes differ.
        """
        return Prepared(stack_samples(samples, self._pads), origins_of(samples))

    def finish(self, outputs: Arrays, feed: Arrays | None = None) -> list[Record | Tensors]:
        """Turn a batch of outputs into one result a sample.

        Args:
            outputs: The model's outputs by name, axis 0 the samples. Outputs that the signature
                does not know are left out.
            feed: What the model was fed, batched: pooling needs its attention mask, boxes and
                spans what `batch` knows of the raw inputs. Without that, boxes stay in the model's
                own unit, and spans count tokens.

        Returns:
            A record of the task a sample; `Tensors` (views) where the task is "tensors".

        Raises:
            ProcessingError: EDGE-PROCESS-007 to 010: outputs of another shape than declared, NaN,
                or scores that are no probabilities; -026, there is a pooling step and no ``feed``.
        """
        return self._finish(outputs, feed)

    def check_feed(self, feed: Arrays) -> dict[str, np.ndarray]:
        """Check named tensors that a caller brings, batch axis included.

        Integers convert to the declared integer dtype where every value fits, floats to a declared
        float32 or float64, or to a wider float; nothing else converts. An array that fits is not
        copied.

        Returns:
            The tensors in the signature's order, in its dtypes, C-contiguous.

        Raises:
            InputError: EDGE-INPUT-010 to 015, naming the input, what was wanted and what was got.
        """
        return self._feed(feed)


def load_processor(exported: Exported, folder: Path) -> Processor:
    """The processing of an exported model; its assets are read from ``folder``.

    Args:
        exported: The model.
        folder: The folder that its files lie in.

    Raises:
        ProcessingError: the processing does not fit the model, or an asset is missing or changed.
    """
    return Processor(
        exported.processing,
        exported.signature,
        exported.task,
        exported.labels,
        assets=lambda name: (folder / name).read_bytes(),
    )
