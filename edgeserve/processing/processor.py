"""`Processor`: all processing around one model, checked once, then only carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing.decode import Raw, decode
from edgeserve.processing.feed import FeedCheck
from edgeserve.processing.finish import Finish
from edgeserve.processing.fit import check_fit, sample_signature
from edgeserve.processing.pixels import apply
from edgeserve.processing.plan import Plan
from edgeserve.types.processing import Decode, Processing
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.types.words import Task

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["Medium", "OnStep", "Processor"]

Medium = Literal["image", "audio", "text", "tensors"]
OnStep = Callable[[str, float], None]


class Processor:
    """What happens between raw bytes and tensors, and between tensors and a decision.

    Immutable and without hidden state: any number of threads may use one processor.

    Attributes:
        medium: What `prepare` takes; "tensors" where callers bring named tensors themselves.
    """

    __slots__ = ("_feed", "_finish", "_plans", "_samples", "medium")

    medium: Medium

    def __init__(
        self,
        processing: Processing,
        signature: Signature,
        task: Task,
        labels: Sequence[str] = (),
    ) -> None:
        """Check the steps against each other and the signature, and compile them.

        Args:
            processing: Steps before and after the model.
            signature: The source's inputs and outputs. Axis 0 of each is the batch.
            task: What the outputs mean.
            labels: Class names by index; classes are called by their index where there are none.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 007 or 012: steps, parameters, task or labels do
                not fit each other or the signature.
        """
        self._feed = FeedCheck(signature)
        self._finish = Finish(processing.outputs, signature, task, labels)
        self._plans = tuple(Plan(each) for each in processing.inputs)
        self.medium = "image" if self._plans else "tensors"
        self._samples: FeedCheck | None = None
        if self._plans:
            check_fit(self._plans, signature, task)
            if any(plan.size is None for plan in self._plans):
                self._samples = FeedCheck(sample_signature(signature))

    def prepare(self, raw: Raw, on_step: OnStep | None = None) -> dict[str, np.ndarray]:
        """Make the model's inputs of one raw input.

        Args:
            raw: Encoded bytes, a path, a binary file, a Pillow picture, or uint8 RGB pixels
                [height, width, 3]. It is never changed.
            on_step: Called after each step with its name ("decode", "resize", "normalize+layout")
                and the seconds it took.

        Returns:
            One sample: fresh arrays by input name, without a batch axis (`batch` adds it).

        Raises:
            InputError: EDGE-INPUT-001 to 008 or 017, ``raw`` is no picture that this model takes.
            ProcessingError: EDGE-PROCESS-011, Pillow is missing.
        """
        if not self._plans:
            raise InputError(
                "EDGE-INPUT-007",
                "raw input",
                wanted=f"a dict of the named tensors {self._feed.names}",
                got=f"{type(raw).__module__}.{type(raw).__qualname__}",
                hint="this model was packaged without processing: prepare its tensors yourself",
            )
        clock = _Clock(on_step) if on_step else None
        decoded: dict[Decode, PIL.Image.Image] = {}
        sample: dict[str, np.ndarray] = {}
        for plan in self._plans:
            if plan.decode not in decoded:  # inputs that decode alike share the picture
                decoded[plan.decode] = decode(plan.decode, raw)
                if clock:
                    clock("decode")
            sample[plan.name] = _carry_out(plan, decoded[plan.decode], clock)
        return self._checked(sample) if self._samples else sample

    def batch(self, samples: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Stack samples along a new axis 0; a single one is not copied.

        Raises:
            InputError: EDGE-INPUT-016, there are no samples, or their names or shapes differ.
        """
        if len(samples) == 1:
            return {name: array[None] for name, array in samples[0].items()}
        shapes = [{name: array.shape for name, array in sample.items()} for sample in samples]
        if not samples or any(shape != shapes[0] for shape in shapes):
            odd = next((shape for shape in shapes if shape != shapes[0]), "no samples")
            raise InputError(
                "EDGE-INPUT-016",
                "batch",
                wanted=f"samples of one shape, {shapes[0]}" if shapes else "at least one sample",
                got=str(odd),
                hint="run pictures of different size one by one, or resize them to one size",
            )
        return {name: np.stack([sample[name] for sample in samples]) for name in shapes[0]}

    def finish(self, outputs: Mapping[str, np.ndarray]) -> list[Record | Tensors]:
        """Turn a batch of outputs into one result a sample.

        Args:
            outputs: The model's outputs by name, axis 0 the samples. Outputs that the signature
                does not know are left out.

        Returns:
            A record of the task a sample; `Tensors` (views) where the task is "tensors".

        Raises:
            ProcessingError: EDGE-PROCESS-007 to 010: outputs of another shape than declared, NaN
                scores, or scores that are no probabilities.
        """
        return self._finish(outputs)

    def check_feed(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
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

    def _checked(self, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert self._samples is not None
        try:
            return self._samples(sample)
        except InputError as error:
            raise InputError(
                "EDGE-INPUT-017",
                "picture",
                wanted="one whose tensors the model takes after its processing",
                got=error.message,
                hint="send a picture of another size, or end the processing with a center_crop",
            ) from error


class _Clock:
    """Tells a callback how long each step took, from one call to the next."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self._on_step(name, now - self._since)
        self._since = time.perf_counter()  # the callback's own time is nobody's step


def _carry_out(plan: Plan, image: PIL.Image.Image, clock: _Clock | None) -> np.ndarray:
    for name, step in plan.pixels:
        image = apply(step, image)
        if clock:
            clock(name)
    tensor = plan.tail(image)
    if clock:
        clock(plan.tail.name)
    return tensor
