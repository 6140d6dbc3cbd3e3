"""Checks and the reasons behind them: one name, one code."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeserve.types.artifact import Reason
from edgeserve.types.base import number
from edgeserve.types.reports import Check

__all__ = ["Findings"]

#: Code of the reason that a broken check gives.
_CODES: dict[str, str] = {
    "loads": "EDGE-CHECK-001",
    "runs": "EDGE-CHECK-003",
    "declared": "EDGE-CHECK-004",
    "finite": "EDGE-CHECK-005",
    "reference-finite": "EDGE-CHECK-014",
    "not-constant": "EDGE-CHECK-006",
    "field-moves": "EDGE-CHECK-060",
    "constant-kept": "EDGE-CHECK-061",
    "scores-spread": "EDGE-CHECK-062",
    "batch": "EDGE-CHECK-007",
    "optimizer": "EDGE-CHECK-008",
    "repeatable": "EDGE-CHECK-009",
    "outputs-in-place": "EDGE-CHECK-010",
    "inputs-in-place": "EDGE-CHECK-011",
    "decides": "EDGE-CHECK-013",
    "weights": "EDGE-CHECK-053",
    "weights-8bit": "EDGE-CHECK-053",
}


@dataclass
class Findings:
    """What has been found so far.

    Attributes:
        checks: In the order they were made.
        broken: Reasons of those that do not hold.
        vacuous: Why the reference's outputs prove nothing.
        remarks: What the verdict should be read with, whatever it is.
        notes: What else a reader should know.
    """

    checks: list[Check] = field(default_factory=list)
    broken: list[Reason] = field(default_factory=list)
    vacuous: list[Reason] = field(default_factory=list)
    remarks: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(
        self,
        name: str,
        ok: bool,
        detail: str,
        value: float | None = None,
        limit: float | None = None,
    ) -> bool:
        """Note a check and, where it does not hold, its reason. Returns ``ok``."""
        self.checks.append(
            Check(
                name=name,
                ok=ok,
                detail=detail,
                value=None if value is None else number(value),
                limit=None if limit is None else number(limit),
            )
        )
        if not ok:
            self.broken.append(Reason(code=_CODES[name], message=f"{name}: {detail}"))
        return ok

    def prove_nothing(self, code: str, message: str) -> None:
        """Note that the reference's outputs carry no evidence; the check itself holds."""
        self.vacuous.append(Reason(code=code, message=message))
        self.check("evidence", True, message)

    def remark(self, code: str, message: str) -> None:
        """Note a reason that changes no verdict and stands beside it."""
        self.remarks.append(Reason(code=code, message=message))
