"""Taking the best candidate whose proof holds, tier by tier, and saying what was passed over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgeserve.backends import Session
from edgeserve.errors import BundleError, EdgeError, WrapperError
from edgeserve.types.manifest import Manifest
from edgeserve.wrapper.attempts import Attempts
from edgeserve.wrapper.cache import Outcome
from edgeserve.wrapper.choose import Candidate, Field, fastest

__all__ = ["Chosen", "select"]


@dataclass(frozen=True)
class Chosen:
    """What the Wrapper will run.

    Attributes:
        candidate: Artifact, delegate and threads.
        session: Open.
        proof: "golden", or "none" where there are no golden cases.
        note: What a caller should know: the better choices that were not taken, and why.
    """

    candidate: Candidate
    session: Session
    proof: str
    note: str


def select(manifest: Manifest, field: Field, attempts: Attempts, strict: bool) -> Chosen:
    """Choose among the candidates of ``field`` and open what is chosen.

    Raises:
        WrapperError: EDGE-WRAPPER-001 when nothing can be used, -004 when strict forbids what can.
        BundleError: the bundle's bytes do not match their hashes.
    """
    if not field.tiers:
        raise _nothing(manifest, [str(left) for left in field.passed_over])
    if strict and field.missed:
        raise _strict(manifest, map(str, field.missed))
    picker = _Picker(manifest, field, attempts)
    if manifest.golden is None or not manifest.golden.cases:
        return picker.unasked(strict)
    return picker.strictly() if strict else picker.freely()


class _Picker:
    """The way through the candidates, remembering what was passed over on it."""

    def __init__(self, manifest: Manifest, field: Field, attempts: Attempts) -> None:
        self._manifest, self._field, self._attempts = manifest, field, attempts
        self._left = [str(left) for left in field.missed]

    def unasked(self, strict: bool) -> Chosen:
        """Without golden cases: the first that opens; there is nothing to compare by."""
        if strict:
            told = "the bundle has no golden cases, so nothing can be proven here"
            raise _strict(self._manifest, [told])
        for candidate in (c for tier in self._field.tiers for c in tier):
            if chosen := self._open(candidate, "none"):
                return chosen
        raise self._nothing()

    def strictly(self) -> Chosen:
        """Every candidate of the first tier must hold; what crashed before is tried again."""
        tier = self._field.tiers[0]
        outcomes = self._attempts.outcomes(tier, again=True)
        if any(outcomes[c.key].state != "accepted" for c in tier):
            raise _strict(self._manifest, _reasons(tier, outcomes))
        best, _ = fastest([(c, outcomes[c.key]) for c in tier])
        if chosen := self._open(best, "golden"):
            return chosen
        raise _strict(self._manifest, self._left)

    def freely(self) -> Chosen:
        """Tier by tier the fastest that holds; only then what crashed or hung before, once more."""
        demoted: list[Candidate] = []
        for tier in self._field.tiers:
            outcomes = self._attempts.outcomes(tier)
            if chosen := self._fastest(tier, outcomes):
                return chosen
            self._left += _reasons(tier, outcomes)
            demoted += [c for c in tier if outcomes[c.key].state in ("crashed", "hung")]
        for candidate in demoted:
            outcomes = self._attempts.outcomes([candidate], again=True)
            if chosen := self._fastest([candidate], outcomes):
                return chosen
        raise self._nothing()

    def _fastest(self, tier: Sequence[Candidate], outcomes: dict[str, Outcome]) -> Chosen | None:
        """Open the fastest that is accepted, or the next one where it no longer opens."""
        accepted = [(c, o) for c in tier if (o := outcomes[c.key]).state == "accepted"]
        passed = _reasons(tier, outcomes)
        while accepted:
            best = fastest(accepted)
            if chosen := self._open(best[0], "golden", passed):
                return chosen
            accepted.remove(best)
        return None

    def _open(self, candidate: Candidate, proof: str, passed: Sequence[str] = ()) -> Chosen | None:
        try:
            session = self._attempts.open(candidate)
        except BundleError:  # changed bytes are no candidate's fault, and no reason to go on
            raise
        except EdgeError as error:
            self._left.append(f"{candidate.name}: {error.message}")
            return None
        told = list(dict.fromkeys([*self._left, *passed]))
        note = f"passed over: {'; '.join(told)}" if told else ""
        return Chosen(candidate, session, proof, note)

    def _nothing(self) -> WrapperError:
        return _nothing(
            self._manifest, dict.fromkeys([*map(str, self._field.passed_over), *self._left])
        )


def _reasons(tier: Sequence[Candidate], outcomes: dict[str, Outcome]) -> list[str]:
    """One line for each candidate that is not accepted."""
    return [
        f"{o.name}: {o.state}, {o.reason}"
        for c in tier
        if (o := outcomes[c.key]).state != "accepted"
    ]


def _nothing(manifest: Manifest, reasons: Iterable[str]) -> WrapperError:
    told = "; ".join(reasons) or "the bundle holds no artifacts"
    return WrapperError(
        "EDGE-WRAPPER-001",
        f"model {manifest.name}",
        wanted="an artifact that can be used on this device",
        got=f"none: {told}",
        hint="`edgeserve doctor` says which runtimes are here and what installs the others; "
        "`edgeserve verify BUNDLE` tries every artifact again",
    )


def _strict(manifest: Manifest, reasons: Iterable[str]) -> WrapperError:
    return WrapperError(
        "EDGE-WRAPPER-004",
        f"model {manifest.name}",
        wanted="the first choice, proven here, because strict is set",
        got="; ".join(reasons),
        hint="repair what is named, or leave strict out to take the next best that is proven",
    )
