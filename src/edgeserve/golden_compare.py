"""Is an answer the reference's? Per task: the decision, and how far the rest may be off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.tasks import DecisionRule
from edgeserve.tasks.base import comparable_floats
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances, nearest_neighbours
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.reports import Limits
from edgeserve.types.samples import GoldenField

_SCALE_FLOOR = Limits().scale_floor


class GoldenComparison(Value, frozen=True):
    """One answer against the reference's.

    Attributes:
        wrong: Why it does not hold; empty if it does.
        difference: In the terms of the case's tolerance.
        margin: How sure the answer is; None where that says nothing.
    """

    wrong: str
    difference: float = 0.0
    margin: float | None = None


def compare_records(
    references: Sequence[Record],
    answers: Sequence[object],
    tolerances: Sequence[float],
    rule: DecisionRule | None = None,
) -> list[GoldenComparison]:
    """Compare the answers to several inputs, each by itself and, where that decides, as a set.

    A classification holds with the same best class and a score within the tolerance; an embedding
    with a cosine distance within the tolerance and, in the set, the same nearest neighbour. A
    neighbour that the reference itself prefers by no more than the tolerance may be another. Boxes,
    pixels, frames, spans and tokens hold where none of those is another that the reference is sure
    of: by the tolerance, and by what counts as decided.

    Args:
        references: What the reference decided.
        answers: What came out here, in the same order.
        tolerances: Of each case (`edgeserve.types.samples.GoldenCase`).
        rule: `edgeserve.tasks.decision_rule` the model; needed for records of many decisions.
    """
    given = zip(references, answers, tolerances, strict=True)
    found = [_compare(*each, rule) for each in given]
    vectors = {
        i: (reference.vector, answer.vector)
        for i, (reference, answer) in enumerate(zip(references, answers, strict=True))
        if isinstance(reference, Embedding)
        and isinstance(answer, Embedding)
        and reference.vector.size == answer.vector.size
    }
    if len(vectors) < 2:
        return found
    wanted, margins = nearest_neighbours(np.stack([each for each, _ in vectors.values()]))
    got, sure = nearest_neighbours(np.stack([each for _, each in vectors.values()]))
    places = list(vectors)
    for at, i in enumerate(places):
        wrong = found[i].wrong
        if not wrong and wanted[at] != got[at] and margins[at] > tolerances[i]:
            other = f"case {places[got[at]]}" if got[at] >= 0 else "none"
            wrong = f"wanted case {places[wanted[at]]} as its nearest neighbour, got {other}"
        found[i] = msgspec.structs.replace(found[i], wrong=wrong, margin=float(sure[at]))
    return found


def _compare(
    reference: Record, answer: object, tolerance: float, rule: DecisionRule | None
) -> GoldenComparison:
    if not isinstance(answer, type(reference)):
        return GoldenComparison(
            wrong=f"wanted a {type(reference).__name__}, got {type(answer).__name__}"
        )
    if isinstance(reference, Embedding) and isinstance(answer, Embedding):
        return _compare_vectors(reference, answer, tolerance)
    if rule is not None and tasks.has_many_decisions(rule.task):
        return _compare_many(rule, reference, answer, tolerance)
    difference = 0.0
    if isinstance(reference, Classification) and isinstance(answer, Classification):
        difference = abs(answer.score - reference.score)
    same = tasks.same(reference, answer)
    wrong = ""
    if not (same and difference <= tolerance):
        wrong = f"wanted {tasks.describe(reference)}, got {tasks.describe(answer)}"
        if same:
            wrong += f" (scores may differ by {tolerance:g})"
    return GoldenComparison(wrong=wrong, difference=difference, margin=tasks.margin(answer))


def _compare_many(
    rule: DecisionRule, reference: Record, answer: Record, tolerance: float
) -> GoldenComparison:
    units = tasks.compare(rule, reference, answer, max(rule.sure, tolerance))
    wrong = ""
    if units.decided_flips or not units.decided:
        wrong = f"wanted {tasks.describe(reference)}, got {tasks.describe(answer)}"
        wrong += f": {units.decided_flips} of {units.decided} clear {tasks.unit_of(rule.task)}"
        wrong += " are others"
    return GoldenComparison(
        wrong=wrong,
        difference=tasks.gap(rule, reference, answer),
        margin=tasks.margin(answer, rule),
    )


def _compare_vectors(reference: Embedding, answer: Embedding, tolerance: float) -> GoldenComparison:
    if reference.vector.size != answer.vector.size:
        wrong = f"wanted a {tasks.describe(reference)}, got a {tasks.describe(answer)}"
        return GoldenComparison(wrong=wrong, difference=float("inf"))
    difference = float(cosine_distances(reference.vector[None], answer.vector[None])[0])
    wrong = ""
    if not difference <= tolerance:  # NaN never is
        wrong = f"wanted a cosine distance within {tolerance:g}, got {difference:.3g}"
    return GoldenComparison(wrong=wrong, difference=difference)


def compare_arrays(
    reference: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    tolerance: float,
    fields: Sequence[GoldenField] = (),
) -> GoldenComparison:
    """Each field's largest difference relative to its own scale.

    Args:
        reference: Named outputs.
        outputs: What came out here.
        tolerance: The largest difference that holds.
        fields: The parts of outputs, as the gate compared them; an output without any is one part,
            whose scale is its largest number here and has a floor.
    """
    worst, wrong = 0.0, ""
    for name, wanted in reference.items():
        got = outputs.get(name)
        if got is None or got.shape != wanted.shape:
            shape = "nothing" if got is None else f"shape {list(got.shape)}"
            return GoldenComparison(
                wrong=f"output {name}: wanted shape {list(wanted.shape)}, got {shape}"
            )
        for part, scale, exact, seen in _parts(name, wanted, got, fields):
            difference = _relative_difference(exact, seen, scale)
            if not difference <= tolerance and not wrong:
                wrong = f"{part}: wanted within {tolerance:g} of its scale, got {difference:g}"
            worst = max(worst, difference)
    return GoldenComparison(wrong=wrong, difference=worst)


def _parts(
    name: str, wanted: np.ndarray, got: np.ndarray, fields: Sequence[GoldenField]
) -> Iterator[tuple[str, float, np.ndarray, np.ndarray]]:
    """What is compared on one scale: its name, that scale, and both sides."""
    mine = [each for each in fields if each.output == name]
    if not mine:
        yield f"output {name}", _SCALE_FLOOR, wanted, got
    for each in mine:
        called = f"output {name}" if len(mine) == 1 else f"{each.word} field of output {name}"
        axis, last = each.axis, max((stop for _, stop in each.runs), default=0)
        if axis is None or axis >= wanted.ndim or not 0 < last <= wanted.shape[axis]:
            yield called, each.scale, wanted, got  # all of it, as for what does not fit
            continue
        channels = [i for start, stop in each.runs for i in range(start, stop)]
        yield called, each.scale, np.take(wanted, channels, axis), np.take(got, channels, axis)


def _relative_difference(wanted: np.ndarray, got: np.ndarray, scale: float) -> float:
    """Largest difference over the scale, or over the largest wanted float where that is larger.

    Of the finite numbers. Infinite where the others (infinities of one sign, NaN) are not the same.
    """
    if np.array_equal(wanted, got, equal_nan=wanted.dtype.kind in "fc"):
        return 0.0
    if wanted.dtype.kind not in "biufc" or got.dtype.kind not in "biufc":
        return float("inf")
    exact, seen = (comparable_floats(each).astype(np.float64) for each in (wanted, got))
    known = np.isfinite(exact)
    if not np.array_equal(exact[~known], seen[~known], equal_nan=True):
        return float("inf")
    exact, seen = exact[known], seen[known]
    if not np.isfinite(seen).all():
        return float("inf")
    whole = wanted.dtype.kind not in "fc" and scale == 1  # a declared field of whole numbers
    own = 0.0 if whole else float(np.abs(exact).max(initial=0.0))
    return float(np.abs(exact - seen).max(initial=0.0) / max(own, scale))
