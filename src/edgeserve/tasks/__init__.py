"""Tasks and their decisions: how sure a record is, and whether two records decide the same.

One folder a task, and one line in `REGISTRY`. The folder itself holds what JSON needs: the record,
the output steps that read it, true answers, and its `TaskSchema`, called ``SCHEMA``. Its parts are
loaded when they are needed: a Wrapper loads what reads and compares the records of its own model,
and no metric. Each is a module of its name, or the two kinds lie in ``device`` and ``gate``:

- on devices too: ``read`` makes records of a model's outputs (``reader``); ``compare`` counts
  decisions and tells margins (``COMPARISON``);
- in validation alone: ``metrics`` (``METRICS``), ``answers`` of a user's reference (``ANSWERS``).

What the gate counts, the Wrapper proves and a report shows; the table of tasks is in
``spec/tasks.md``. A classification is one decision; other records hold many: boxes, pixels, frames,
spans, tokens (`compare`). What an embedding decides is its nearest neighbour in a set:
`edgeserve.tasks.embedding` says which, and by how much; alone it has neither margin nor sameness.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from edgeserve.errors import ProcessingError
from edgeserve.tasks.base import (
    BoxMark,
    DecisionCounts,
    DecisionRule,
    RecordComparison,
    TaskSchema,
    attach_arrays,
    count_all_flipped,
    detach_arrays,
    sidecar_arrays,
)
from edgeserve.types.records import Record

if TYPE_CHECKING:
    from edgeserve.tasks.answers import ReferenceAnswers
    from edgeserve.tasks.metrics import MetricAccumulator, TaskMetrics
    from edgeserve.types.processing import Processing
    from edgeserve.types.vocabulary import Task

__all__ = [
    "REGISTRY",
    "DecisionCounts",
    "DecisionRule",
    "TaskEntry",
    "TaskSchema",
    "answers_of",
    "attach_arrays",
    "class_of",
    "compare",
    "comparison",
    "decided",
    "decides",
    "decision_rule",
    "describe",
    "detach_arrays",
    "details",
    "gap",
    "has_many_decisions",
    "least_score",
    "margin",
    "marks",
    "metrics_for",
    "metrics_of",
    "needs_neighbours",
    "own_decision",
    "part",
    "same",
    "same_top",
    "schema",
    "sidecar_arrays",
    "sure_margin",
    "unit_of",
]


class TaskEntry(NamedTuple):
    """Where the code of a task lies, and what its model is given.

    Attributes:
        folder: Below `edgeserve.tasks`; several tasks may share one.
        medium: "image", "audio" or "text"; None: any, or tensors.
    """

    folder: str
    medium: str | None = None


#: All tasks with decisions; a model of the task "tensors" has none.
REGISTRY: Final[dict[Task, TaskEntry]] = {
    "image-classification": TaskEntry("classification", "image"),
    "text-classification": TaskEntry("classification", "text"),
    "audio-classification": TaskEntry("classification", "audio"),
    "object-detection": TaskEntry("detection", "image"),
    "image-segmentation": TaskEntry("segmentation", "image"),
    "depth-estimation": TaskEntry("depth", "image"),
    "feature-extraction": TaskEntry("embedding"),
    "token-classification": TaskEntry("token_classification", "text"),
    "automatic-speech-recognition": TaskEntry("speech_recognition", "audio"),
    "voice-activity": TaskEntry("voice_activity", "audio"),
    "text-generation": TaskEntry("text_generation", "text"),
    "keypoint-detection": TaskEntry("keypoints", "image"),
}


#: The module of each part; a folder with little in it holds several parts in one.
_TOGETHER = {
    "read": "device",
    "compare": "device",
    "metrics": "gate",
    "answers": "gate",
    "truth": "gate",
}


@cache
def part(task: Task, name: str) -> Any:
    """The module that holds a part of a task; None where its folder has no such module."""
    for module in (f"{_folder(task)}.{name}", f"{_folder(task)}.{_TOGETHER[name]}"):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    return None


def schema(task: Task) -> TaskSchema:
    """What is known of a task with decisions before anything is read or compared."""
    found: TaskSchema = import_module(_folder(task)).SCHEMA
    return found


def _folder(task: Task) -> str:
    return f"{__name__}.{REGISTRY[task].folder}"


def decides(task: Task) -> bool:
    """Whether the task has decisions: all but "tensors" do."""
    return task in REGISTRY


def sure_margin(task: Task) -> float:
    """The margin from which a decision counts as decided: a flip is then an error. 0 of tensors."""
    return schema(task).sure if decides(task) else 0.0


def decision_rule(task: Task, processing: Processing) -> DecisionRule:
    """How decisions of a model are compared.

    Args:
        task: The model's; the ``tensors`` task has no decisions, and its rule is never used.
        processing: Its packaged processing: a detector's step names the threshold.
    """
    step = processing.task_output
    return DecisionRule(task, sure_margin(task), step.least_score if step else 0.0)


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
    if not _decides_alone(reference):
        raise _wrong_record(reference, "a record that decides by itself")
    kind = comparison(reference, rule)
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
    rule = rule or _default_rule(record)
    return comparison(record, rule).margin(rule, record) if _decides_alone(record) else None


def decided(record: Record, rule: DecisionRule | None = None) -> bool:
    """Whether any decision is decided, so that a flip is an error (`TaskSchema.sure`).

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
    for record in (reference, answer):
        if not _decides_alone(record):
            raise _wrong_record(record, "a record that decides by itself")
    if type(reference) is not type(answer):
        raise _wrong_record(answer, f"a {type(reference).__name__}")
    return compare(rule or _default_rule(reference), reference, answer).flips == 0


def same_top(reference: Record, answer: Record, k: int = 5) -> bool:
    """Whether the best ``k`` classes of two classifications are the same, in any order.

    Compared by index where both know them, else by label. Where one of the records keeps fewer than
    ``k``, as many as both keep.

    Raises:
        ProcessingError: EDGE-PROCESS-013, one is no classification.
    """
    from edgeserve.tasks.classification import Classification
    from edgeserve.tasks.classification.device import same_top as same_best

    for record in (reference, answer):
        if not isinstance(record, Classification):
            raise _wrong_record(record, "a Classification")
    assert isinstance(reference, Classification)
    assert isinstance(answer, Classification)
    return same_best(reference, answer, k)


def gap(rule: DecisionRule, reference: Record | None, answer: Record | None) -> float:
    """How far an answer moves the reference's decisions, in the measure of margins.

    Largest difference of a score, over what both have; of pixels see ``spec/tasks.md``. 0 where
    there is nothing to compare, and for embeddings.
    """
    if reference is None or not isinstance(answer, type(reference)):
        return 0.0
    return comparison(reference, rule).gap(rule, reference, answer)


def describe(record: Record) -> str:
    """A decision in a few words for people: "Egyptian cat 0.83", "vector of 384"."""
    return comparison(record).describe(record)


def details(record: Record) -> list[str]:
    """What more there is to say of it, a line each: further classes, boxes with corners, spans."""
    return comparison(record).details(record)


def least_score(record: Record | None) -> float | None:
    """The least score of what a record lists; None where it lists nothing by score."""
    return None if record is None else comparison(record).least_score(record)


def marks(record: Record) -> list[BoxMark]:
    """Boxes to draw on the picture; none where an answer has no place in it."""
    return comparison(record).marks(record)


def class_of(record: Record | None) -> object:
    """What sets classes of records apart; the same for everything else."""
    return None if record is None else comparison(record).class_of(record)


def has_many_decisions(task: Task) -> bool:
    """Whether a record of the task holds many decisions, each for itself."""
    return decides(task) and schema(task).decisions == "many"


def needs_neighbours(task: Task) -> bool:
    """Whether a record of the task decides only among others."""
    return decides(task) and schema(task).decisions == "neighbours"


def metrics_for(rule: DecisionRule) -> MetricAccumulator | None:
    """Gathers the task's own figures over all inputs; None where it has none."""
    found = metrics_of(rule.task)
    return found.figures(rule) if found and found.figures else None


def answers_of(task: Task) -> ReferenceAnswers | None:
    """How a user's reference may answer; None of tensors."""
    return cast("ReferenceAnswers", part(task, "answers").ANSWERS) if decides(task) else None


def own_decision(record: Record, scored: bool) -> object:
    """A decision without what an exported program adds to a server's: margins, scores of a label.

    Args:
        record: Of any task.
        scored: The server told its scores.
    """
    return cast("ReferenceAnswers", part(_task_of(type(record)), "answers").ANSWERS).own(
        record, scored
    )


def metrics_of(task: Task) -> TaskMetrics | None:
    """The task's metrics; None where it has none but flips."""
    found = part(task, "metrics") if decides(task) else None
    return getattr(found, "METRICS", None)


def unit_of(task: Task) -> str:
    """What is counted: "inputs", "boxes", "pixels", ..."""
    return schema(task).unit if decides(task) else "inputs"


def comparison(record: Record, rule: DecisionRule | None = None) -> RecordComparison:
    """What compares records like this one.

    Args:
        record: Of any task.
        rule: Whose task counts where tasks share a record; None: the task that the record is of.
    """
    task = rule.task if rule else None
    if task is None or not decides(task) or schema(task).record is not type(record):
        task = _task_of(type(record))
    found: RecordComparison = part(task, "compare").COMPARISON
    return found


@cache
def _task_of(kind: type[Record]) -> Task:
    """The first task whose folder defines a record."""
    return next(task for task in REGISTRY if _folder(task) == kind.__module__)


def _decides_alone(record: Record) -> bool:
    return schema(_task_of(type(record))).decisions != "neighbours"


def _default_rule(record: Record) -> DecisionRule:
    """The rule of a record of which nothing else is known."""
    task = _task_of(type(record))
    return DecisionRule(task, sure_margin(task))


def _wrong_record(record: Record, wanted: str) -> ProcessingError:
    alone = not _decides_alone(record)
    return ProcessingError(
        "EDGE-PROCESS-013",
        "decision",
        wanted=wanted,
        got="one Embedding, which decides nothing alone" if alone else f"a {type(record).__name__}",
        hint="compare the nearest neighbours in a set of at least three (edgeserve.tasks.embedding)"
        if alone
        else "compare records of one task",
    )
