"""The figures of the corpus as Markdown tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dev.corpus.curves import curve, interval, kinds, onsets, percent, table
from dev.corpus.kinds import KINDS
from dev.corpus.scoring import class_of, score, unseen, untrue

Line = dict[str, Any]
_VERDICTS = ("pass", "degraded", "unproven", "fail", "refused", "crash")
_CLASSES = ("bad", "between", "good")


def summary(lines: Sequence[Line], total: int) -> str:
    """All tables, of the lines that are done out of ``total`` cases."""
    blocks = [
        _done(lines, total),
        _headline(lines),
        onsets(lines),
        _asked(lines),
        _verdicts(lines),
        curve(lines),
        _per("place", lines),
        _per("format", lines),
        _per("precision", lines),
        _per("task", lines),
        kinds(lines),
        _listed("Missed: bad, and not refused", score(lines).missed),
        _listed("False alarms: good, and refused or unproven", score(lines).alarms),
        _listed("Good, and called degraded", score(lines).degraded),
        _time(lines),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _done(lines: Sequence[Line], total: int) -> str:
    """How much is done, and by which code."""
    held = Counter(str(line.get("revision", "unknown")) for line in lines)
    said = [f"`{name}`" if len(held) == 1 else f"`{name}` ({n})" for name, n in held.most_common()]
    word = (
        "revision" if len(held) == 1 else "several revisions, whose figures do not belong together:"
    )
    return f"Done: {len(lines)} of {total} cases, judged by {word} {', '.join(said)}."


def _headline(lines: Sequence[Line]) -> str:
    found = score(lines)
    detected, at_least = found.detected
    alarms, at_most = found.alarm_rate
    passed, kept = unseen(lines, ("pass",)), unseen(lines, ("pass", "degraded", "unproven"))
    rows = [
        ("artifacts judged; kinds of damage", f"{len(lines)}; {len(_kinds(lines))}"),
        (
            "bad: detected",
            f"{found.bad - len(found.missed)} of {found.bad} ({percent(detected)}; "
            f"95 %: at least {percent(at_least)})",
        ),
        (
            "good: false alarms",
            f"{len(found.alarms)} of {found.good} ({percent(alarms)}; "
            f"95 %: at most {percent(at_most)})",
        ),
        ("good: called degraded", len(found.degraded)),
        ("largest accuracy loss that passed", _named(passed)),
        ("largest accuracy loss that was not rejected", _named(kept)),
    ]
    return table(("figure", "value"), rows)


def _kinds(lines: Sequence[Line]) -> set[str]:
    return {line["kind"] for line in lines if class_of(line) != "void"} - {"honest"}


def _named(line: Line | None) -> str:
    return "none" if line is None else f"{interval(line)}, `{line['case']}`"


def _asked(lines: Sequence[Line]) -> str:
    """What the corpus is to hold, and what it holds."""
    found, there = score(lines), _kinds(lines)
    blind = sum(KINDS[kind].blind for kind in there if kind in KINDS)
    rows: list[tuple[object, ...]] = [
        ("kinds of damage", "30", len(there)),
        ("kinds written without knowledge of the gate's code", "a third", blind),
        ("bad artifacts", "200", found.bad),
        ("good artifacts", "300", found.good),
    ]
    for format in sorted({line["format"] for line in lines}):
        one = score(line for line in lines if line["format"] == format)
        rows.append((f"of {format}: bad and good", "some", f"{one.bad} and {one.good}"))
    return "What the corpus holds:\n\n" + table(("of", "at least", "there are"), rows)


def _verdicts(lines: Sequence[Line]) -> str:
    counts: Counter[tuple[str, str]] = Counter((class_of(line), line["verdict"]) for line in lines)
    rows = [(name, *(counts[name, v] for v in _VERDICTS)) for name in _CLASSES]
    stray = Counter(line["verdict"] for line in lines if untrue(line) and class_of(line) == "good")
    rows.append(("good, yet fp32 and beyond 1e-3 of PyTorch", *(stray[v] for v in _VERDICTS)))
    honest = Counter(line["verdict"] for line in lines if line["place"] == "honest")
    rows.append(("honest conversions, whatever their loss", *(honest[v] for v in _VERDICTS)))
    unmeasured = Counter(line["verdict"] for line in lines if class_of(line) == "void")
    rows.append(("no artifact that could be measured", *(unmeasured[v] for v in _VERDICTS)))
    return "Verdicts by the oracle's class:\n\n" + table(("class", *_VERDICTS), rows)


def _per(field: str, lines: Sequence[Line]) -> str:
    rows = []
    for value in dict.fromkeys(line[field] for line in lines):
        found = score(line for line in lines if line[field] == value)
        rows.append(
            (
                value,
                found.bad,
                len(found.missed),
                found.good,
                len(found.alarms),
                len(found.degraded),
            )
        )
    return table((field, "bad", "missed", "good", "false alarms", "degraded"), rows)


def _listed(title: str, lines: Sequence[Line]) -> str:
    if not lines:
        return f"{title}: none."
    rows = [
        (
            f"`{x['case']}`",
            x["value"],
            x["verdict"],
            percent(x["harm"]["share"]),
            percent(x["harm"]["lower"]),
            percent(x["harm"]["upper"]),
            " ".join(x["reasons"]),
            str(x.get("why", ""))[:110].replace("|", "/"),
        )
        for x in lines
    ]
    head = ("case", "severity", "verdict", "loss", "from", "to", "codes", "first reason")
    return f"{title}:\n\n" + table(head, rows)


def _time(lines: Sequence[Line]) -> str:
    def total(pick: Callable[[Line], Any]) -> float:
        return sum(float(pick(line) or 0) for line in lines)

    made, judged = total(lambda x: x.get("make_s")), total(lambda x: x.get("judge_s"))
    measured = total(lambda x: x.get("oracle_s"))
    return (
        f"CPU time: {made:.0f} s to make the artifacts, {judged:.0f} s of the gate, "
        f"{measured:.0f} s of the oracle."
    )
