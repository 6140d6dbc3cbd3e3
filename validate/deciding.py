"""The packaged processing in the gate: built once, and read for decisions. Loads no engine."""

from __future__ import annotations

from pathlib import Path

from edgeserve.data import Feed
from edgeserve.errors import ProcessingError
from edgeserve.processing import Processor
from edgeserve.types.records import Record, Tensors
from edgeserve.types.source import Exported

__all__ = ["decision", "processor_of"]


def processor_of(exported: Exported, folder: Path) -> Processor:
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


def decision(processor: Processor, outputs: Feed, feed: Feed) -> Record | None:
    """The decision in the outputs of one input, for a task that has decisions.

    Args:
        processor: The packaged processing.
        outputs: What the model gave, batch axis included.
        feed: What it was fed: pooling needs its mask.

    Returns:
        None where the result is NaN, or the outputs are those of several inputs.

    Raises:
        ProcessingError: the outputs are no scores.
    """
    try:
        results = processor.finish(outputs, feed)
    except ProcessingError as error:
        if error.code == "EDGE-PROCESS-009":
            return None
        raise
    only = results[0] if len(results) == 1 else None
    return None if isinstance(only, Tensors) else only
