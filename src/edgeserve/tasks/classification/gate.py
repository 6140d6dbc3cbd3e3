"""A class as a user's reference answers it: a record, a dict, a label or an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgeserve.tasks.answers import (
    ReferenceAnswers,
    in_unit_interval,
    unknown_class,
    unreadable_answer,
)
from edgeserve.tasks.classification import Classification

#: What a score may lose on its way through float32 and JSON.
_ROUNDING = 1e-6


_FORMS = (
    "a Classification, a dict with label or index (and score, top), a label, a class index,"
    " or a dict of the model's named outputs"
)


def _parse(answer: object, labels: Sequence[str], thing: str) -> tuple[Classification, bool]:
    if isinstance(answer, Classification):
        _check_scores(answer, thing)
        _check_agrees(answer, labels, thing)
        return _indexed(answer, labels, thing), True
    if isinstance(answer, Mapping):
        return _from_dict(answer, labels, thing)
    return _label_only(answer, labels, thing), False


def _from_dict(
    answer: Mapping[str, Any], labels: Sequence[str], thing: str
) -> tuple[Classification, bool]:
    if not {"label", "index"} & set(answer):
        raise unreadable_answer(thing, answer, _FORMS)
    bare = _label_only(answer.get("index", answer.get("label")), labels, thing)
    label = str(answer.get("label", bare.label))
    _check_index(label, bare.index, labels, thing)
    if "score" not in answer:
        return bare, False
    try:
        score = float(answer["score"])
        top = [(str(entry[0]), float(entry[1])) for entry in answer.get("top") or ()]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        wanted = "score as a number, top as (label, score) pairs"
        raise unreadable_answer(thing, answer, wanted) from error
    best_first = tuple(sorted(top, key=lambda entry: -entry[1])) or ((label, score),)
    record = Classification(label=label, score=score, top=best_first, index=bare.index)
    _check_scores(record, thing)
    _check_agrees(record, labels, thing)
    return _indexed(record, labels, thing), True


def _check_scores(record: Classification, thing: str) -> None:
    scores = [record.score, *(score for _, score in record.top)]
    if not np.isfinite(scores).all():
        raise unreadable_answer(thing, record, "finite scores")
    if not in_unit_interval(scores):
        raise unreadable_answer(thing, record, "scores as probabilities, from 0 to 1")


def _check_index(label: str, index: int, labels: Sequence[str], thing: str) -> None:
    """Where an answer gives both label and index, they are of one class."""
    if index < 0 or label == (labels[index] if index < len(labels) else str(index)) or not labels:
        return
    raise unreadable_answer(
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
        wanted = f"the best of top, {best[0]!r}, as the label"
        hint = "return the label of the highest score, and that score"
        raise unreadable_answer(thing, record, wanted, hint)
    named = [label for label, _ in record.top]
    again = [x for x in named if named.count(x) > max(1, labels.count(x))]
    if again and not record.indexes:
        hint = f"list each class once: {again[0]!r} stands there {named.count(again[0])} times"
        raise unreadable_answer(thing, record, "each class once in top", hint)


def _label_only(answer: object, labels: Sequence[str], thing: str) -> Classification:
    """A decision of which only the class is known; its scores are 0 and mean nothing."""
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
        index = int(answer)
        if index < 0 or (labels and index >= len(labels)):
            raise unknown_class(thing, f"class {index}", labels)
        label = labels[index] if labels else str(index)
    elif isinstance(answer, str):
        label, index = answer, _index(answer, labels, thing)
    else:
        raise unreadable_answer(thing, answer, _FORMS)
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
    if not labels and label.isascii() and label.isdecimal():
        return int(label)
    if label not in labels:
        raise unknown_class(thing, f"label {label!r}", labels)
    return labels.index(label) if labels.count(label) == 1 else -1


ANSWERS = ReferenceAnswers(_parse, own=lambda record, scored: record if scored else record.label)
