"""The reference as a callable: the user's own server code, fed with raw inputs.

What goes wrong inside it is the user's to fix, so its errors name the user's own line.
References of other kinds are told apart here as well. `parse_answer` brings what a callable may
answer into one form: a decision, or named outputs.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.files import sha256_bytes
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.records import Record
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task
from edgeserve.user_lines import line_of_error
from edgeserve.validate.reference.endpoint import endpoint_key
from edgeserve.validate.reference.oip_client import parse_address
from edgeserve.validate.reference.parse_records import in_unit_interval, parse_record

__all__ = [
    "PT2",
    "CallableReference",
    "ParsedAnswer",
    "call_reference",
    "check_reference",
    "is_endpoint",
    "parse_answer",
    "reference_key",
    "unreadable_answer",
]


#: The exported program itself, behind the packaged processing.
PT2 = "pt2"

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_endpoint(reference: str) -> bool:
    """Whether a reference is an address."""
    return re.match(r"[a-z]+://", reference) is not None


def check_reference(reference: str) -> None:
    """See that a reference is of a kind that a worker can ask by its name.

    Raises:
        ValidateError: EDGE-VALIDATE-002 an address that is none of REST, -049 a function of a
            Python process that is not at hand, -001 anything else.
    """
    if reference == PT2 or _CALLABLE.fullmatch(reference):
        return
    if is_endpoint(reference):
        parse_address(reference)
        return
    if reference.startswith("<"):
        raise ValidateError(
            "EDGE-VALIDATE-049",
            f"reference {reference}",
            wanted="a reference that can be opened again",
            got="a function of the Python process that validated first",
            hint="pass the function again, validate(reference=function), or put it into a module "
            "and name its import path: server:predict",
        )
    raise ValidateError(
        "EDGE-VALIDATE-001",
        f"reference {reference!r}",
        wanted="pt2, module:callable or http(s)://host:port/v2/models/NAME",
        got="none of them",
        hint="name a function that takes a raw input, such as server:predict",
    )


def call_reference(
    function: Callable[[RawInput], object], raw: RawInput, thing: str, folder: Path
) -> object:
    """What a function of the user answers to a raw input.

    Raises:
        ValidateError: EDGE-VALIDATE-005, it raised an exception.
    """
    try:
        return function(raw)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ValidateError(
            "EDGE-VALIDATE-005",
            thing,
            wanted="an answer",
            got=f"{type(error).__name__}: {error}",
            source_line=line_of_error(error, folder),
            hint="fix the function, or leave out inputs that it cannot answer",
        ) from error


def reference_key(reference: str, folder: Path) -> str:
    """Hash over a reference's name and the code it is found in, without running any of it.

    A module's own file counts, or every ``.py`` of the package it lies in; what it imports from
    elsewhere, and weights it loads, do not. Of an endpoint counts what it says of its model.

    Raises:
        ValidateError: an endpoint cannot be asked.
    """
    code = b""
    if is_endpoint(reference):
        code = endpoint_key(reference)
    elif reference != PT2:
        top = reference.partition(":")[0].partition(".")[0]
        code = b"".join(file.read_bytes() for file in _source_files(top, folder))
    return sha256_bytes(reference.encode() + b"\0" + code)


def _source_files(package: str, folder: Path) -> list[Path]:
    """The code of a top-level module, looked for as an import would."""
    spec = PathFinder.find_spec(package, sys.path) or PathFinder.find_spec(package, [str(folder)])
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        folders = [Path(location) for location in spec.submodule_search_locations]
        return [file for each in folders for file in sorted(each.rglob("*.py"))]
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []


class CallableReference:
    """A callable reference, loaded once.

    Args:
        reference: ``module:callable``; the name behind the colon may have dots.
        folder: Appended to ``sys.path``, so that the user's modules are found and shadow nothing.

    Raises:
        ValidateError: EDGE-VALIDATE-003 the module cannot be imported, -004 no such callable.
    """

    def __init__(self, reference: str, folder: Path) -> None:
        self.reference = reference
        self._folder = folder.resolve()
        if str(self._folder) not in sys.path:
            sys.path.append(str(self._folder))
        importlib.invalidate_caches()
        self._function = self._load()

    #: It is given raw inputs, and prepares them itself.
    takes_raw = True
    #: Who answered is told by its name.
    said = ""

    def close(self) -> None:
        """Nothing is held open."""

    def ask(
        self, raws: Sequence[RawInput], feeds: Sequence[Feed], things: Sequence[str]
    ) -> list[object]:
        """What the callable answers to raw inputs: bytes, a text, or named tensors each.

        Raises:
            ValidateError: EDGE-VALIDATE-005, it raised an exception.
        """
        return [
            call_reference(
                self._function, raw, f"reference {self.reference} on {thing}", self._folder
            )
            for raw, thing in zip(raws, things, strict=True)
        ]

    def _load(self) -> Callable[[RawInput], object]:
        module, _, name = self.reference.partition(":")
        try:
            found: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise ValidateError(
                "EDGE-VALIDATE-003",
                f"reference {self.reference}",
                wanted=f"module {module}",
                got=f"{type(error).__name__}: {error}",
                source_line=line_of_error(error, self._folder),
                hint=f"see that it imports in {self._folder}: python -c 'import {module}'",
            ) from error
        for part in name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise ValidateError(
                "EDGE-VALIDATE-004",
                f"reference {self.reference}",
                wanted=f"a callable {name}",
                got="none of that name" if found is None else type(found).__name__,
                hint="name a function that takes a raw input and returns the decision",
            )
        function: Callable[[RawInput], object] = found
        return function


#: What a score may lose on its way through float32 and JSON.
_ROUNDING = 1e-6
_VECTOR_FORMS = 'a list or array of numbers, an Embedding, {"embedding": vector}, or named outputs'
_FORMS = (
    "a Classification, a dict with label or index (and score, top), a label, a class index,"
    " or a dict of the model's named outputs"
)


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer understood.

    Attributes:
        record: The decision; None where tensors were given.
        tensors: Named outputs, batch axis included; None where a decision was given.
        scored: ``record`` holds the reference's own scores.
    """

    record: Record | None = None
    tensors: Feed | None = None
    scored: bool = False


def parse_answer(
    answer: object, task: Task, signature: Signature, labels: Sequence[str], thing: str
) -> ParsedAnswer:
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
        return ParsedAnswer(tensors=_tensors(answer, signature))
    if not tasks.decides(task):
        names = [spec.name for spec in signature.outputs]
        raise unreadable_answer(thing, answer, f"a dict of the model's outputs {names}")
    if task == "feature-extraction":
        return ParsedAnswer(record=_embedding(answer, thing), scored=True)
    if tasks.schema(task).record is not Classification:
        return ParsedAnswer(record=parse_record(answer, task, labels, thing), scored=True)
    if isinstance(answer, Classification):
        _check_scores(answer, thing)
        _check_agrees(answer, labels, thing)
        return ParsedAnswer(record=_indexed(answer, labels, thing), scored=True)
    if isinstance(answer, Mapping):
        return _from_dict(answer, labels, thing)
    return ParsedAnswer(record=_label_only(answer, labels, thing))


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
        raise _no_vector(thing, answer, _VECTOR_FORMS) from error
    vector = vector[0] if vector.ndim == 2 and len(vector) == 1 else vector
    if vector.ndim != 1 or not vector.size:
        raise _no_vector(thing, answer, f"one vector [d], not {list(vector.shape)}")
    if not np.isfinite(vector).all():
        raise _no_vector(thing, answer, "a vector of finite numbers")
    return Embedding(vector=vector)


def _no_vector(thing: str, answer: object, wanted: str) -> ValidateError:
    hint = "return the sentence's or picture's vector: model.encode(text), not one for each token"
    return unreadable_answer(thing, answer, wanted, hint)


def _from_dict(answer: Mapping[str, Any], labels: Sequence[str], thing: str) -> ParsedAnswer:
    if not {"label", "index"} & set(answer):
        raise unreadable_answer(thing, answer, _FORMS)
    bare = _label_only(answer.get("index", answer.get("label")), labels, thing)
    label = str(answer.get("label", bare.label))
    _check_index(label, bare.index, labels, thing)
    if "score" not in answer:
        return ParsedAnswer(record=bare)
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
    return ParsedAnswer(record=_indexed(record, labels, thing), scored=True)


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
        raise unreadable_answer(
            thing,
            record,
            f"the best of top, {best[0]!r}, as the label",
            "return the label of the highest score, and that score",
        )
    named = [label for label, _ in record.top]
    again = [x for x in named if named.count(x) > max(1, labels.count(x))]
    if again and not record.indexes:
        raise unreadable_answer(
            thing,
            record,
            "each class once in top",
            f"list each class once: {again[0]!r} stands there {named.count(again[0])} times",
        )


def _label_only(answer: object, labels: Sequence[str], thing: str) -> Classification:
    """A decision of which only the class is known; its scores are 0 and mean nothing."""
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
        index = int(answer)
        if index < 0 or (labels and index >= len(labels)):
            raise _unknown_class(thing, f"class {index}", labels)
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
    if not labels:
        if label.isascii() and label.isdecimal():
            return int(label)
        raise _unknown_class(thing, f"label {label!r}", labels)
    if label not in labels:
        raise _unknown_class(thing, f"label {label!r}", labels)
    return labels.index(label) if labels.count(label) == 1 else -1


def _unknown_class(thing: str, got: str, labels: Sequence[str]) -> ValidateError:
    wanted = f"one of the model's {len(labels)} labels" if labels else "a class index"
    return ValidateError(
        "EDGE-VALIDATE-007",
        thing,
        wanted=wanted,
        got=got,
        hint="let the function return class indexes, or give the model the server's label list",
    )


def unreadable_answer(
    thing: str,
    answer: object,
    wanted: str,
    hint: str = 'return, for example, {"label": "cat", "score": 0.9, "top": [("cat", 0.9), ...]}',
) -> ValidateError:
    """The coded error for an answer in none of the forms: EDGE-VALIDATE-006."""
    shown = repr(answer)
    got = shown if len(shown) <= 80 else f"{type(answer).__name__} {shown[:60]}..."
    return ValidateError("EDGE-VALIDATE-006", thing, wanted=wanted, got=got, hint=hint)
