"""Decisions: how sure a record is, and whether two records decide the same.

What the gate counts, the Wrapper proves and a report shows, one module a task; the table is in
``docs/tasks.md``. A classification is one decision; other records hold many: boxes, pixels, frames,
spans, tokens (`compare`). What an embedding decides is its nearest neighbour in a set:
`edgeserve.tasks.embedding` says which, and by how much; alone it has neither margin nor sameness.
"""

from __future__ import annotations

from edgeserve.errors import ProcessingError
from edgeserve.tasks import classification
from edgeserve.tasks.base import (
    DECIDED_MARGIN,
    DecisionCounts,
    DecisionRule,
    MetricAccumulator,
    TaskSpec,
    attach_arrays,
    count_all_flipped,
    detach_arrays,
    sidecar_arrays,
)
from edgeserve.tasks.classification import CLASSIFICATION
from edgeserve.tasks.dense import DEPTH_ESTIMATION, SEGMENTATION, VOICE_ACTIVITY
from edgeserve.tasks.detection import DETECTION
from edgeserve.tasks.text import SPEECH_RECOGNITION, TEXT_GENERATION
from edgeserve.tasks.token_classification import TOKEN_CLASSIFICATION
from edgeserve.types.processing import Detect, Processing
from edgeserve.types.records import (
    Classification,
    Depth,
    Detection,
    Embedding,
    Record,
    Segmentation,
    Text,
    Tokens,
    Voice,
)
from edgeserve.types.vocabulary import Task

__all__ = [
    "DECIDED_MARGIN",
    "RECORDS",
    "DecisionCounts",
    "DecisionRule",
    "MetricAccumulator",
    "attach_arrays",
    "compare",
    "decided",
    "decision_rule",
    "describe",
    "detach_arrays",
    "gap",
    "has_many_decisions",
    "margin",
    "metrics_for",
    "same",
    "same_top",
    "sidecar_arrays",
    "unit_of",
]

#: The record that each task decides in; "tensors" has none.
RECORDS: dict[Task, type[Record]] = {
    "image-classification": Classification,
    "text-classification": Classification,
    "audio-classification": Classification,
    "object-detection": Detection,
    "image-segmentation": Segmentation,
    "depth-estimation": Depth,
    "feature-extraction": Embedding,
    "token-classification": Tokens,
    "automatic-speech-recognition": Text,
    "voice-activity": Voice,
    "text-generation": Text,
}
_SPECS: dict[type, TaskSpec] = {
    Classification: CLASSIFICATION,
    Detection: DETECTION,
    Segmentation: SEGMENTATION,
    Depth: DEPTH_ESTIMATION,
    Tokens: TOKEN_CLASSIFICATION,
    Text: TEXT_GENERATION,
    Voice: VOICE_ACTIVITY,
}


def decision_rule(task: Task, processing: Processing) -> DecisionRule:
    """How decisions of a model are compared.

    Args:
        task: The model's; the ``tensors`` task has no decisions, and its rule is never used.
        processing: Its packaged processing: a detector's step names the threshold.
    """
    steps = [step for step in processing.outputs if isinstance(step, Detect)]
    threshold = steps[0].threshold if steps else 0.0
    return DecisionRule(task, DECIDED_MARGIN.get(task, 0.0), threshold)


def compare(
    rule: DecisionRule, reference: Record, answer: Record | None, sure: float | None = None
) -> DecisionCounts:
    """Count one input's decisions, and how many of them the answer turns over.

    Args:
        rule: See `decision_rule`.
        reference: What the reference decided.
        answer: What the artifact decided; all flips where it is None, or no such record.
        sure: Margin from which a decision counts as decided; None: the task's own.

    Raises:
        ProcessingError: EDGE-PROCESS-013, an embedding, which decides nothing alone.
    """
    kind = _spec_of(reference, rule)
    limit = rule.sure if sure is None else sure
    if not isinstance(answer, type(reference)):
        return count_all_flipped(kind.compare(rule, reference, reference, limit))
    return kind.compare(rule, reference, answer, limit)


def margin(record: Record, rule: DecisionRule | None = None) -> float | None:
    """How far a record is from flipping: the margin of its surest decision.

    Classification: probability of the best class minus that of the second. A record that keeps its
    best class only gets the least that can be: ``2 * score - 1``, at least 0, since probabilities
    sum to 1. Of boxes it is the best score above the threshold, 0 where there is no box.

    Args:
        record: Of any task.
        rule: See `decision_rule`; None: that of a detector whose threshold is 0.

    Returns:
        The margin; None for an embedding, which has one only among others.
    """
    if isinstance(record, Embedding):
        return None
    rule = rule or _default_rule(record)
    return _spec_of(record, rule).margin(rule, record)


def decided(record: Record, rule: DecisionRule | None = None) -> bool:
    """Whether any decision is sure enough that a flip is harm (`DECIDED_MARGIN`).

    An embedding alone decides nothing.
    """
    rule = rule or _default_rule(record)
    sure = margin(record, rule)
    return sure is not None and sure >= rule.sure


def same(reference: Record, answer: Record, rule: DecisionRule | None = None) -> bool:
    """Whether no decision flips; of classifications, whether the best class is the same.

    Raises:
        ProcessingError: EDGE-PROCESS-013, one is an embedding, or they are of different tasks.
    """
    _check_pair(reference, answer)
    return compare(rule or _default_rule(reference), reference, answer).flips == 0


def same_top(reference: Record, answer: Record, k: int = 5) -> bool:
    """Whether the best ``k`` classes of two classifications are the same, in any order.

    Compared by index where both know them, else by label. Where one of the records keeps fewer than
    ``k``, as many as both keep.

    Raises:
        ProcessingError: EDGE-PROCESS-013, one is no classification.
    """
    for record in (reference, answer):
        if not isinstance(record, Classification):
            raise _refused(record, "a Classification")
    assert isinstance(reference, Classification)
    assert isinstance(answer, Classification)
    return classification.same_top(reference, answer, k)


def gap(rule: DecisionRule, reference: Record | None, answer: Record | None) -> float:
    """How far an answer moves the reference's decisions, in the measure of margins.

    Largest difference of a score, over what both have; of pixels see ``docs/tasks.md``. 0 where
    there is nothing to compare, and for embeddings.
    """
    if reference is None or isinstance(reference, Embedding):
        return 0.0
    if not isinstance(answer, type(reference)):
        return 0.0
    return _spec_of(reference, rule).gap(rule, reference, answer)


def describe(record: Record) -> str:
    """A decision in a few words for people: "Egyptian cat 0.83", "vector of 384"."""
    if isinstance(record, Embedding):
        return f"vector of {record.vector.size}"
    return _SPECS[type(record)].describe(record)


def has_many_decisions(task: Task) -> bool:
    """Whether a record of the task holds many decisions, each for itself."""
    return RECORDS.get(task) not in (None, Classification, Embedding)


def unit_of(task: Task) -> str:
    """What is counted: "inputs", "boxes", "pixels", ..."""
    record = RECORDS.get(task)
    return _SPECS[record].unit if record in _SPECS else "inputs"


def metrics_for(rule: DecisionRule) -> MetricAccumulator | None:
    """Gathers the task's own figures over all inputs; None where it has none."""
    record = RECORDS.get(rule.task)
    if record not in _SPECS:
        return None
    make = (
        SPEECH_RECOGNITION if rule.task == "automatic-speech-recognition" else _SPECS[record]
    ).figures
    return make(rule) if make else None


def _spec_of(record: Record, rule: DecisionRule) -> TaskSpec:
    if isinstance(record, Text) and rule.task == "automatic-speech-recognition":
        return SPEECH_RECOGNITION
    if (kind := _SPECS.get(type(record))) is None:
        raise _refused(record, "a record that decides by itself")
    return kind


def _default_rule(record: Record) -> DecisionRule:
    """The rule of a record of which nothing else is known."""
    task = next(task for task, kind in RECORDS.items() if isinstance(record, kind))
    return decision_rule("text-generation" if isinstance(record, Text) else task, Processing())


def _check_pair(reference: Record, answer: Record) -> None:
    for record in (reference, answer):
        if isinstance(record, Embedding):
            raise _refused(record, "a record that decides by itself")
    if type(reference) is not type(answer):
        raise _refused(answer, f"a {type(reference).__name__}")


def _refused(record: Record, wanted: str) -> ProcessingError:
    alone = isinstance(record, Embedding)
    return ProcessingError(
        "EDGE-PROCESS-013",
        "decision",
        wanted=wanted,
        got="one Embedding, which decides nothing alone" if alone else f"a {type(record).__name__}",
        hint="compare the nearest neighbours in a set of at least three (edgeserve.tasks.embedding)"
        if alone
        else "compare records of one task",
    )
