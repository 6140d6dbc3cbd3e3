"""Prepared samples and batches of them, which still know what they were made from.

Samples are stacked along a new axis 0, and padded first where the medium is text. The origin of
a sample is what boxes and spans are expressed in. Beside them, numbers of outputs: softmax and
sigmoid, and what is refused as no number or no probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.types.steps import Size

#: Arrays by name.
Arrays = Mapping[str, np.ndarray]

#: Names of the arrays of an origin (`origins_to_arrays`).
ORIGIN = ("size", "offsets")


class SampleOrigin(NamedTuple):
    """What one sample was made from.

    Attributes:
        size: Height and width of the upright picture.
        offsets: Where each token lies in the text, int64 [tokens, 2]: first character and the one
            after the last; -1 for special tokens.
    """

    size: Size | None = None
    offsets: np.ndarray | None = None


class Prepared(dict[str, np.ndarray]):
    """Arrays by input name, of one sample or a batch, and the origin of each sample."""

    __slots__ = ("origins",)

    def __init__(self, arrays: Arrays, origins: Sequence[SampleOrigin] = ()) -> None:
        super().__init__(arrays)
        self.origins = tuple(origins)


def origins_of(feeds: Sequence[Arrays]) -> tuple[SampleOrigin, ...]:
    """The origins of all samples in order; none unless each has one."""
    found = [feed.origins if isinstance(feed, Prepared) else () for feed in feeds]
    return tuple(origin for origins in found for origin in origins) if all(found) else ()


def origins_to_arrays(feed: Arrays) -> dict[str, np.ndarray]:
    """The origin of a single sample's feed as arrays, for a file; nothing where it has none."""
    if not isinstance(feed, Prepared) or len(feed.origins) != 1:
        return {}
    (origin,) = feed.origins
    arrays = {} if origin.size is None else {"size": np.array(origin.size, np.int64)}
    return arrays if origin.offsets is None else {**arrays, "offsets": origin.offsets}


def with_origins(feed: dict[str, np.ndarray], arrays: Arrays) -> dict[str, np.ndarray]:
    """A feed with the origin that `origins_to_arrays` gave."""
    if not arrays:
        return feed
    size = arrays.get("size")
    whole = None if size is None else (int(size[0]), int(size[1]))
    return Prepared(feed, (SampleOrigin(whole, arrays.get("offsets")),))


class Pad(NamedTuple):
    """How the rows of one input grow to one length.

    Attributes:
        value: What is filled in.
        left: Before the row rather than after it.
        least: Length below which no row of a batch may stay.
    """

    value: int
    left: bool
    least: int


def stack_samples(samples: Sequence[Arrays], pads: Mapping[str, Pad]) -> dict[str, np.ndarray]:
    """Make a batch; see `Processor.batch`.

    Args:
        samples: At least one, all with the same names.
        pads: For each input whose rows may differ in length, how they are padded.

    Raises:
        InputError: EDGE-INPUT-016.
    """
    names = samples[0].keys() if samples else ()
    if not samples or any(sample.keys() != names for sample in samples):
        raise _no_batch(samples, "at least one sample, all of the same inputs")
    columns = {name: [sample[name] for sample in samples] for name in names}
    batch = {}
    for name, arrays in columns.items():
        if name in pads:
            batch[name] = _padded(arrays, pads[name], samples)
        elif any(array.shape != arrays[0].shape for array in arrays):
            raise _no_batch(samples, "samples of one shape")
        else:
            batch[name] = np.stack(arrays) if len(arrays) > 1 else arrays[0][None]
    return batch


def _padded(rows: list[np.ndarray], pad: Pad, samples: Sequence[Arrays]) -> np.ndarray:
    if any(row.ndim != 1 for row in rows):
        raise _no_batch(samples, "rows of numbers, without a batch axis")
    longest = max(pad.least, *(row.size for row in rows))
    if len(rows) == 1 and rows[0].size == longest:
        return rows[0][None]
    batch = np.full((len(rows), longest), pad.value, rows[0].dtype)
    for line, row in zip(batch, rows, strict=True):
        line[longest - row.size if pad.left else 0 :][: row.size] = row
    return batch


def _no_batch(samples: Sequence[Arrays], wanted: str) -> InputError:
    shapes = [{name: array.shape for name, array in sample.items()} for sample in samples]
    odd = next((shape for shape in shapes if shape != shapes[0]), shapes[0] if shapes else None)
    return InputError(
        "EDGE-INPUT-016",
        "batch",
        wanted=f"{wanted} (the first is {shapes[0]})" if shapes else wanted,
        got=str(odd or "no samples"),
        hint="run samples that differ in shape one by one, or resize pictures to one size",
    )


#: How far beyond 0..1 a probability may lie: quantized graphs end in steps of 1/256.
_SLACK = 0.01


def softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    """softmax/1: exponentials of ``scores - max`` over their sum, all in float32.

    NaN, and infinities of the kind that have no softmax, come out as NaN.
    """
    scores = np.asarray(scores, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        normal: np.ndarray = powers / powers.sum(axis=axis, keepdims=True, dtype=np.float32)
    return normal


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` in float64, rounded once to float32."""
    exact = np.asarray(scores, np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-exact)), np.float32)


def activated(scores: np.ndarray, activation: str, axis: int = -1) -> np.ndarray:
    """What an activation makes of scores: "softmax" over an axis, "sigmoid", or "none"."""
    if activation == "softmax":
        return softmax(scores, axis)
    return sigmoid(scores) if activation == "sigmoid" else scores


def check_numbers(values: np.ndarray, what: str) -> np.ndarray:
    """The values, which are to be finite.

    Raises:
        ProcessingError: EDGE-PROCESS-009, they are not.
    """
    finite = np.isfinite(values)
    if finite.all():
        return values
    got = f"NaN or infinity in {int(finite.size - finite.sum())} of {finite.size}"
    hint = "check this input for NaN; if it has none, the artifact is broken: validate it"
    raise ProcessingError("EDGE-PROCESS-009", what, wanted="numbers", got=got, hint=hint)


def are_probabilities(values: np.ndarray) -> bool:
    """Whether all numbers lie between 0 and 1, a hundredth beyond allowed for."""
    return not values.size or bool(values.min() >= -_SLACK and values.max() <= 1 + _SLACK)


def check_probabilities(scores: np.ndarray) -> np.ndarray:
    """The scores, which are to lie between 0 and 1, a hundredth beyond allowed for.

    Raises:
        ProcessingError: EDGE-PROCESS-010, they do not.
    """
    if are_probabilities(scores):
        return scores
    wanted = "probabilities, between 0 and 1"
    got = f"{float(scores.min()):.6g} to {float(scores.max()):.6g}"
    hint = "declare how the step makes probabilities of scores: its activation"
    raise ProcessingError("EDGE-PROCESS-010", "scores", wanted=wanted, got=got, hint=hint)


def wrong_outputs(wanted: str, got: str) -> ProcessingError:
    """The error for a model that gives something else than its processing was declared for."""
    hint = "declare the task and signature that fit what the model gives"
    return ProcessingError("EDGE-PROCESS-008", "model outputs", wanted=wanted, got=got, hint=hint)


def no_mask(step: str, output: str, mask: str, feed: Arrays | None) -> ProcessingError:
    """The error for a step whose mask is not in the feed."""
    where, wanted = f"step {step!r} of output {output!r}", f"the feed, for its mask {mask!r}"
    got = "no feed" if feed is None else f"a feed of {sorted(feed)}"
    hint = "give finish() the batch that the model was run with: finish(outputs, feed)"
    return ProcessingError("EDGE-PROCESS-026", where, wanted=wanted, got=got, hint=hint)
