"""A vector as a user's reference answers it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeserve.errors import ValidateError
from edgeserve.tasks.answers import ReferenceAnswers, unreadable_answer
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.records import Record

_VECTOR_FORMS = 'a list or array of numbers, an Embedding, {"embedding": vector}, or named outputs'


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


def _check_size(record: Record, program: Record, called: str) -> None:
    assert isinstance(record, Embedding)
    assert isinstance(program, Embedding)
    if record.vector.size != program.vector.size:
        wanted = f"a vector of {program.vector.size}, as the model's"
        got = f"one of {record.vector.size}"
        hint = "let the function use the model that was converted, with the same pooling"
        raise ValidateError("EDGE-VALIDATE-020", called, wanted=wanted, got=got, hint=hint)


ANSWERS = ReferenceAnswers(
    lambda answer, labels, thing: (_embedding(answer, thing), True), check_size=_check_size
)
