"""Detection against measured accuracy loss: over all, by kind, and where it becomes certain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dev.corpus.oracle.bounds import lower, upper
from dev.corpus.scoring import BAD, CAUGHT, FAIL, GOOD, class_of, score, unseen

Line = dict[str, Any]
_BINS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1.0001)
_COARSE = (0.0, GOOD, FAIL, BAD, 0.2, 0.5, 1.0001)
_NOT_PASSED = (*CAUGHT, "unproven", "degraded")


def percent(x: float) -> str:
    """E.g. "9.38 %"."""
    return f"{100 * x:.3g} %"


def interval(line: Line | None) -> str:
    """Harm of an artifact with the oracle's own bounds; "-" of none."""
    if line is None:
        return "-"
    harm = line["harm"]
    return f"{percent(harm['share'])} ({percent(harm['lower'])} to {percent(harm['upper'])})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    made = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    made += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(made)


@dataclass(frozen=True)
class Onset:
    """From which harm on every artifact got one of some verdicts.

    Attributes:
        least: The least harmful artifact of those; None: there is none.
        beyond: How many did as much harm or more.
        at_least: With 95 % confidence this share of all such artifacts gets such a verdict.
    """

    least: Line | None
    beyond: int
    at_least: float


def onset(lines: Sequence[Line], verdicts: Sequence[str]) -> Onset:
    """Where certainty begins: beyond the most harmful artifact with another verdict."""
    held = [line for line in lines if class_of(line) != "void"]
    others = [_share(line) for line in held if line["verdict"] not in verdicts]
    beyond = [line for line in held if _share(line) > max(others, default=-1.0)]
    least = min(beyond, key=_share, default=None)
    return Onset(least, len(beyond), lower(len(beyond), len(beyond)))


def _share(line: Line) -> float:
    return float(line["harm"]["share"])


def onsets(lines: Sequence[Line]) -> str:
    """The smallest accuracy loss that is always detected, and the rate of false alarms."""
    good = [line for line in lines if class_of(line) == "good"]
    rows = []
    for word, verdicts in (("rejected", CAUGHT), ("does not pass", _NOT_PASSED)):
        found = onset(lines, verdicts)
        alarms = sum(line["verdict"] in verdicts for line in good)
        most = upper(alarms, len(good))
        rows.append(
            (
                word,
                f"{alarms} of {len(good)} (95 %: at most {percent(most)})",
                interval(found.least),
                f"all {found.beyond}",
                percent(found.at_least),
            )
        )
    head = (
        "an artifact",
        "good ones, falsely",
        "all are, from an accuracy loss of",
        "artifacts",
        "of such, 95 %: at least",
    )
    return "The smallest accuracy loss that is always detected:\n\n" + table(head, rows)


def curve(lines: Sequence[Line]) -> str:
    """Detection in bins of harm."""
    rows = []
    for low, high, held in _binned(lines, _BINS):
        caught, n = sum(line["verdict"] in CAUGHT for line in held), len(held)
        kept = sum(line["verdict"] == "pass" for line in held)
        if n:
            rows.append(
                (
                    f"{percent(low)} to {percent(min(high, 1.0))}",
                    n,
                    f"{percent(caught / n)} ({percent(lower(caught, n))} to "
                    f"{percent(upper(caught, n))})",
                    percent(kept / n),
                )
            )
    head = ("measured accuracy loss", "artifacts", "rejected (95 % bounds)", "passed")
    return "Detection against measured accuracy loss:\n\n" + table(head, rows)


def _binned(lines: Sequence[Line], edges: Sequence[float]) -> list[tuple[float, float, list[Line]]]:
    held = [line for line in lines if class_of(line) != "void"]
    return [
        (low, high, [line for line in held if low <= _share(line) < high])
        for low, high in itertools.pairwise(edges)
    ]


def kinds(lines: Sequence[Line]) -> str:
    """Detection of each kind in coarser bins: refused of how many."""
    rows = []
    for kind in sorted({line["kind"] for line in lines} - {"honest"}):
        held = [line for line in lines if line["kind"] == kind and class_of(line) != "void"]
        if held:
            rows.append(_kind(kind, held))
    head = (
        "kind",
        "where",
        *_heads(),
        "missed",
        "alarms",
        "least loss rejected",
        "largest loss kept",
    )
    title = (
        "Detection of each kind against measured accuracy loss (rejected of how many; the loss "
        "with the oracle's bounds):"
    )
    return f"{title}\n\n" + table(head, rows)


def _heads() -> list[str]:
    inner = [f"to {percent(high)}" for high in _COARSE[1:-1]]
    return [*inner, "more"]


def _kind(kind: str, held: Sequence[Line]) -> tuple[object, ...]:
    found, kept = score(held), unseen(held, ("pass", "degraded", "unproven"))
    least = min((x for x in held if x["verdict"] in CAUGHT), key=_share, default=None)
    cells = [
        _counted(each, lambda line: line["verdict"] in CAUGHT)
        for _, _, each in _binned(held, _COARSE)
    ]
    return (
        kind,
        held[0]["place"],
        *cells,
        len(found.missed),
        len(found.alarms),
        interval(least),
        interval(kept),
    )


def _counted(lines: Sequence[Line], wanted: Callable[[Line], bool]) -> str:
    return f"{sum(map(wanted, lines))}/{len(lines)}" if lines else ""
