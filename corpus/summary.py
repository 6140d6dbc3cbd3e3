"""The figures of the corpus as Markdown tables."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from corpus.oracle.bounds import lower, upper
from corpus.scoring import CAUGHT, class_of, score, unseen, untrue

__all__ = ["summary"]

Line = dict[str, Any]
_VERDICTS = ("pass", "degraded", "unproven", "fail", "refused", "crash")
_CLASSES = ("bad", "between", "good")
_BINS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1.0001)


def summary(lines: Sequence[Line], total: int) -> str:
    """All tables, of the lines that are done out of ``total`` cases."""
    blocks = [
        f"Done: {len(lines)} of {total} cases.", _headline(lines), _verdicts(lines),
        _curve(lines), _per("place", lines),
        _per("format", lines), _per("precision", lines), _per("task", lines), _kinds(lines),
        _listed("Missed: bad, and not refused", score(lines).missed),
        _listed("False alarms: good, and refused or unproven", score(lines).alarms),
        _listed("Good, and called degraded", score(lines).degraded), _time(lines),
    ]  # fmt: skip
    return "\n\n".join(block for block in blocks if block) + "\n"


def _percent(x: float) -> str:
    return f"{100 * x:.3g} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    made = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    made += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(made)


def _headline(lines: Sequence[Line]) -> str:
    found = score(lines)
    kinds = {line["kind"] for line in lines if class_of(line) != "void"} - {"honest"}
    detected, at_least = found.detected
    alarms, at_most = found.alarm_rate
    passed, kept = unseen(lines, ("pass",)), unseen(lines, ("pass", "degraded", "unproven"))
    rows = [
        ("artifacts judged; kinds of damage", f"{len(lines)}; {len(kinds)}"),
        ("bad: detected", f"{found.bad - len(found.missed)} of {found.bad} ({_percent(detected)}; "
                          f"95 %: at least {_percent(at_least)})"),
        ("good: false alarms", f"{len(found.alarms)} of {found.good} ({_percent(alarms)}; "
                               f"95 %: at most {_percent(at_most)})"),
        ("good: called degraded", len(found.degraded)),
        ("most harm that passed", _harm(passed)),
        ("most harm that was not refused", _harm(kept)),
    ]  # fmt: skip
    return _table(("figure", "value"), rows)


def _harm(line: Line | None) -> str:
    if line is None:
        return "none"
    harm = line["harm"]
    return (f"{_percent(harm['share'])} ({_percent(harm['lower'])} to {_percent(harm['upper'])}), "
            f"`{line['case']}`")  # fmt: skip


def _verdicts(lines: Sequence[Line]) -> str:
    counts: Counter[tuple[str, str]] = Counter((class_of(line), line["verdict"]) for line in lines)
    rows = [(name, *(counts[name, v] for v in _VERDICTS)) for name in _CLASSES]
    stray = Counter(line["verdict"] for line in lines if untrue(line) and class_of(line) == "good")
    rows.append(("good, yet fp32 and beyond 1e-3 of PyTorch", *(stray[v] for v in _VERDICTS)))
    honest = Counter(line["verdict"] for line in lines if line["place"] == "honest")
    rows.append(("honest conversions, whatever their harm", *(honest[v] for v in _VERDICTS)))
    return "Verdicts by the oracle's class:\n\n" + _table(("class", *_VERDICTS), rows)


def _curve(lines: Sequence[Line]) -> str:
    rows = []
    for low, high in itertools.pairwise(_BINS):
        held = [line for line in lines
                if class_of(line) != "void" and low <= line["harm"]["share"] < high]  # fmt: skip
        if held:
            caught = sum(line["verdict"] in CAUGHT for line in held)
            kept = sum(line["verdict"] == "pass" for line in held)
            n = len(held)
            rows.append((f"{_percent(low)} to {_percent(min(high, 1.0))}", n,
                         f"{_percent(caught / n)} ({_percent(lower(caught, n))} to "
                         f"{_percent(upper(caught, n))})", _percent(kept / n)))  # fmt: skip
    head = ("measured harm", "artifacts", "refused (95 % bounds)", "passed")
    return "Detection against measured harm:\n\n" + _table(head, rows)


def _per(field: str, lines: Sequence[Line]) -> str:
    rows = []
    for value in dict.fromkeys(line[field] for line in lines):
        found = score(line for line in lines if line[field] == value)
        rows.append((value, found.bad, len(found.missed), found.good, len(found.alarms),
                     len(found.degraded)))  # fmt: skip
    return _table((field, "bad", "missed", "good", "false alarms", "degraded"), rows)


def _kinds(lines: Sequence[Line]) -> str:
    rows = []
    for kind in sorted({line["kind"] for line in lines} - {"honest"}):
        held = [line for line in lines if line["kind"] == kind and class_of(line) != "void"]
        if not held:
            continue
        found, kept = score(held), unseen(held, ("pass", "degraded", "unproven"))
        caught = [float(x["harm"]["share"]) for x in held if x["verdict"] in CAUGHT]
        rows.append((
            kind, held[0]["place"], len(held), found.bad, len(found.missed),
            found.good, len(found.alarms), _percent(min(caught)) if caught else "-",
            _percent(kept["harm"]["share"]) if kept else "-",
        ))  # fmt: skip
    head = ("kind", "where", "cases", "bad", "missed", "good", "alarms", "least harm refused",
            "most harm kept")  # fmt: skip
    return _table(head, rows)


def _listed(title: str, lines: Sequence[Line]) -> str:
    if not lines:
        return f"{title}: none."
    rows = [(f"`{x['case']}`", x["value"], x["verdict"], _percent(x["harm"]["share"]),
             _percent(x["harm"]["lower"]), _percent(x["harm"]["upper"]),
             " ".join(x["reasons"]), str(x.get("why", ""))[:110].replace("|", "/"))
            for x in lines]  # fmt: skip
    head = ("case", "severity", "verdict", "harm", "from", "to", "codes", "first reason")
    return f"{title}:\n\n" + _table(head, rows)


def _time(lines: Sequence[Line]) -> str:
    def total(pick: Callable[[Line], Any]) -> float:
        return sum(float(pick(line) or 0) for line in lines)

    made, judged = total(lambda x: x.get("make_s")), total(lambda x: x.get("judge_s"))
    measured = total(lambda x: x.get("oracle_s"))
    return (f"CPU time: {made:.0f} s to make the artifacts, {judged:.0f} s of the gate, "
            f"{measured:.0f} s of the oracle.")  # fmt: skip
