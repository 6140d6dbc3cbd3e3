"""Texts of different length in one batch: padded as the Wrapper pads them, and cut apart again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.data import Feed
from edgeserve.processing import Processor
from edgeserve.types.source import Exported
from edgeserve.types.tensors import TensorSpec
from edgeserve.validate.feeds import Runner

__all__ = ["Together"]


class Together:
    """Makes one batch of several texts, and takes its answers apart.

    Args:
        processor: The packaged processing, which knows how rows are padded.
        exported: The model, all of whose inputs are rows of a text.
    """

    def __init__(self, processor: Processor, exported: Exported) -> None:
        self._processor = processor
        self._signature = exported.signature
        self._padding = exported.processing.padding
        #: The first input of each dynamic length: its rows tell how long an answer is.
        self._inputs: dict[str, str] = {}
        for spec in exported.signature.inputs:
            for axis, dim in enumerate(spec.shape):
                if axis and isinstance(dim, str):
                    self._inputs.setdefault(dim, spec.name)

    @classmethod
    def of(cls, processor: Processor, exported: Exported) -> Together | None:
        """None for a model whose inputs are not padded."""
        return cls(processor, exported) if exported.processing.padding else None

    def takes(self, feed: Feed) -> bool:
        """Whether a feed is one text."""
        return all(array.ndim == 2 and len(array) == 1 for array in feed.values())

    def run(self, runner: Runner, feeds: Sequence[Feed]) -> list[Feed]:
        """Run feeds of one text each as one batch; their outputs, without what answers padding.

        Raises:
            BackendError: the runtime failed.
        """
        rows = [{name: array[0] for name, array in feed.items()} for feed in feeds]
        outputs = runner.run_once(self._processor.batch(rows))
        return [
            {spec.name: self._cut(outputs[spec.name], spec, i, feed) for spec in self._outputs}
            for i, feed in enumerate(feeds)
        ]

    @property
    def _outputs(self) -> tuple[TensorSpec, ...]:
        return self._signature.outputs

    def _cut(self, array: np.ndarray, spec: TensorSpec, row: int, feed: Feed) -> np.ndarray:
        """One input's part of an output [batch, ...]."""
        array = array[row : row + 1]
        for axis, dim in enumerate(spec.shape):
            name = self._inputs.get(dim) if axis and isinstance(dim, str) else None
            if name is not None:
                size = feed[name].shape[1]
                left = name in self._padding and self._padding[name].padding == "left"
                start = array.shape[axis] - size if left else 0
                array = array.take(range(start, start + size), axis)
        return array
