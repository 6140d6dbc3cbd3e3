"""From one picture to the inputs of a model: what `Processor` does where the medium is "image"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing.batch import Prepared, SampleOrigin
from edgeserve.processing.checks import StepTimer, sample_signature
from edgeserve.processing.image.plan import ImagePlan, check_image_plans
from edgeserve.processing.inputs import FeedValidator
from edgeserve.processing.steps.decode import Decode, Raw, decode
from edgeserve.types.processing import InputProcessing
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task

if TYPE_CHECKING:
    import PIL.Image


class ImagePipeline:
    """Inputs made from a picture, compiled. Immutable, so threads may share it."""

    __slots__ = ("_plans", "_samples")

    def __init__(self, inputs: Sequence[InputProcessing], signature: Signature, task: Task) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 to 005 or 012.
        """
        self._plans = tuple(ImagePlan(each) for each in inputs)
        check_image_plans(self._plans, signature, task)
        free = any(plan.size is None for plan in self._plans)
        self._samples = FeedValidator(sample_signature(signature)) if free else None

    def __call__(self, raw: Raw, clock: StepTimer) -> dict[str, np.ndarray]:
        """One sample of one picture; see `Processor.prepare`."""
        decoded: dict[Decode, PIL.Image.Image] = {}
        sample: dict[str, np.ndarray] = {}
        for plan in self._plans:
            if plan.decode not in decoded:  # inputs that decode alike share the picture
                decoded[plan.decode] = decode(plan.decode, raw)
                clock("decode")
            image = decoded[plan.decode]
            for name, step in plan.pixels:
                image = step.apply(image)
                clock(name)
            sample[plan.name] = plan.tail(image)
            clock(plan.tail.name)
        width, height = decoded[self._plans[0].decode].size
        checked = self._checked(sample) if self._samples else sample
        return Prepared(checked, (SampleOrigin(size=(height, width)),))

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
