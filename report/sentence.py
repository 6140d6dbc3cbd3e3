"""One sentence about one artifact, for a reader who knows no statistics."""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.report.words import percent, plural, scientific, thousands
from edgeserve.types.base import plain
from edgeserve.types.reports import DecisionStats, LabelStats, MetricStats, Report, WorstInput
from edgeserve.types.words import Task

__all__ = ["figures_said", "labels_said", "metric_called", "metric_said", "sentence"]

#: What a figure of a task is called, against the reference's own decisions.
_FIGURES = {
    "map50": "mean average precision (overlap of half)",
    "iou": "mean overlap of matched boxes",
    "miou": "mean overlap of classes (mIoU)",
    "agreement": "share that agrees",
    "abs_rel": "mean relative error",
    "f1": "F1 of spans",
    "wer": "word errors a word",
    "kl": "mean divergence of the probabilities, nats",
    "kl_worst": "worst divergence, nats",
}

#: What a metric against true labels is called, where its short name says too little.
_METRICS = {
    "map50": "mAP at an overlap of 0.5",
    "map": "mAP over overlaps 0.5 to 0.95",
    "miou": "mIoU",
    "f1": "F1",
}

#: What one input is called; tasks that decide many things at once count those.
_INPUTS: dict[Task, str] = {"image-classification": "photos", "text-classification": "texts"}
_ANSWERS: dict[Task, str] = {
    "image-classification": "label",
    "text-classification": "label",
    "audio-classification": "label",
    "feature-extraction": "nearest neighbour",
}


def sentence(report: Report) -> str:
    """What has changed, how sure the server was there, and what this test would have noticed.

    "3 of 1 000 photos now get another label; the server's lead was below 0.04 on each of them. A
    change of 0.9 % would have shown itself."
    """
    stats = report.decisions
    if stats is None or not stats.raw.n:
        return ""
    shown = f"A change of {percent(stats.minimum_harm)} or more would have shown itself"
    return f"{_changed(stats)}{_how_sure(stats, report.worst)}. {shown}{_independent(stats)}."


def _changed(stats: DecisionStats) -> str:
    many, answer = _INPUTS.get(stats.task, stats.unit), _ANSWERS.get(stats.task, "answer")
    count, of = stats.raw.count, f"{thousands(stats.raw.n)} {many}"
    if not count:
        return f"None of {of} gets another {answer}"
    return f"{thousands(count)} of {of} now {'gets' if count == 1 else 'get'} another {answer}"


def _how_sure(stats: DecisionStats, worst: Sequence[WorstInput]) -> str:
    """The server's own lead where answers changed; worst inputs list changed ones first."""
    margins = [plain(w.margin) for w in worst if w.flipped and w.margin is not None]
    if not stats.raw.count:
        return ""
    if stats.decided.count:
        clear = "was a clear answer" if stats.decided.count == 1 else "were clear answers"
        return f"; {thousands(stats.decided.count)} of them {clear}"
    if margins and len(margins) == stats.raw.count:
        on = "there" if len(margins) == 1 else "on each of them"
        return f"; the server's lead was at most {max(margins):.2f} {on}"
    return "; none of them was a clear answer"


def _independent(stats: DecisionStats) -> str:
    return f", with {plural(stats.groups, 'independent input')}"


def labels_said(stats: LabelStats) -> str:
    """How often each is right, and what is known of the difference."""
    points = 100 * (plain(stats.artifact) - plain(stats.reference))
    low, high = 100 * plain(stats.lower), 100 * plain(stats.upper)
    return (
        f"right on {percent(stats.artifact)} of {plural(stats.inputs, 'labelled input')}, the "
        f"reference on {percent(stats.reference)}: {points:+.2f} points, with 95\u00a0% confidence "
        f"each between {low:+.2f} and {high:+.2f}; {stats.lost} lost, {stats.won} won "
        f"(by chance alone: {percent(stats.p)})"
    )


def metric_called(stats: MetricStats) -> str:
    """The metric's name, for people."""
    return _METRICS.get(stats.metric, stats.metric)


def metric_said(stats: MetricStats) -> str:
    """What reference and artifact come to against true labels."""
    low, high = plain(stats.lower), plain(stats.upper)
    return (
        f"{plain(stats.artifact):.4g} on {plural(stats.inputs, 'labelled input')}, the reference "
        f"{plain(stats.reference):.4g}: with 95\u00a0% confidence each between {low:+.3g} and "
        f"{high:+.3g} of it; {stats.lost} of {plural(stats.groups, 'group')} worse, {stats.won} "
        f"better (by chance alone: {percent(stats.p)})"
    )


def figures_said(stats: DecisionStats) -> list[tuple[str, str]]:
    """Each figure of the task with its value."""
    return [(_FIGURES.get(name, name), scientific(value)) for name, value in stats.figures.items()]
