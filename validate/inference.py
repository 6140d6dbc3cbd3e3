"""From raw input to decision with the packaged processing: the feed before, the decision after.

Running is `edgeserve.backends.batching`'s business. Loads no engine.
"""

from __future__ import annotations

from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import DataError, InputError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.types.records import Record, Tensors

#: Expected input by the model's medium, and how to give it.
_WANTED = {
    "tensors": (
        "named tensors",
        "give an .npz of tensors, or declare the task and the processing that makes them of files",
    ),
    "image": ("an image file", "give a folder of files or a data.jsonl"),
    "audio": ("an audio file", "give a folder of files or a data.jsonl"),
    "text": ("a text", "give a data.jsonl of texts, a folder of .txt files, or an .npz of ids"),
}

#: Codes of processing that blame the input.
_INPUT_ERRORS = ("EDGE-PROCESS-027",)


def prepare_feed(processor: Processor, raw: RawInput, thing: str) -> Feed:
    """One raw input as named model inputs, batch axis included.

    Raises:
        DataError: EDGE-DATA-020, the input cannot be used with this model.
    """
    medium = processor.medium
    try:
        if isinstance(raw, dict):
            if medium in ("tensors", "text"):  # texts may come as token ids
                return processor.check_feed(raw)
        elif medium != "tensors" and isinstance(raw, str) == (medium == "text"):
            return processor.batch([processor.prepare(raw)])
    except (InputError, ProcessingError) as error:
        if error.code not in _INPUT_ERRORS and not isinstance(error, InputError):
            raise
        raise DataError(
            "EDGE-DATA-020",
            thing,
            wanted="an input that the model's processing takes",
            got=error.message,
            hint=error.hint,
        ) from error
    got = {"dict": "named tensors", "str": "a text"}.get(type(raw).__name__, "a file")
    wanted, hint = _WANTED[medium]
    raise DataError("EDGE-DATA-020", thing, wanted=wanted, got=got, hint=hint)


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
