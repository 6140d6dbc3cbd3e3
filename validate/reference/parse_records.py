"""What a callable reference says: boxes, masks, depths, spans, text or frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.errors import ValidateError
from edgeserve.processing.outputs.checks import are_probabilities
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.token_classification import Span, Tokens
from edgeserve.tasks.voice_activity import Voice
from edgeserve.types.records import Record
from edgeserve.types.vocabulary import Task

__all__ = ["check_size", "complete_record", "in_unit_interval", "parse_record"]

#: What each record is made of, as a dict may give it; a field in brackets may be missing.
_FORMS: dict[type, str] = {
    Detection: "boxes [n, 4] (xyxy, pixels of the upright photo), scores [n], labels [n]",
    Segmentation: "mask [H, W] and, optionally, labels and margin [H, W]",
    Depth: "map [H, W]",
    Tokens: "spans: a list of (start, end, label, score)",
    Text: "tokens and, optionally, text and margins",
    Voice: "prob [n] and step_s",
}
_Fields = Mapping[str, Any]
#: Pixels from the origin beyond which no corner of a box lies.
_MAX_COORDINATE = 1e7


def parse_record(answer: object, task: Task, labels: Sequence[str], thing: str) -> Record:
    """The record in an answer: one of the task, or a dict of its fields.

    Args:
        answer: What the callable returned.
        task: One whose record is in `_FORMS`.
        labels: The model's, by index; classes may be given as indexes into them.
        thing: What to call the reference and input in errors.

    Raises:
        ValidateError: EDGE-VALIDATE-006 none of the forms, -007 a class that the model has not.
    """
    kind = tasks.schema(task).record
    if isinstance(answer, kind):
        record = answer
    elif isinstance(answer, Mapping):
        try:
            record = _PARSERS[kind]({str(k): _plain(v) for k, v in answer.items()}, labels)
        except (KeyError, TypeError, ValueError, IndexError, msgspec.ValidationError) as error:
            raise _unreadable_record(kind, thing, f"{answer!r:.60}... ({error})") from error
    else:
        raise _unreadable_record(kind, thing, f"{type(answer).__name__} {answer!r:.60}")
    _check(record, labels, thing)
    if isinstance(record, Detection) and not isinstance(answer, kind):
        _check_corners(record, thing)
    return record


def complete_record(record: Record | None, program: Record | None) -> Record | None:
    """What a server does not say of how sure it is, the exported program says in its place."""
    if isinstance(record, Segmentation) and isinstance(program, Segmentation):
        labels, margin = record.labels or program.labels, record.margin
        margin = program.margin if margin is None else margin
        return msgspec.structs.replace(record, margin=margin, labels=labels)
    if isinstance(record, Text) and isinstance(program, Text) and not record.margins:
        margins = program.margins if len(record.tokens) == len(program.tokens) else ()
        return msgspec.structs.replace(record, margins=margins)
    return record


def check_size(said: Record | None, program: Record | None, called: str) -> None:
    """A vector, mask, map or row of frames is as large as the model's own.

    Raises:
        ValidateError: EDGE-VALIDATE-020 for a vector, -030 for the others.
    """
    if type(said) is not type(program) or said is None or program is None:
        return
    if isinstance(said, Embedding) and isinstance(program, Embedding):
        if said.vector.size != program.vector.size:
            raise ValidateError(
                "EDGE-VALIDATE-020",
                called,
                wanted=f"a vector of {program.vector.size}, as the model's",
                got=f"one of {said.vector.size}",
                hint="let the function use the model that was converted, with the same pooling",
            )
        return
    for name, wanted in tasks.sidecar_arrays(program).items():
        got = getattr(said, name)
        if got is not None and got.shape != wanted.shape:
            raise ValidateError(
                "EDGE-VALIDATE-030",
                called,
                wanted=f"{name} of {list(wanted.shape)}",
                got=f"one of {list(got.shape)}",
                hint="answer at the resolution of the model's own output, without resizing it",
            )


def _plain(value: Any) -> Any:
    """Tensors of torch, maybe on a GPU and with a gradient, as arrays."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _detection(fields: _Fields, labels: Sequence[str]) -> Detection:
    named = fields["labels"] if "labels" in fields else fields["classes"]
    return Detection(
        boxes=np.asarray(fields["boxes"]),
        scores=np.asarray(fields["scores"]),
        labels=tuple(_label(each, labels) for each in np.asarray(named).tolist()),
    )


def _label(given: object, labels: Sequence[str]) -> str:
    """A label, or the label of a class index."""
    if isinstance(given, str):
        return given
    if isinstance(given, bool):
        raise ValueError(f"{given!r} is no class, but a truth value")
    index = int(given)  # type: ignore[call-overload]
    if index < 0 or index != given:
        raise ValueError(f"{given!r} is no class")
    if labels and index >= len(labels):
        raise ValueError(f"class {index} of a model with {len(labels)}, counted from 0")
    return labels[index] if labels else str(index)


def _segmentation(fields: _Fields, labels: Sequence[str]) -> Segmentation:
    margin = fields.get("margin")
    return Segmentation(
        mask=np.asarray(fields["mask"]),
        labels=tuple(fields.get("labels") or labels),
        margin=None if margin is None else np.asarray(margin),
    )


def _depth(fields: _Fields, labels: Sequence[str]) -> Depth:
    return Depth(map=np.asarray(fields["map"]))


def _tokens(fields: _Fields, labels: Sequence[str]) -> Tokens:
    spans = [each if isinstance(each, Span) else _span(each) for each in fields["spans"]]
    return Tokens(spans=tuple(sorted(spans, key=lambda span: (span.start, span.end))))


def _span(given: Any) -> Span:
    names = ("start", "end", "label", "score")
    start, end, label, score = [given[n] for n in names] if isinstance(given, Mapping) else given
    return Span(start=int(start), end=int(end), label=str(label), score=float(score))


def _text(fields: _Fields, labels: Sequence[str]) -> Text:
    return Text(
        tokens=tuple(int(each) for each in fields["tokens"]),
        text=str(fields.get("text", "")),
        margins=tuple(float(each) for each in fields.get("margins", ())),
    )


def _voice(fields: _Fields, labels: Sequence[str]) -> Voice:
    return Voice(prob=np.asarray(fields["prob"]), step_s=float(fields["step_s"]))


_PARSERS: dict[type, Callable[[_Fields, Sequence[str]], Record]] = {
    Detection: _detection,
    Segmentation: _segmentation,
    Depth: _depth,
    Tokens: _tokens,
    Text: _text,
    Voice: _voice,
}


def _check(record: Record, labels: Sequence[str], thing: str) -> None:
    """Finite numbers, and labels that the model has."""
    arrays = [getattr(record, name, None) for name in ("boxes", "scores", "map", "prob", "margin")]
    if any(a is not None and not np.isfinite(a).all() for a in arrays):
        raise _unreadable_record(type(record), thing, "numbers that are not finite")
    shares = [getattr(record, name, None) for name in ("scores", "prob", "margin")]
    shares += [[s.score for s in getattr(record, "spans", ())], getattr(record, "margins", ())]
    if not all(in_unit_interval(values) for values in shares if values is not None):
        raise _unreadable_record(
            type(record), thing, "scores that are no probabilities, from 0 to 1"
        )
    named = set(record.labels) if isinstance(record, Detection) and labels else set()
    if unknown := sorted(named - set(labels)):
        raise ValidateError(
            "EDGE-VALIDATE-007",
            thing,
            wanted=f"one of the model's {len(labels)} labels",
            got=f"label {unknown[0]!r}",
            hint="let the function return class indexes, or give the model the server's label list",
        )


def _check_corners(record: Detection, thing: str) -> None:
    """A server's own boxes: corners in their order, on a picture that could exist."""
    boxes = record.boxes
    turned = (boxes[:, 2:] < boxes[:, :2] - 1).any(axis=1)  # a pixel: rounding of a thin box
    if turned.any():
        raise _unreadable_record(
            Detection,
            thing,
            f"a box {_shown(boxes[turned.argmax()])}, its end before its start",
            "give x1, y1, x2, y2: of x, y, width, height add x to width and y to height",
        )
    far = (np.abs(boxes) > _MAX_COORDINATE).any(axis=1)
    if far.any():
        raise _unreadable_record(
            Detection,
            thing,
            f"a box {_shown(boxes[far.argmax()])}, beyond any picture",
            "give corners in pixels of the upright photo",
        )


def _shown(box: np.ndarray) -> str:
    return f"[{', '.join(f'{corner:g}' for corner in box.tolist())}]"


def in_unit_interval(values: Any) -> bool:
    """Whether all numbers lie between 0 and 1: margins of anything else mean nothing."""
    return are_probabilities(np.asarray(values, np.float64))


def _unreadable_record(
    kind: type,
    thing: str,
    got: str,
    hint: str = "return what your server returns, as a dict with these keys",
) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-006",
        thing,
        wanted=f"a {kind.__name__}, a dict of its fields ({_FORMS[kind]}), or named outputs",
        got=got,
        hint=hint,
    )
