"""What a user's reference may answer: a record, or a dict of its fields, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from edgeserve.errors import ValidateError
from edgeserve.processing.arrays import are_probabilities
from edgeserve.tasks.base import DecisionRule, sidecar_arrays
from edgeserve.types.records import Record

Fields = Mapping[str, Any]


def check_size(record: Record, program: Record, called: str) -> None:
    """A mask, map or row of frames is as large as the model's own.

    Raises:
        ValidateError: EDGE-VALIDATE-030.
    """
    for name, wanted in sidecar_arrays(program).items():
        got = getattr(record, name)
        if got is not None and got.shape != wanted.shape:
            raise ValidateError(
                "EDGE-VALIDATE-030",
                called,
                wanted=f"{name} of {list(wanted.shape)}",
                got=f"one of {list(got.shape)}",
                hint="answer at the resolution of the model's own output, without resizing it",
            )


class ReferenceAnswers(NamedTuple):
    """How the answers of a user's reference are read: the part ``answers`` of a task's folder.

    Attributes:
        parse: ``(answer, labels, thing)`` to the record, and whether it holds the reference's own
            scores. Raises EDGE-VALIDATE-006 and -007.
        complete: ``(rule, record, program)``: the record with what its exported program's record
            knows besides, such as margins and what it nearly found.
        own: ``(record, scored)``: the decision without what the program adds to it.
        check_size: ``(record, program, thing)``: refuse another size than the program's.
    """

    parse: Callable[[object, Sequence[str], str], tuple[Record, bool]]
    complete: Callable[[DecisionRule, Any, Any], Any] = lambda rule, record, program: record
    own: Callable[[Any, bool], object] = lambda record, scored: record
    check_size: Callable[[Record, Record, str], None] = check_size


def field_answers(
    kind: type[Record],
    form: str,
    read: Callable[[Fields, Sequence[str]], Record],
    finite: Callable[[Any], Iterable[np.ndarray | None]] = lambda record: (),
    shares: Callable[[Any], Iterable[Any]] = lambda record: (),
    check: Callable[[Any, Sequence[str], str], None] = lambda record, labels, thing: None,
    check_fields: Callable[[Any, str], None] = lambda record, thing: None,
    **more: Callable[..., Any],
) -> ReferenceAnswers:
    """Reads a record, or a dict of its fields.

    Args:
        kind: The task's record.
        form: What a dict of its fields holds, in words.
        read: Makes the record of such a dict.
        finite: Arrays of a record that hold no NaN and no infinity.
        shares: Its numbers that are probabilities.
        check: ``(record, labels, thing)``: refuse what else no record of the task holds.
        check_fields: ``(record, thing)``: refuse what a dict may get wrong besides.
        more: ``complete`` and ``own`` of `ReferenceAnswers`.
    """

    def checked(record: Record, labels: Sequence[str], thing: str) -> Record:
        if any(array is not None and not np.isfinite(array).all() for array in finite(record)):
            raise unreadable_record(kind, form, thing, "numbers that are not finite")
        if not all(in_unit_interval(values) for values in shares(record) if values is not None):
            got = "scores that are no probabilities, from 0 to 1"
            raise unreadable_record(kind, form, thing, got)
        check(record, labels, thing)
        return record

    def parse(answer: object, labels: Sequence[str], thing: str) -> tuple[Record, bool]:
        if isinstance(answer, kind):
            return checked(answer, labels, thing), True
        if not isinstance(answer, Mapping):
            raise unreadable_record(kind, form, thing, f"{type(answer).__name__} {answer!r:.60}")
        try:
            record = read({str(k): _plain_value(v) for k, v in answer.items()}, labels)
        except (KeyError, TypeError, ValueError, IndexError, msgspec.ValidationError) as error:
            raise unreadable_record(kind, form, thing, f"{answer!r:.60}... ({error})") from error
        checked(record, labels, thing)
        check_fields(record, thing)
        return record, True

    return ReferenceAnswers(parse, **more)


def _plain_value(value: Any) -> Any:
    """Tensors of torch, maybe on a GPU and with a gradient, as arrays."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def class_label(given: object, labels: Sequence[str]) -> str:
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


def check_labels(given: Iterable[str], labels: Sequence[str], thing: str) -> None:
    """Refuse labels that the model does not have, where it has any.

    Raises:
        ValidateError: EDGE-VALIDATE-007.
    """
    if labels and (unknown := sorted(set(given) - set(labels))):
        raise unknown_class(thing, f"label {unknown[0]!r}", labels)


def unknown_class(thing: str, got: str, labels: Sequence[str]) -> ValidateError:
    """The error for a class that the model does not have."""
    wanted = f"one of the model's {len(labels)} labels" if labels else "a class index"
    hint = "let the function return class indexes, or give the model the server's label list"
    return ValidateError("EDGE-VALIDATE-007", thing, wanted=wanted, got=got, hint=hint)


def in_unit_interval(values: Any) -> bool:
    """Whether all numbers lie between 0 and 1: margins of anything else mean nothing."""
    return are_probabilities(np.asarray(values, np.float64))


def unreadable_record(
    kind: type,
    form: str,
    thing: str,
    got: str,
    hint: str = "return what your server returns, as a dict with these keys",
) -> ValidateError:
    """The error for an answer that is no record of the task."""
    wanted = f"a {kind.__name__}, a dict of its fields ({form}), or named outputs"
    return ValidateError("EDGE-VALIDATE-006", thing, wanted=wanted, got=got, hint=hint)


def unreadable_answer(
    thing: str,
    answer: object,
    wanted: str,
    hint: str = 'return, for example, {"label": "cat", "score": 0.9, "top": [("cat", 0.9), ...]}',
) -> ValidateError:
    """The error for an answer of another form."""
    shown = repr(answer)
    got = shown if len(shown) <= 80 else f"{type(answer).__name__} {shown[:60]}..."
    return ValidateError("EDGE-VALIDATE-006", thing, wanted=wanted, got=got, hint=hint)
