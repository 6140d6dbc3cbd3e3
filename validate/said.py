"""What a callable reference may answer, brought into one form: a decision, or named outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeserve.data import Feed
from edgeserve.decisions import DECIDED_MARGIN, RECORDS
from edgeserve.errors import ValidateError
from edgeserve.types.records import Classification, Embedding, Record
from edgeserve.types.tensors import Signature
from edgeserve.types.words import Task
from edgeserve.validate.said_records import probable, record_of

__all__ = ["Said", "understand"]

#: What a score may lose on its way through float32 and JSON.
_ROUNDING = 1e-6
_VECTOR = 'a list or array of numbers, an Embedding, {"embedding": vector}, or named outputs'
_FORMS = (
    "a Classification, a dict with label or index (and score, top), a label, a class index,"
    " or a dict of the model's named outputs"
)


@dataclass(frozen=True)
class Said:
    """An answer understood.

    Attributes:
        record: The decision; None where tensors were given.
        tensors: Named outputs, batch axis included; None where a decision was given.
        scored: ``record`` holds the reference's own scores.
    """

    record: Record | None = None
    tensors: Feed | None = None
    scored: bool = False


def understand(
    answer: object, task: Task, signature: Signature, labels: Sequence[str], thing: str
) -> Said:
    """Read an answer.

    Args:
        answer: What the callable returned.
        task: The model's.
        signature: The model's, for the names of outputs.
        labels: The model's, by index.
        thing: What to call the reference and input in errors.

    Raises:
        ValidateError: EDGE-VALIDATE-006 none of the forms, -007 a class that the model has not.
    """
    if isinstance(answer, Mapping) and set(answer) == {spec.name for spec in signature.outputs}:
        return Said(tensors=_tensors(answer, signature))
    if task not in DECIDED_MARGIN:
        names = [spec.name for spec in signature.outputs]
        raise _not_understood(thing, answer, f"a dict of the model's outputs {names}")
    if task == "feature-extraction":
        return Said(record=_embedding(answer, thing), scored=True)
    if RECORDS[task] is not Classification:
        return Said(record=record_of(answer, task, labels, thing), scored=True)
    if isinstance(answer, Classification):
        _check_scores(answer, thing)
        _check_agrees(answer, labels, thing)
        return Said(record=_indexed(answer, labels, thing), scored=True)
    if isinstance(answer, Mapping):
        return _from_dict(answer, labels, thing)
    return Said(record=_bare(answer, labels, thing))


def _tensors(answer: Mapping[str, Any], signature: Signature) -> Feed:
    """Outputs as arrays; a missing batch axis is added."""
    found = {}
    for spec in signature.outputs:
        array = np.asarray(answer[spec.name])
        found[spec.name] = array if array.ndim == len(spec.shape) else array[None]
    return found


def _embedding(answer: object, thing: str) -> Embedding:
    """A vector [d], or the only row of [1, d]."""
    given = answer
    if isinstance(given, Mapping) and set(given) == {"embedding"}:
        given = given["embedding"]
    if isinstance(given, Embedding):
        given = given.vector
    if hasattr(given, "detach"):  # a tensor of torch, maybe on a GPU and with a gradient
        given = given.detach().cpu().float().numpy()
    try:
        with np.errstate(over="ignore"):
            vector = np.asarray(given).astype(np.float32, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise _no_vector(thing, answer, _VECTOR) from error
    vector = vector[0] if vector.ndim == 2 and len(vector) == 1 else vector
    if vector.ndim != 1 or not vector.size:
        raise _no_vector(thing, answer, f"one vector [d], not {list(vector.shape)}")
    if not np.isfinite(vector).all():
        raise _no_vector(thing, answer, "a vector of finite numbers")
    return Embedding(vector=vector)


def _no_vector(thing: str, answer: object, wanted: str) -> ValidateError:
    hint = "return the sentence's or picture's vector: model.encode(text), not one for each token"
    return _not_understood(thing, answer, wanted, hint)


def _from_dict(answer: Mapping[str, Any], labels: Sequence[str], thing: str) -> Said:
    if not {"label", "index"} & set(answer):
        raise _not_understood(thing, answer, _FORMS)
    bare = _bare(answer.get("index", answer.get("label")), labels, thing)
    label = str(answer.get("label", bare.label))
    _check_index(label, bare.index, labels, thing)
    if "score" not in answer:
        return Said(record=bare)
    try:
        score = float(answer["score"])
        top = [(str(entry[0]), float(entry[1])) for entry in answer.get("top") or ()]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        wanted = "score as a number, top as (label, score) pairs"
        raise _not_understood(thing, answer, wanted) from error
    best_first = tuple(sorted(top, key=lambda entry: -entry[1])) or ((label, score),)
    record = Classification(label=label, score=score, top=best_first, index=bare.index)
    _check_scores(record, thing)
    _check_agrees(record, labels, thing)
    return Said(record=_indexed(record, labels, thing), scored=True)


def _check_scores(record: Classification, thing: str) -> None:
    scores = [record.score, *(score for _, score in record.top)]
    if not np.isfinite(scores).all():
        raise _not_understood(thing, record, "finite scores")
    if not probable(scores):
        raise _not_understood(thing, record, "scores as probabilities, from 0 to 1")


def _check_index(label: str, index: int, labels: Sequence[str], thing: str) -> None:
    """Where an answer gives both label and index, they are of one class."""
    if index < 0 or label == (labels[index] if index < len(labels) else str(index)) or not labels:
        return
    raise _not_understood(
        thing,
        {"label": label, "index": index},
        "label and index of one class",
        f"class {index} of the model is {labels[min(index, len(labels) - 1)]!r}:"
        " give one of the two, or the model the server's label list",
    )


def _check_agrees(record: Classification, labels: Sequence[str], thing: str) -> None:
    """A decision does not contradict itself: the label leads top, and top names a class once."""
    _check_index(record.label, record.index, labels, thing)
    best = max(record.top, key=lambda entry: entry[1], default=(record.label, record.score))
    if best[0] != record.label and best[1] > record.score + _ROUNDING:
        raise _not_understood(
            thing,
            record,
            f"the best of top, {best[0]!r}, as the label",
            "return the label of the highest score, and that score",
        )
    named = [label for label, _ in record.top]
    again = [x for x in named if named.count(x) > max(1, labels.count(x))]
    if again and not record.indexes:
        raise _not_understood(
            thing,
            record,
            "each class once in top",
            f"list each class once: {again[0]!r} stands there {named.count(again[0])} times",
        )


def _bare(answer: object, labels: Sequence[str], thing: str) -> Classification:
    """A decision of which only the class is known; its scores are 0 and mean nothing."""
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
        index = int(answer)
        if index < 0 or (labels and index >= len(labels)):
            raise _unknown(thing, f"class {index}", labels)
        label = labels[index] if labels else str(index)
    elif isinstance(answer, str):
        label, index = answer, _index(answer, labels, thing)
    else:
        raise _not_understood(thing, answer, _FORMS)
    indexes = (index,) if index >= 0 else ()
    return Classification(label=label, score=0.0, top=((label, 0.0),), index=index, indexes=indexes)


def _indexed(record: Classification, labels: Sequence[str], thing: str) -> Classification:
    """The record with class indexes, where labels say them."""
    index = record.index if record.index >= 0 else _index(record.label, labels, thing)
    indexes = record.indexes
    if not indexes and labels and all(labels.count(label) == 1 for label, _ in record.top):
        indexes = tuple(labels.index(label) for label, _ in record.top)
    return Classification(
        label=record.label, score=record.score, top=record.top, index=index, indexes=indexes
    )


def _index(label: str, labels: Sequence[str], thing: str) -> int:
    """The class of a label; -1 where several have it. Without labels it is called by number."""
    if not labels:
        if label.isascii() and label.isdecimal():
            return int(label)
        raise _unknown(thing, f"label {label!r}", labels)
    if label not in labels:
        raise _unknown(thing, f"label {label!r}", labels)
    return labels.index(label) if labels.count(label) == 1 else -1


def _unknown(thing: str, got: str, labels: Sequence[str]) -> ValidateError:
    wanted = f"one of the model's {len(labels)} labels" if labels else "a class index"
    return ValidateError(
        "EDGE-VALIDATE-007",
        thing,
        wanted=wanted,
        got=got,
        hint="let the function return class indexes, or give the model the server's label list",
    )


def _not_understood(
    thing: str,
    answer: object,
    wanted: str,
    hint: str = 'return, for example, {"label": "cat", "score": 0.9, "top": [("cat", 0.9), ...]}',
) -> ValidateError:
    shown = repr(answer)
    got = shown if len(shown) <= 80 else f"{type(answer).__name__} {shown[:60]}..."
    return ValidateError("EDGE-VALIDATE-006", thing, wanted=wanted, got=got, hint=hint)
