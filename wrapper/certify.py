"""Running the golden proof on everything that runs here, and writing the `Certificate`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from edgeserve import __version__, backends
from edgeserve.bundle import Model, open_model
from edgeserve.bundle.manifest import check_wrapper
from edgeserve.environment import environment
from edgeserve.processing import Processor
from edgeserve.wrapper.attempts import Attempts
from edgeserve.wrapper.cache import Outcome
from edgeserve.wrapper.certificate import Certificate, CertificateVerdict, Proven
from edgeserve.wrapper.choose import Candidate, device_digest, field
from edgeserve.wrapper.trial import processor
from edgeserve.wrapper.wish import Wish

__all__ = ["certify", "verify"]

_VERDICTS: dict[str, CertificateVerdict] = {"accepted": "pass", "busy": "unproven"}


def verify(bundle: str | Path) -> Certificate:
    """Run the golden proof of a bundle or workspace now, on each artifact that can run here.

    Unlike ``Wrapper(bundle).verify()`` this needs no artifact that holds: a failure is written in
    the certificate, not raised. Artifacts are tried in a child process where there are several.

    Raises:
        BundleError: the bundle breaks its rules, or its bytes do not match their hashes.
        ProcessingError: its processing is not in this version, or needs what is not installed.
    """
    with open_model(bundle) as model:
        check_wrapper(model.manifest, __version__)
        return certify(model, processor(model))


def certify(model: Model, around: Processor, threads: int | None = None) -> Certificate:
    """`verify` for a model that is open.

    Args:
        model: The model.
        around: Its processing.
        threads: Only with so many threads; None: each number worth trying.
    """
    manifest = model.manifest
    found = field(manifest, Wish(threads=threads, proofs=True), backends.get, device_digest())
    candidates = [candidate for tier in found.tiers for candidate in tier]
    asked = bool(manifest.golden and manifest.golden.cases)
    outcomes: dict[str, Outcome] = {}
    if asked and candidates:
        attempts = Attempts(model, around=around)
        try:
            outcomes = attempts.outcomes(candidates, fresh=True)
        finally:
            attempts.close()
    proofs = tuple(_proven(candidate, outcomes.get(candidate.key)) for candidate in candidates)
    return Certificate(
        model_id=manifest.model_id,
        name=manifest.name,
        version=manifest.version,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        device=environment(),
        golden=manifest.golden.origin if manifest.golden and asked else None,
        proofs=proofs,
        not_run=tuple(map(str, found.passed_over)),
        verdict=_verdict(proofs),
    )


def _verdict(proofs: tuple[Proven, ...]) -> CertificateVerdict:
    verdicts = {proven.verdict for proven in proofs}
    if "fail" in verdicts:
        return "fail"
    return "pass" if verdicts == {"pass"} else "unproven"


def _proven(candidate: Candidate, outcome: Outcome | None) -> Proven:
    artifact = candidate.artifact
    if outcome is None:
        outcome = Outcome(
            key=candidate.key, name=candidate.name, state="busy", reason="there are no golden cases"
        )
    return Proven(
        format=artifact.format,
        precision=artifact.precision,
        artifact_sha256=artifact.sha256,
        gate=artifact.verdict,
        delegate=candidate.delegate,
        threads=candidate.threads,
        runtime=outcome.runtime,
        passed=outcome.passed,
        total=outcome.total,
        min_margin=outcome.min_margin,
        max_difference=outcome.max_difference,
        run_ms=outcome.run_ms,
        verdict=_VERDICTS.get(outcome.state, "fail"),
        reason=outcome.reason,
    )
