"""What an endpoint may say: each number, name and size of a reply is checked before the app has it.

An endpoint is a stranger, whatever protocol it speaks. Its reply is as long as the model's answer
can be, is read only where the time for that is left, and holds an answer that this very model could
give to what was sent. Everything else is no answer, and the device answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.errors import first_control
from edgeserve.oip.client import EndpointReply, json_part
from edgeserve.processing.arrays import are_probabilities
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.segmentation import Segment
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import RanOn, Record
from edgeserve.types.steps import MAX_PIXELS
from edgeserve.types.tensors import Shape, Signature, TensorSpec
from edgeserve.wrapper.engine import Arrays

#: Bytes of a reply beside its numbers, and of one number as the longest of the protocols writes it.
_REST, _NUMBER = 1 << 20, 64
#: Seconds that JSON takes at most, by byte and by list or object: what is not read in time anyway
#: is not begun, since nothing interrupts a parser.
_S_PER_BYTE, _S_PER_NODE = 5e-8, 2e-6
#: Characters of the names and notes that an endpoint tells of itself.
_NAME, _NOTE = 200, 1000
#: Fields of records that hold probabilities.
_SHARES = ("score", "scores", "point_scores", "prob", "margin", "margins", "floor")

Range = tuple[int, float]
#: Inclusive range of each named dimension.
Sizes = dict[str, Range]


class BadReply(Exception):
    """A reply that is no answer of this model in the endpoint's protocol."""


def sizes_of(signature: Signature, feed: Arrays | None) -> Sizes:
    """The range of each named dimension: the feed's own size, else what the signature allows.

    Args:
        signature: The model's.
        feed: What it is fed; None: one raw input.
    """
    sizes: Sizes = dict(signature.dims)
    if feed is None:
        return sizes | ({signature.batch_dim: (1, 1)} if signature.batch_dim else {})
    for spec in signature.inputs:
        for dim, size in zip(spec.shape, feed[spec.name].shape, strict=True):
            if isinstance(dim, str):
                sizes[dim] = (size, size)
    return sizes


def longest_reply(signature: Signature, sizes: Sizes) -> int | None:
    """Bytes that a reply with an answer has at most; None: the signature does not tell."""
    if any(spec.dtype == "string" for spec in signature.outputs):
        return None
    counts = [_most(spec.shape, sizes) for spec in signature.outputs]
    return _REST + _NUMBER * int(sum(counts)) if math.isfinite(sum(counts)) else None


def reading_time(reply: EndpointReply) -> float:
    """Seconds that reading a reply may take at most, by the length and nodes of its JSON."""
    text = json_part(reply)
    return len(text) * _S_PER_BYTE + (text.count(b"[") + text.count(b"{")) * _S_PER_NODE


def check_outputs(outputs: Arrays, signature: Signature, sizes: Sizes) -> None:
    """Refuse tensors of other sizes than the feed's and the signature's, NaN and infinity.

    Raises:
        BadReply: there are such tensors.
    """
    for spec in signature.outputs:
        array = outputs[spec.name]
        _require(_fits(array.shape, spec.shape, sizes), "outputs of another size")
        _require(array.dtype.kind != "f" or bool(np.isfinite(array).all()), "NaN or infinity")


def check_origin(ran_on: RanOn) -> None:
    """Refuse what an endpoint tells of itself where it is long, or would move a terminal's cursor.

    Raises:
        BadReply: it is.
    """
    told = {name: getattr(ran_on, name) for name in ran_on.__struct_fields__}
    runtime = ran_on.runtime
    for name, text in (
        told | {"runtime": f"{runtime.name}{runtime.version}{runtime.delegate}"}
    ).items():
        if isinstance(text, str):
            most = _NOTE if name == "note" else _NAME
            fine = len(text) <= most and first_control(text) is None
            _require(fine, f"a {name} that is long or holds control characters")


def check_record(record: Record, manifest: Manifest, length: int | None = None) -> None:
    """Refuse a decision that this model does not make.

    Args:
        record: The decision.
        manifest: The model's.
        length: Characters of the text that was sent; None: no text was.

    Raises:
        BadReply: it is of another task, or holds a label, number or size that the model does not
            have.
    """
    wanted = tasks.decides(manifest.task) and type(record) is tasks.schema(manifest.task).record
    _require(wanted, "a decision of another task")
    for name in record.__struct_fields__:
        if name != "ran_on":
            _check_values(name, getattr(record, name))
    _check_names(record, manifest)
    _check_sizes(record, manifest)
    for span in getattr(record, "spans", ()):
        right = 0 <= span.start < span.end <= (math.inf if length is None else length)
        _require(right, "a span outside of the text")


def _check_values(name: str, value: Any) -> None:
    """Numbers are finite, probabilities are some, and texts do nothing to a terminal."""
    if isinstance(value, str):
        lines = value.replace("\n", "").replace("\t", "").replace("\r", "")
        _require(first_control(lines) is None, "control characters")
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _check_values(field, getattr(value, field))
    elif isinstance(value, tuple) and not all(type(x) in (int, float) for x in value):
        for item in value:
            _check_values(name, item)
    elif value is not None:
        numbers = np.asarray(value)
        _require(bool(np.isfinite(numbers).all()), "NaN or infinity")
        _require(
            name not in _SHARES or are_probabilities(numbers), "scores that are no probabilities"
        )
        _require(not numbers.size or float(np.abs(numbers).max()) < 1e30, "numbers out of range")


def _check_names(record: Any, manifest: Manifest) -> None:
    """Labels and indexes are those of the model."""
    labels, step = manifest.labels, manifest.processing.task_output
    if isinstance(record, Classification):
        _check_classes(record, labels)
    elif hasattr(record, "mask") or hasattr(record, "points"):
        _require(record.labels == labels, "other labels than the model's")
    else:
        known = step.class_names(labels) if step else labels
        given = [span.label for span in getattr(record, "spans", ())]
        for label in {*given, *getattr(record, "labels", ())}:
            _require(label in known if labels else _is_index(label), "a label of another model")


def _check_classes(record: Classification, labels: tuple[str, ...]) -> None:
    first = (record.label, record.score)
    scores = [score for _, score in record.top]
    _require(bool(record.top) and record.top[0] == first, "a label that does not lead its list")
    _require(scores == sorted(scores, reverse=True), "classes that are not in order")
    _require(
        all(are_probabilities(np.asarray(s)) for s in scores), "scores that are no probabilities"
    )
    _require(len(set(record.indexes)) == len(record.indexes), "a class that is there twice")
    _require(len(record.top) <= (len(labels) or math.inf), "more classes than the model has")
    for label, _ in record.top:
        _require(label in labels if labels else _is_index(label), "a label of another model")
    indexes = record.indexes or (record.index,)
    _require(indexes[0] == record.index, "two indexes for a label")
    for index, (label, _) in zip(indexes, record.top, strict=False):
        mine = labels[index] if 0 <= index < len(labels) else str(index)
        several = index == -1 and labels.count(label) > 1  # a server that knows labels alone
        _require(label == mine or several, "an index that is not the label's")


def _is_index(label: str) -> bool:
    return label.isascii() and label.isdigit() and len(label) <= 9


def _check_sizes(record: Any, manifest: Manifest) -> None:
    """Arrays are as large as the model's outputs make them, lists as long as its step allows."""
    step: Any = manifest.processing.task_output
    found = getattr(record, "boxes", None)
    if found is not None:
        most = getattr(step, "most", 1)
        _require(len(found) <= most, "more things than the model finds")
        _require(bool((found[:, 2:] >= found[:, :2]).all()), "a box that ends before it begins")
        _require(not found.size or abs(found).max() <= MAX_PIXELS, "a box beyond any picture")
    if (frames := getattr(record, "step_s", None)) is not None:
        _require(frames == step.step_s, "frames of another length")
    sizes = sizes_of(manifest.signature, None)
    for name, wanted in _shapes(manifest):
        array = getattr(record, name, None)
        if array is not None:
            _require(_fits(array.shape, wanted, sizes), f"a {name} of another size")
    if (mask := getattr(record, "mask", None)) is not None and mask.size:
        classes = len(manifest.labels) or math.inf
        _require(mask.min() >= 0 and mask.max() < classes, "a class that the model does not have")
    tokens = getattr(record, "tokens", ())
    _require(
        len(tokens) <= _most(_result(manifest).shape[1:-1], sizes),
        "more tokens than the model gives",
    )
    _require(min(tokens, default=0) >= 0, "a token below 0")


def _shapes(manifest: Manifest) -> Iterator[tuple[str, Shape]]:
    """Arrays of the task's record by name, and the shape that the model's output gives them."""
    step, spec = manifest.processing.task_output, _result(manifest)
    dims = list(spec.shape[1:])
    if not dims:
        return
    yield "vector", (dims[-1],)
    index = getattr(step, "index", None)
    if all(isinstance(dim, int) for dim in dims) or index is not None:
        yield "prob", (dims[0] if index is not None else math.prod(map(int, dims)),)
    if isinstance(step, Segment) and len(dims) == 3 and spec.dtype.startswith(("float", "bf")):
        del dims[step.axis]
    while len(dims) > 2 and 1 in dims:
        dims.remove(1)
    for name in ("mask", "margin", "map"):
        yield name, tuple(dims)


def _result(manifest: Manifest) -> TensorSpec:
    """The output that the decision is read from."""
    steps = manifest.processing.outputs
    step = manifest.processing.task_output or next(iter(steps), None)
    outputs = manifest.signature.outputs
    return manifest.signature.output(step.output) if step else outputs[0]


def _most(shape: Shape, sizes: Sizes) -> float:
    """Elements of a tensor at most."""
    return math.prod(_range(dim, sizes)[1] for dim in shape)


def _range(dim: int | str, sizes: Sizes) -> Range:
    return (dim, dim) if isinstance(dim, int) else sizes.get(dim, (0, math.inf))


def _fits(shape: tuple[int, ...], wanted: Shape, sizes: Sizes) -> bool:
    if len(shape) != len(wanted):
        return False
    spans = (_range(dim, sizes) for dim in wanted)
    return all(low <= size <= high for size, (low, high) in zip(shape, spans, strict=True))


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BadReply(f"a reply with {what}")
