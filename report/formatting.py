"""Formatting of figures, names and statistics; every text of a report goes through this module.

Besides numbers with units: one sentence about an artifact that needs no statistics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from edgeserve import backends, tasks
from edgeserve.types.base import Number, plain
from edgeserve.types.reports import (
    DecisionStats,
    LabelStats,
    MetricStats,
    OutputDiff,
    Report,
    WorstInput,
)
from edgeserve.types.vocabulary import Verdict

VERDICT_WORD: dict[Verdict, str] = {
    "pass": "Pass",
    "degraded": "Degraded",
    "fail": "Fail",
    "unproven": "Unproven",
}

VERDICT_MEANING: dict[Verdict, str] = {
    "pass": "within the limits",
    "degraded": "accuracy loss within the looser limit",
    "fail": "accuracy loss beyond the limit, or broken",
    "unproven": "not run here, or more data needed",
}

#: No-break space, between a figure and its unit.
_NB = "\u00a0"
_TIMES = "\u00a0\u00d7\u00a0"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: Characters that must not be shown: control characters, lone surrogates, and marks that reorder
#: text (they can make "tac" read "cat").
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Replace characters that HTML forbids or that reorder text; the template does the escaping."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shorten(text: str, longest: int = 60) -> str:
    """`clean`, and cut in the middle: both ends of a path carry information."""
    text = clean(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def field_name(diff: OutputDiff, longest: int = 48) -> str:
    """An output with its field, where it has several: "head: scores, channels 4-83"."""
    name = shorten(diff.output, longest)
    return f"{name}: {diff.field}, {clean(diff.part)}" if diff.part else name


def artifact_name(format: str, precision: str) -> str:
    """E.g. "ONNX fp32"."""
    return f"{backends.title(format)} {precision}"


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


def bound(share: Number) -> str:
    """An upper bound in percent, rounded up to two digits: never smaller than the bound itself."""
    value = 100.0 * plain(share)
    if not math.isfinite(value):
        return "unknown"
    if value <= 0.0 or value >= 100.0:
        return percent(share)
    digits = 1 - math.floor(math.log10(value))
    up = math.ceil(round(value * 10**digits, 6)) / 10**digits
    return f"{up:.{max(0, digits)}f}".removesuffix(".0") + f"{_NB}%"


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


#: Titles of figures that any task has whose answers are read from logits.
_FIGURES = {"kl": "mean KL divergence, nats", "kl_worst": "largest KL divergence, nats"}

#: Titles of metrics against true labels, where the short name is unclear.
_METRICS = {"map50": "mAP at IoU 0.5", "map": "mAP at IoU 0.5 to 0.95", "miou": "mIoU", "f1": "F1"}

#: The noun for inputs, by medium; tasks with many decisions an input count their own unit.
_INPUTS = {"image": "photos", "text": "texts"}


def flip_sentence(report: Report) -> str:
    """The flips, the reference's margin there, and the detectable flip rate.

    "3 of 1 000 photos get another label; the reference's margin is at most 0.04 on each of them.
    Detectable flip rate: 0.9 % with 330 independent inputs."
    """
    stats = report.decisions
    if stats is None or not stats.raw.n:
        return ""
    least = f"Detectable flip rate: {percent(stats.minimum_harm)}"
    inputs = plural(stats.groups, "independent input")
    return f"{_flip_clause(stats)}{_margin_clause(stats, report.worst)}. {least} with {inputs}."


def _flip_clause(stats: DecisionStats) -> str:
    schema, entry = tasks.schema(stats.task), tasks.REGISTRY[stats.task]
    many, answer = stats.unit, schema.answer
    if schema.decisions == "one":
        many = _INPUTS.get(entry.medium or "", stats.unit)
    count, of = stats.raw.count, f"{thousands(stats.raw.n)} {many}"
    if not count:
        return f"None of {of} gets another {answer}"
    return f"{thousands(count)} of {of} {'gets' if count == 1 else 'get'} another {answer}"


def _margin_clause(stats: DecisionStats, worst: Sequence[WorstInput]) -> str:
    """The reference's margin where answers flipped; the worst inputs list flipped ones first."""
    margins = [plain(w.margin) for w in worst if w.flipped and w.margin is not None]
    if not stats.raw.count:
        return ""
    if stats.decided.count:
        decided = "is a decided answer" if stats.decided.count == 1 else "are decided answers"
        return f"; {thousands(stats.decided.count)} of them {decided}"
    if margins and len(margins) == stats.raw.count:
        on = "there" if len(margins) == 1 else "on each of them"
        return f"; the reference's margin is at most {max(margins):.2f} {on}"
    return "; none of them is a decided answer"


def accuracy_sentence(stats: LabelStats) -> str:
    """The accuracy of both sides, and a confidence interval of the difference."""
    points = 100 * (plain(stats.artifact) - plain(stats.reference))
    low, high = 100 * plain(stats.lower), 100 * plain(stats.upper)
    return (
        f"correct on {percent(stats.artifact)} of {plural(stats.inputs, 'labelled input')}, the "
        f"reference on {percent(stats.reference)}: {points:+.2f} points, one-sided 95\u00a0% "
        f"bounds {low:+.2f} and {high:+.2f}; {stats.lost} lost, {stats.won} gained "
        f"(p = {plain(stats.p):.2g})"
    )


def metric_title(stats: MetricStats) -> str:
    """The metric's title."""
    return _METRICS.get(stats.metric, stats.metric)


def metric_sentence(stats: MetricStats) -> str:
    """The metric of artifact and reference against true labels."""
    low, high = plain(stats.lower), plain(stats.upper)
    return (
        f"{plain(stats.artifact):.4g} on {plural(stats.inputs, 'labelled input')}, the reference "
        f"{plain(stats.reference):.4g}; one-sided 95\u00a0% bounds of the difference "
        f"{low:+.3g} and {high:+.3g}; {stats.lost} of {plural(stats.groups, 'group')} worse, "
        f"{stats.won} better (p = {plain(stats.p):.2g})"
    )


def task_metrics(stats: DecisionStats) -> list[tuple[str, str]]:
    """Each figure of the task with its value."""
    metrics = tasks.metrics_of(stats.task)
    titles = _FIGURES | dict(metrics.titles if metrics else {})
    return [(titles.get(name, name), scientific(value)) for name, value in stats.figures.items()]
