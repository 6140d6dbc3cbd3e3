"""Figures, names and statistics as people read them: all that a report prints goes through here.

Besides numbers with units, one sentence about an artifact for a reader who knows no statistics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from edgeserve.types.base import Number, plain
from edgeserve.types.reports import (
    DecisionStats,
    LabelStats,
    MetricStats,
    OutputDiff,
    Report,
    WorstInput,
)
from edgeserve.types.vocabulary import Task, Verdict

__all__ = [
    "FORMAT_NAMES",
    "VERDICT_MEANING",
    "VERDICT_WORD",
    "accuracy_sentence",
    "artifact_name",
    "clean",
    "field_name",
    "flip_sentence",
    "join_phrase",
    "mebibytes",
    "metric_sentence",
    "metric_title",
    "milliseconds",
    "percent",
    "plural",
    "scientific",
    "shorten",
    "task_metrics",
    "thousands",
]


FORMAT_NAMES = {"onnx": "ONNX", "tflite": "LiteRT", "coreml": "Core ML", "torch": "PyTorch"}

VERDICT_WORD: dict[Verdict, str] = {
    "pass": "Pass",
    "degraded": "Degraded",
    "fail": "Refused",
    "unproven": "Unproven",
}

VERDICT_MEANING: dict[Verdict, str] = {
    "pass": "proven within limits",
    "degraded": "harm measured, within the looser limit",
    "fail": "harm beyond the limit, or broken",
    "unproven": "not run here, or more data needed",
}

#: No-break space, between a figure and its unit.
_NB = "\u00a0"
_TIMES = "\u00a0\u00d7\u00a0"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: What must not reach a reader's eye: control characters, lone surrogates, and the marks that
#: reorder text (they can make "tac" read "cat").
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Replace what has no place in HTML or reorders text; escaping is the template's part."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shorten(text: str, longest: int = 60) -> str:
    """`clean`, and cut in the middle: both ends of a path say something."""
    text = clean(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def field_name(diff: OutputDiff, longest: int = 48) -> str:
    """An output, and where it holds several things, which: "head: scores, channels 4-83"."""
    name = shorten(diff.output, longest)
    return f"{name}: {diff.field}, {clean(diff.part)}" if diff.part else name


def artifact_name(format: str, precision: str) -> str:
    """E.g. "ONNX fp32"."""
    return f"{FORMAT_NAMES.get(format, format)} {precision}"


def join_phrase(names: Sequence[str]) -> str:
    """Join as in a sentence: "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, one: str, many: str = "") -> str:
    """E.g. "1 input", "412 inputs"."""
    return f"{thousands(count)} {one if count == 1 else many or one + 's'}"


def thousands(count: int) -> str:
    """A whole number with thin spaces: "12 345"."""
    return f"{count:,}".replace(",", "\u202f")


def percent(share: Number) -> str:
    """A share in percent, two or three digits; never "0 %" or "100 %" unless it is exactly that."""
    value = 100.0 * plain(share)
    if not math.isfinite(value):
        return "unknown"
    if value in (0.0, 100.0):
        return f"{value:.0f}{_NB}%"
    if 0.0 < 100.0 - value < 1.0:  # rounded down, as 99.97 must not become 100
        digits = 1 - math.floor(math.log10(100.0 - value))
        down = math.floor(round(value * 10**digits, 6)) / 10**digits
        return f"{f'{down:.{digits}f}'.rstrip('0')}{_NB}%"
    return f"{_rounded(value)}{_NB}%"


def _rounded(value: float, *, keep: bool = False) -> str:
    """Three digits from 10 up, else two; ``keep`` the zeros at the end of a measured figure."""
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    digits = max(0, (2 if size >= 1 else 1) - size)
    text = f"{value:.{digits}f}"
    return text if keep or "." not in text else text.rstrip("0").rstrip(".")


def milliseconds(ms: Number) -> str:
    """A time: "38.0 µs", "9.5 ms", "12.3 s"."""
    value = plain(ms)
    if not math.isfinite(value):
        return "unknown"
    if value >= 10_000.0:
        return f"{_rounded(value / 1e3, keep=True)}{_NB}s"
    if 0.0 < value < 1.0:
        return f"{_rounded(value * 1e3, keep=True)}{_NB}µs"
    return f"{_rounded(value, keep=True)}{_NB}ms"


def mebibytes(mb: Number) -> str:
    """A size given in MiB: "512 KiB", "18.3 MiB", "1.2 GiB"."""
    value = plain(mb)
    if not math.isfinite(value):
        return "unknown"
    if value >= 1024.0:
        return f"{_rounded(value / 1024, keep=True)}{_NB}GiB"
    if 0.0 < value < 0.1:
        return f"{_rounded(value * 1024, keep=True)}{_NB}KiB"
    return f"{_rounded(value, keep=True)}{_NB}MiB"


def scientific(number: Number) -> str:
    """A small difference: "0", "0.012", "3.1 times ten to the minus six"."""
    value = plain(number)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite"
    if value == 0.0 or 0.001 < abs(value) < 10_000.0:
        return _rounded(value)
    mantissa, exponent = f"{value:.1e}".replace(".0e", "e").split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1" else f"{mantissa}{_TIMES}{power}"


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


def flip_sentence(report: Report) -> str:
    """What has changed, how sure the server was there, and what this test would have noticed.

    "3 of 1 000 photos now get another label; the server's lead was below 0.04 on each of them. A
    change of 0.9 % would have shown itself."
    """
    stats = report.decisions
    if stats is None or not stats.raw.n:
        return ""
    shown = f"A change of {percent(stats.minimum_harm)} or more would have shown itself"
    return (
        f"{_flip_clause(stats)}{_margin_clause(stats, report.worst)}. {shown}{_independent(stats)}."
    )


def _flip_clause(stats: DecisionStats) -> str:
    many, answer = _INPUTS.get(stats.task, stats.unit), _ANSWERS.get(stats.task, "answer")
    count, of = stats.raw.count, f"{thousands(stats.raw.n)} {many}"
    if not count:
        return f"None of {of} gets another {answer}"
    return f"{thousands(count)} of {of} now {'gets' if count == 1 else 'get'} another {answer}"


def _margin_clause(stats: DecisionStats, worst: Sequence[WorstInput]) -> str:
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


def accuracy_sentence(stats: LabelStats) -> str:
    """How often each is right, and what is known of the difference."""
    points = 100 * (plain(stats.artifact) - plain(stats.reference))
    low, high = 100 * plain(stats.lower), 100 * plain(stats.upper)
    return (
        f"right on {percent(stats.artifact)} of {plural(stats.inputs, 'labelled input')}, the "
        f"reference on {percent(stats.reference)}: {points:+.2f} points, with 95\u00a0% confidence "
        f"each between {low:+.2f} and {high:+.2f}; {stats.lost} lost, {stats.won} won "
        f"(by chance alone: {percent(stats.p)})"
    )


def metric_title(stats: MetricStats) -> str:
    """The metric's name, for people."""
    return _METRICS.get(stats.metric, stats.metric)


def metric_sentence(stats: MetricStats) -> str:
    """What reference and artifact come to against true labels."""
    low, high = plain(stats.lower), plain(stats.upper)
    return (
        f"{plain(stats.artifact):.4g} on {plural(stats.inputs, 'labelled input')}, the reference "
        f"{plain(stats.reference):.4g}: with 95\u00a0% confidence each between {low:+.3g} and "
        f"{high:+.3g} of it; {stats.lost} of {plural(stats.groups, 'group')} worse, {stats.won} "
        f"better (by chance alone: {percent(stats.p)})"
    )


def task_metrics(stats: DecisionStats) -> list[tuple[str, str]]:
    """Each figure of the task with its value."""
    return [(_FIGURES.get(name, name), scientific(value)) for name, value in stats.figures.items()]
