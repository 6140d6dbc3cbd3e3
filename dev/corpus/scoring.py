"""Which artifacts are bad, which are good, and what the gate made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dev.corpus.oracle.bounds import lower, upper

Line = dict[str, Any]

#: Where a verdict of fail begins, and where one of pass ends: the default profile's limits.
FAIL, PASS = 0.08, 0.02
#: Beyond this with 95 % confidence an artifact is bad.
BAD = 1.5 * FAIL
#: Below this with 95 % confidence an artifact is good.
GOOD = 0.67 * PASS
#: An fp32 file within this of PyTorch, relative to an output's scale, is what fp32 promises.
TRUE = 1e-3

#: Nothing is shipped.
CAUGHT = ("fail", "refused", "crash")
ALARMS = ("fail", "refused", "crash", "unproven", "broken")

Class = Literal["bad", "good", "between", "void"]


def class_of(line: Line) -> Class:
    """The class that the oracle puts a case in, whatever the gate says.

    An fp32 file that breaks fp32's own promise but decides as the reference does is good here:
    harm is what counts (`untrue` finds those).
    """
    harm = line.get("harm")
    if line["verdict"] in ("void", "broken") or harm is None:
        return "void"
    if harm["lower"] > BAD:
        return "bad"
    return "good" if harm["upper"] < GOOD else "between"


def untrue(line: Line) -> bool:
    """An fp32 file that strays further from PyTorch than fp32 may, on equal tensors."""
    return bool(line.get("harm")) and float(line["harm"].get("strays", 0.0)) > TRUE


@dataclass(frozen=True)
class Score:
    """Counts of one set of cases.

    Attributes:
        bad: How many are bad.
        missed: Those of them that were not refused.
        good: How many are good.
        alarms: Those of them that did not pass and are not degraded.
        degraded: Good ones that were called degraded.
    """

    bad: int
    missed: list[Line]
    good: int
    alarms: list[Line]
    degraded: list[Line]

    @property
    def detected(self) -> tuple[float, float]:
        """Share of the bad that was caught, and its lower 95 % bound."""
        caught = self.bad - len(self.missed)
        return (caught / self.bad if self.bad else 1.0), lower(caught, self.bad)

    @property
    def alarm_rate(self) -> tuple[float, float]:
        """Share of the good that raised an alarm, and its upper 95 % bound."""
        count = len(self.alarms)
        return (count / self.good if self.good else 0.0), upper(count, self.good)


def score(lines: Iterable[Line]) -> Score:
    """Count."""
    held = [(class_of(line), line) for line in lines]
    bad = [line for name, line in held if name == "bad"]
    good = [line for name, line in held if name == "good"]
    return Score(
        bad=len(bad),
        missed=[line for line in bad if line["verdict"] not in CAUGHT],
        good=len(good),
        alarms=[line for line in good if line["verdict"] in ALARMS],
        degraded=[line for line in good if line["verdict"] == "degraded"],
    )


def unseen(lines: Sequence[Line], verdicts: Sequence[str]) -> Line | None:
    """The most harmful artifact with one of these verdicts: all that harm more got another."""
    found = [line for line in lines if line.get("harm") and line["verdict"] in verdicts]
    return max(found, key=lambda line: float(line["harm"]["share"]), default=None)
