"""Which inputs become golden cases: those that no chip may answer otherwise.

A classification is chosen by itself, the best of each class first. Embeddings are chosen as a set:
what each decides is its nearest neighbour among the chosen ones, so that leaving one out changes
what the others decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from edgeserve.decisions import DECIDED_MARGIN, is_many
from edgeserve.neighbours import distances, nearest
from edgeserve.types.records import Embedding, Record
from edgeserve.types.words import Task
from edgeserve.validate.candidates import SAFETY, Drawn, class_of
from edgeserve.validate.neighbourhood import as_matrix, gaps
from edgeserve.validate.verdict import drift_limit

__all__ = ["Rule", "choose_each", "choose_set"]

#: Outputs of the ``tensors`` task may differ by this at least, relative to their scale.
_RELATIVE = 1e-3
#: No nearest neighbour can flip among fewer.
_FEWEST = 3


@dataclasses.dataclass(frozen=True)
class Rule:
    """How far from flipping a case has to be, and what a device may differ by on it.

    Attributes:
        task: The model's.
        error: Largest error of any artifact on any input, for inputs whose own is not known.
    """

    task: Task
    error: float

    @property
    def decides(self) -> bool:
        """The task has decisions."""
        return self.task in DECIDED_MARGIN

    @property
    def many(self) -> bool:
        """An answer holds many decisions."""
        return is_many(self.task)

    def wanted(self, error: float | None) -> float:
        """The margin that an input with this error must exceed."""
        return max(self._three(error), DECIDED_MARGIN.get(self.task, 0.0))

    def tolerance(self, error: float | None) -> float:
        """See `edgeserve.types.samples.GoldenCase.tolerance`."""
        return max(self._three(error), drift_limit(self.task) if self.decides else _RELATIVE)

    def _three(self, error: float | None) -> float:
        return SAFETY * (self.error if error is None else error)


def choose_each(
    found: Sequence[Drawn], count: int | None, wanted: Callable[[Drawn], float]
) -> list[Drawn]:
    """The best of each class first, best margin first; then the best of the rest.

    Args:
        found: Candidates.
        count: How many are wanted; None: all that hold, in their own order.
        wanted: The margin that a candidate must exceed.
    """
    if count is None:
        return [each for each in found if each.margin > wanted(each)]
    good = sorted((c for c in found if c.margin > wanted(c)), key=lambda c: -c.margin)
    seen: set[object] = set()
    firsts: list[Drawn] = []
    rest: list[Drawn] = []
    for candidate in good:
        (rest if class_of(candidate.record) in seen else firsts).append(candidate)
        seen.add(class_of(candidate.record))
    return (firsts + rest)[:count]


def choose_set(found: Sequence[Drawn], count: int | None, rule: Rule) -> list[Drawn]:
    """Inputs each of which is sure of its nearest neighbour among the chosen ones.

    Where artifacts have answered, each of them must find the same neighbours, and the margin is
    held against what they change of the deciding cosines.

    Args:
        found: Candidates with embeddings.
        count: How many are wanted; None: all that hold.
        rule: How sure.

    Returns:
        The chosen ones with margin and error among each other; none where fewer than three hold.
    """
    held = _held([each for each in found if _near(each, rule.tolerance(each.error) / 2)], rule)
    if count is not None and len(held) > count:
        held = _held(_paired(held, count), rule)
    return held


def _near(each: Drawn, apart: float) -> bool:
    """Whether the reference's vector is one that the exported program gives as well.

    Else devices would be held to what no artifact computes.
    """
    if not isinstance(each.record, Embedding) or not isinstance(each.program, Embedding):
        return False
    distance = distances(each.record.vector[None], each.program.vector[None])
    return bool(distance[0] <= apart)  # NaN is not


def _held(found: list[Drawn], rule: Rule) -> list[Drawn]:
    """What is left when all that is not sure enough, or that anyone decides otherwise, is gone.

    The least sure quarter of those goes at a time: a triple of near duplicates becomes a pair
    rather than nothing.
    """
    while len(found) >= _FEWEST:
        reference, *others = _matrices(found)
        neighbours, margins = nearest(reference)
        errors = _errors(found, reference, others[1:])
        bad = margins <= [rule.wanted(error) for error in errors]
        for other in others:
            bad |= nearest(other)[0] != neighbours
        places = np.flatnonzero(bad)
        if not places.size:
            pairs = zip(found, margins, errors, strict=True)
            return [dataclasses.replace(d, margin=float(m), error=e) for d, m, e in pairs]
        worst = places[np.argsort(margins[places], kind="stable")][: max(1, len(places) // 4)]
        gone = set(worst.tolist())
        found = [each for i, each in enumerate(found) if i not in gone]
    return []


def _matrices(found: Sequence[Drawn]) -> list[np.ndarray]:
    """Vectors of the reference, of the exported program, and of each artifact that answered."""
    columns: list[list[Record | None]] = [
        [each.record for each in found],
        [each.program for each in found],
    ]
    for i in range(len(found[0].answers)):
        columns.append([each.answers[i] for each in found])
    vectors = [[r.vector if isinstance(r, Embedding) else None for r in c] for c in columns]
    size = next(v.size for v in vectors[0] if v is not None)
    return [as_matrix(column, size) for column in vectors]


def _errors(
    found: Sequence[Drawn], reference: np.ndarray, answers: Sequence[np.ndarray]
) -> list[float | None]:
    """What the artifacts change of each input's deciding cosines, among these inputs."""
    if not answers:
        return [each.error for each in found]
    worst = np.max([gaps(reference, answer) for answer in answers], axis=0)
    return [float(error) for error in worst]


def _paired(held: list[Drawn], count: int) -> list[Drawn]:
    """Pairs that are each other's neighbours, of different lengths first, the surest first."""
    neighbours, _ = nearest(_matrices(held)[0])
    margins = np.array([each.margin for each in held])
    pairs = [(i, int(j)) for i, j in enumerate(neighbours) if i < j and neighbours[j] == i]
    pairs.sort(key=lambda pair: -min(margins[list(pair)]))
    seen: set[int] = set()
    firsts: list[int] = []
    rest: list[int] = []
    for pair in pairs:
        length = max(held[i].size for i in pair).bit_length()
        (rest if length in seen else firsts).extend(pair)
        seen.add(length)
    chosen = (firsts + rest)[: count - count % 2]
    if len(chosen) < _FEWEST:
        chosen += [i for i in np.argsort(-margins, kind="stable").tolist() if i not in chosen]
    return [held[i] for i in chosen[: max(count, _FEWEST)]]
