"""Taking the best candidate whose proof holds, tier by tier, and saying what was passed over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgeserve.backends import Session
from edgeserve.errors import BundleError, EdgeError, WrapperError, revive
from edgeserve.machine import machine_error
from edgeserve.types.manifest import Manifest
from edgeserve.wrapper.engine import ProbeOutcome
from edgeserve.wrapper.plans import ExecutionPlan, PlanTiers, fastest
from edgeserve.wrapper.prober import Prober


@dataclass(frozen=True)
class Selection:
    """What the Wrapper will run.

    Attributes:
        candidate: Artifact, delegate and threads.
        session: Open.
        proof: "golden", or "none" where there are no golden cases.
        note: What a caller should know: the better choices that were not taken, and why.
    """

    candidate: ExecutionPlan
    session: Session
    proof: str
    note: str


def select(manifest: Manifest, field: PlanTiers, attempts: Prober, strict: bool) -> Selection:
    """Choose among the candidates of ``field`` and open what is chosen.

    Raises:
        WrapperError: EDGE-WRAPPER-001 when nothing can be used, -004 when strict forbids what can.
        BundleError: the bundle's bytes do not match their hashes.
        EdgeError: the machine failed where strict, or the want of anything else, needs an answer.
    """
    if not field.tiers:
        raise _nothing_usable(manifest, [str(left) for left in field.passed_over])
    if strict and field.missed:
        raise _strict_error(manifest, map(str, field.missed))
    picker = _Selector(manifest, field, attempts)
    if manifest.golden is None or not manifest.golden.cases:
        return picker.select_unproven(strict)
    return picker.select_strict() if strict else picker.select_best()


class _Selector:
    """The way through the candidates, remembering what was passed over on it."""

    def __init__(self, manifest: Manifest, field: PlanTiers, attempts: Prober) -> None:
        self._manifest, self._field, self._attempts = manifest, field, attempts
        self._left = [str(left) for left in dict.fromkeys((*field.missed, *field.unknown))]
        self._faults: list[EdgeError] = []  # of the machine

    def select_unproven(self, strict: bool) -> Selection:
        """Without golden cases: the first that opens; there is nothing to compare by."""
        if strict:
            reason = "the bundle has no golden cases, so nothing can be proven here"
            raise _strict_error(self._manifest, [reason])
        for candidate in (c for tier in self._field.tiers for c in tier):
            if self._attempts.isolated:
                outcomes = self._attempts.outcomes([candidate])
                if reasons := _reasons([candidate], outcomes):
                    self._left += reasons
                    continue
            if chosen := self._open(candidate, "none"):
                return chosen
        raise self._nothing()

    def select_strict(self) -> Selection:
        """Every candidate of the first tier must hold; what crashed before is tried again."""
        tier = self._field.tiers[0]
        outcomes = self._outcomes(tier, again=True)
        if self._faults:
            raise self._faults[0]
        if any(outcomes[c.key].state != "accepted" for c in tier):
            raise _strict_error(self._manifest, _reasons(tier, outcomes))
        best, _ = fastest([(c, outcomes[c.key]) for c in tier])
        if chosen := self._open(best, "golden"):
            return chosen
        raise next(iter(self._faults), _strict_error(self._manifest, self._left))

    def select_best(self) -> Selection:
        """Tier by tier the fastest that holds; only then what crashed or hung before, once more."""
        demoted: list[ExecutionPlan] = []
        for tier in self._field.tiers:
            outcomes = self._outcomes(tier)
            if chosen := self._fastest(tier, outcomes):
                return chosen
            self._left += _reasons(tier, outcomes)
            demoted += [c for c in tier if outcomes[c.key].state in ("crashed", "hung")]
        for candidate in demoted:
            outcomes = self._outcomes([candidate], again=True)
            if chosen := self._fastest([candidate], outcomes):
                return chosen
        raise self._nothing()

    def _outcomes(
        self, tier: Sequence[ExecutionPlan], again: bool = False
    ) -> dict[str, ProbeOutcome]:
        found = self._attempts.outcomes(tier, again=again)
        self._faults += [revive(o.trouble) for o in found.values() if o.trouble]
        return found

    def _fastest(
        self, tier: Sequence[ExecutionPlan], outcomes: dict[str, ProbeOutcome]
    ) -> Selection | None:
        """Open the fastest that is accepted, or the next one where it no longer opens."""
        accepted = [(c, o) for c in tier if (o := outcomes[c.key]).state == "accepted"]
        passed = _reasons(tier, outcomes)
        while accepted:
            best = fastest(accepted)
            if chosen := self._open(best[0], "golden", passed):
                return chosen
            accepted.remove(best)
        return None

    def _open(
        self, candidate: ExecutionPlan, proof: str, passed: Sequence[str] = ()
    ) -> Selection | None:
        try:
            session = self._attempts.open(candidate)
        except (EdgeError, OSError, MemoryError) as error:
            fault = machine_error(error, candidate.name)
            if fault:
                self._faults.append(fault)
            told = fault or error
            if not isinstance(told, EdgeError) or (fault is None and isinstance(told, BundleError)):
                raise  # changed bytes are no candidate's fault, and no reason to go on
            self._left.append(f"{candidate.name}: {told.message}")
            return None
        notes = list(dict.fromkeys([*self._left, *passed]))
        note = f"passed over: {'; '.join(notes)}" if notes else ""
        return Selection(candidate, session, proof, note)

    def _nothing(self) -> EdgeError:
        left = dict.fromkeys([*map(str, self._field.passed_over), *self._left])
        return next(iter(self._faults), _nothing_usable(self._manifest, left))


def _reasons(tier: Sequence[ExecutionPlan], outcomes: dict[str, ProbeOutcome]) -> list[str]:
    """One line for each candidate that is not accepted."""
    return [
        f"{o.name}: {o.state}, {o.reason}"
        for c in tier
        if (o := outcomes[c.key]).state != "accepted"
    ]


def _nothing_usable(manifest: Manifest, reasons: Iterable[str]) -> WrapperError:
    causes = "; ".join(reasons) or "the bundle holds no artifacts"
    return WrapperError(
        "EDGE-WRAPPER-001",
        f"model {manifest.name}",
        wanted="an artifact that can be used on this device",
        got=f"none: {causes}",
        hint="`edgeserve doctor` says which runtimes are here and what installs the others; "
        "`edgeserve verify BUNDLE` tries every artifact again",
    )


def _strict_error(manifest: Manifest, reasons: Iterable[str]) -> WrapperError:
    where = f"model {manifest.name}"
    wanted = "the first choice, proven here, because strict is set"
    hint = "repair what is named, or leave strict out to take the next best that is proven"
    return WrapperError("EDGE-WRAPPER-004", where, wanted=wanted, got="; ".join(reasons), hint=hint)
