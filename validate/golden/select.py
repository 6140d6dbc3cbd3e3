"""Which inputs become golden cases: those that no chip may answer otherwise.

A classification is chosen by itself, the best of each class first. Embeddings are chosen as a
set: what each decides is its nearest neighbour among the chosen ones, so that leaving one out
changes what the others decide.

`measure_artifact_errors` says how far each artifact moves each candidate. The largest error of
an artifact over all inputs says little about the inputs that it is sure of: an 8-bit network
moves a score by a third where two classes compete, and by a hundredth where one wins.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgeserve import backends, jobs, tasks
from edgeserve.backends.base import UNAVAILABLE
from edgeserve.backends.batching import BatchRunner
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import BackendError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.tasks import DecisionRule, has_many_decisions
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances, nearest_neighbours
from edgeserve.types.records import Record
from edgeserve.types.source import Exported
from edgeserve.types.vocabulary import Task
from edgeserve.validate.flips.embeddings import as_matrix, cosine_gaps
from edgeserve.validate.golden.candidates import (
    SAFETY_FACTOR,
    GoldenCandidate,
    answer_drift,
    decides_otherwise,
)
from edgeserve.validate.inference import decision, prepare_feed
from edgeserve.validate.requests import LocatedArtifact
from edgeserve.validate.verdict import drift_limit

#: Outputs of the ``tensors`` task may differ by this at least, relative to their scale.
_RELATIVE = 1e-3
#: No nearest neighbour can flip among fewer.
_MIN_NEIGHBOURS = 3


@dataclasses.dataclass(frozen=True)
class SelectionRule:
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
        return tasks.decides(self.task)

    @property
    def many(self) -> bool:
        """An answer holds many decisions."""
        return has_many_decisions(self.task)

    @property
    def most_drift(self) -> float:
        """The largest tolerance that a case may have."""
        return tasks.schema(self.task).most_drift if self.decides else float("inf")

    def holds(self, each: GoldenCandidate) -> bool:
        """Whether program and artifacts answer within the tolerance that the case would have."""
        if tasks.needs_neighbours(self.task):
            return True  # known among the others only
        near = each.drift <= self.tolerance(each.error) / 2
        return near and (each.error is None or self._three(each.error) <= self.most_drift)

    @property
    def wide(self) -> bool:
        """The largest error is more than a case may allow: artifacts have to be asked on each."""
        return self._three(None) > self.most_drift

    def wanted(self, error: float | None) -> float:
        """The margin that an input with this error must exceed."""
        return max(self._three(error), tasks.sure_margin(self.task))

    def tolerance(self, error: float | None) -> float:
        """See `edgeserve.types.samples.GoldenCase.tolerance`."""
        least = drift_limit(self.task) if self.decides else _RELATIVE
        return min(max(self._three(error), least), self.most_drift)

    def _three(self, error: float | None) -> float:
        return SAFETY_FACTOR * (self.error if error is None else error)


def select_by_margin(
    found: Sequence[GoldenCandidate], count: int | None, wanted: Callable[[GoldenCandidate], float]
) -> list[GoldenCandidate]:
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
    firsts: list[GoldenCandidate] = []
    rest: list[GoldenCandidate] = []
    for candidate in good:
        (rest if tasks.class_of(candidate.record) in seen else firsts).append(candidate)
        seen.add(tasks.class_of(candidate.record))
    return (firsts + rest)[:count]


def select_embeddings(
    found: Sequence[GoldenCandidate], count: int | None, rule: SelectionRule
) -> list[GoldenCandidate]:
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
    fit = [each for each in found if _matches_program(each, rule.tolerance(each.error) / 2)]
    held = _stable_subset(fit, rule)
    if count is not None and len(held) > count:
        held = _stable_subset(_mutual_pairs(held, count), rule)
    return held


def _matches_program(each: GoldenCandidate, apart: float) -> bool:
    """Whether the reference's vector is one that the exported program gives as well.

    Else devices would be held to what no artifact computes.
    """
    if not isinstance(each.record, Embedding) or not isinstance(each.program, Embedding):
        return False
    distance = cosine_distances(each.record.vector[None], each.program.vector[None])
    return bool(distance[0] <= apart)  # NaN is not


def _stable_subset(found: list[GoldenCandidate], rule: SelectionRule) -> list[GoldenCandidate]:
    """What is left when all that is not sure enough, or that anyone decides otherwise, is gone.

    The least sure quarter of those goes at a time: a triple of near duplicates becomes a pair
    rather than nothing.
    """
    while len(found) >= _MIN_NEIGHBOURS:
        reference, *others = _matrices(found)
        neighbours, margins = nearest_neighbours(reference)
        errors = _cosine_errors(found, reference, others[1:])
        bad = margins <= [rule.wanted(error) for error in errors]
        for other in others:
            bad |= nearest_neighbours(other)[0] != neighbours
        places = np.flatnonzero(bad)
        if not places.size:
            pairs = zip(found, margins, errors, strict=True)
            return [dataclasses.replace(d, margin=float(m), error=e) for d, m, e in pairs]
        worst = places[np.argsort(margins[places], kind="stable")][: max(1, len(places) // 4)]
        gone = set(worst.tolist())
        found = [each for i, each in enumerate(found) if i not in gone]
    return []


def _matrices(found: Sequence[GoldenCandidate]) -> list[np.ndarray]:
    """Vectors of the reference, of the exported program, and of each artifact that answered."""
    columns = zip(*([each.record, each.program, *each.answers] for each in found), strict=True)
    vectors = [[r.vector if isinstance(r, Embedding) else None for r in c] for c in columns]
    size = next(v.size for v in vectors[0] if v is not None)
    return [as_matrix(column, size) for column in vectors]


def _cosine_errors(
    found: Sequence[GoldenCandidate], reference: np.ndarray, answers: Sequence[np.ndarray]
) -> list[float | None]:
    """What the artifacts change of each input's deciding cosines, among these inputs."""
    if not answers:
        return [each.error for each in found]
    worst = np.max([cosine_gaps(reference, answer) for answer in answers], axis=0)
    return [float(error) for error in worst]


def _mutual_pairs(held: list[GoldenCandidate], count: int) -> list[GoldenCandidate]:
    """Pairs that are each other's neighbours, of different lengths first, the surest first."""
    neighbours, _ = nearest_neighbours(_matrices(held)[0])
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
    if len(chosen) < _MIN_NEIGHBOURS:
        chosen += [i for i in np.argsort(-margins, kind="stable").tolist() if i not in chosen]
    return [held[i] for i in chosen[: max(count, _MIN_NEIGHBOURS)]]


#: What an artifact decides, and what it would decide further off.
_DecisionPair = tuple[Record | None, Record | None]


def measure_artifact_errors(
    found: Sequence[GoldenCandidate],
    artifacts: Sequence[LocatedArtifact],
    exported: Exported,
    processor: Processor,
) -> list[GoldenCandidate]:
    """Candidates with what the artifacts make of them.

    All but embeddings get their error: the largest change of a score, or no margin at all where an
    artifact decides otherwise. Embeddings get the artifacts' vectors.

    Raises:
        DataError: a candidate cannot be prepared.
    """
    feeds = [prepare_feed(processor, _raw(each), each.thing) for each in found]
    columns = []
    for place, each in enumerate(artifacts):
        jobs.progress("golden cases on each artifact", place, len(artifacts))
        outputs = _outputs(each, feeds, exported)
        if outputs is not None:
            columns.append(_decision_pairs(found, feeds, outputs, processor))
    if not columns:
        return list(found)
    rule = tasks.decision_rule(exported.task, exported.processing)
    rows = zip(found, *columns, strict=True)
    return [_with_error(rule, each, answers) for each, *answers in rows]


def _raw(each: GoldenCandidate) -> RawInput:
    """The raw input, which lies as the bytes of a file where it was made earlier."""
    if not isinstance(each.raw, bytes) or each.suffix not in (".txt", ".npz"):
        return each.raw
    if each.suffix == ".txt":
        return each.raw.decode()
    with np.load(io.BytesIO(each.raw), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _outputs(
    placed: LocatedArtifact, feeds: Sequence[Feed], exported: Exported
) -> list[Feed | None] | None:
    """What one artifact gives, None for what it fails on; None where it cannot run here."""
    backend = backends.get(placed.artifact.format)
    try:
        session = backend.load(placed.artifact, Path(placed.root))
    except BackendError as error:
        if error.code in UNAVAILABLE:  # it is asked on the device
            return None
        raise
    with session:
        runner = BatchRunner(session, exported.signature, exported.processing.padding)
        return [_run(runner, feed) for feed in feeds]


def _run(runner: BatchRunner, feed: Feed) -> Feed | None:
    try:
        (outputs,) = runner.run([feed])
        return outputs
    except BackendError:
        return None


def _decision_pairs(
    found: Sequence[GoldenCandidate],
    feeds: Sequence[Feed],
    outputs: Sequence[Feed | None],
    processor: Processor,
) -> list[_DecisionPair]:
    """What an artifact decides, and what it would decide if it were three times as far off."""
    pairs: list[_DecisionPair] = []
    for each, feed, given in zip(found, feeds, outputs, strict=True):
        answer = _decide(processor, given, feed)
        single = isinstance(each.record, Classification | Embedding) or not each.outputs
        far = None if single or given is None else _extrapolate(each.outputs, given)
        pairs.append((answer, answer if far is None else _decide(processor, far, feed) or answer))
    return pairs


def _extrapolate(reference: Feed, outputs: Feed) -> Feed:
    """Outputs moved on in their own direction, to `SAFETY_FACTOR` times their distance."""
    return {
        name: reference[name] + np.float32(SAFETY_FACTOR) * (array - reference[name])
        if array.dtype.kind == "f"
        else array
        for name, array in outputs.items()
    }


def _decide(processor: Processor, outputs: Feed | None, feed: Feed) -> Record | None:
    try:
        return None if outputs is None else decision(processor, outputs, feed)
    except ProcessingError:  # of outputs that were moved: a probability beyond 1
        return None


def _with_error(
    rule: DecisionRule, each: GoldenCandidate, pairs: Sequence[_DecisionPair]
) -> GoldenCandidate:
    record = each.record
    answers = [answer for answer, _ in pairs]
    if isinstance(record, Embedding):
        vectors = tuple(a if isinstance(a, Embedding) else None for a in answers)
        return dataclasses.replace(each, answers=vectors)
    if record is None:
        return dataclasses.replace(each, margin=-1.0)
    error = max(answer_drift(rule, record, answer) for answer in answers)
    both, far = (answer for pair in pairs for answer in pair), SAFETY_FACTOR * error
    if not math.isfinite(error) or any(decides_otherwise(rule, record, a, far) for a in both):
        return dataclasses.replace(each, margin=-1.0)
    return dataclasses.replace(each, error=error)
