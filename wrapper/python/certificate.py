"""`Certificate`: the results of the golden check for everything that can run on one device.

The proof of one artifact is a verb too. `convert` and `validate` end with it, before the manifest
names the artifact, and `package` begins with it: a file that cannot hold its golden cases on the
machine that made them holds them nowhere.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from edgeserve import __version__, backends
from edgeserve.backends.base import UNAVAILABLE
from edgeserve.bundle import Model, open_model
from edgeserve.bundle.manifest import check_wrapper
from edgeserve.bundle.rules import referenced
from edgeserve.bundle.workspace import Workspace
from edgeserve.environment import environment
from edgeserve.errors import BundleError, EdgeError
from edgeserve.machine import raise_machine_error
from edgeserve.processing import Processor
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Number, Value
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Environment
from edgeserve.types.vocabulary import Format, Precision, Verdict
from edgeserve.wrapper.engine import Engine, ProbeOutcome, check_golden, processor
from edgeserve.wrapper.plans import Constraints, ExecutionPlan, device_digest, plan_tiers
from edgeserve.wrapper.prober import Prober

CertificateVerdict = Literal["pass", "fail", "unproven"]


class Proven(Value, frozen=True):
    """How one runnable artifact did, on one delegate and number of threads.

    Attributes:
        format: Format of the artifact.
        precision: Precision of the artifact.
        artifact_sha256: Identity of its bytes.
        gate: The gate's verdict that it was shipped with.
        delegate: The delegate asked for; what really ran stands in ``runtime``.
        threads: Threads of the runtime; None: its own default.
        runtime: The engine that answered; None where it never came so far.
        passed: Golden cases answered as the reference did.
        total: Golden cases asked.
        min_margin: Smallest margin among the answers; None where the task has none.
        max_difference: Largest difference from the reference, as the cases' tolerance counts it.
        run_ms: Median time of one run of the model, milliseconds.
        verdict: "pass": every case holds. "fail": one does not, or it crashed or hung. "unproven":
            there was nothing to ask, no time to (another process was at it), or the machine failed.
        reason: Why it is not "pass"; empty when it is.
    """

    format: Format
    precision: Precision
    artifact_sha256: str
    gate: Verdict | None
    delegate: str
    threads: int | None
    runtime: Runtime | None
    passed: int
    total: int
    min_margin: Number | None
    max_difference: Number
    run_ms: float | None
    verdict: CertificateVerdict
    reason: str = ""


class Certificate(Value, frozen=True):
    """The golden proof, run now, on this device.

    Attributes:
        model_id: Identity of the model.
        name: Its name.
        version: Its version.
        made: UTC time, ISO 8601.
        device: Processor, system and package versions.
        golden: "generated" or "given"; None where the bundle has no golden cases.
        proofs: One entry per runnable artifact, delegate and number of threads.
        not_run: Artifacts that cannot run here, and why, one line each.
        verdict: "pass": all that ran holds, and something ran. "fail": something does not hold.
            "unproven": nothing could be asked.
    """

    model_id: str
    name: str
    version: int
    made: str
    device: Environment
    golden: str | None
    proofs: tuple[Proven, ...]
    not_run: tuple[str, ...]
    verdict: CertificateVerdict


_VERDICTS: dict[str, CertificateVerdict] = {
    "accepted": "pass",
    "busy": "unproven",
    "deferred": "unproven",
}


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
    found = plan_tiers(
        manifest, Constraints(threads=threads, proofs=True), backends.get, device_digest()
    )
    candidates = [candidate for tier in found.tiers for candidate in tier]
    asked = bool(manifest.golden and manifest.golden.cases)
    outcomes: dict[str, ProbeOutcome] = {}
    if asked and candidates:
        attempts = Prober(model, around=around)
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


def _proven(candidate: ExecutionPlan, outcome: ProbeOutcome | None) -> Proven:
    artifact = candidate.artifact
    outcome = outcome or candidate.outcome("busy", "there are no golden cases")
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


VERB = "edgeserve.wrapper.certificate:prove"


class ProofRequest(Value, frozen=True):
    """What is to be proven.

    Attributes:
        manifest: Of the model, with golden cases.
        root: Folder that golden cases and assets lie under; absolute.
        artifact: The artifact; the manifest need not list it.
        files: Folder that its files lie under; absolute.
    """

    manifest: Manifest
    root: str
    artifact: Artifact
    files: str


class Proof(Value, frozen=True):
    """How the golden cases were answered.

    Attributes:
        passed: Cases that hold.
        total: Cases asked; 0 where the format cannot run here.
        max_difference: Largest difference from the reference, in the terms of the tolerances.
        wrong: The first that does not hold; empty where all do.
    """

    passed: int
    total: int
    max_difference: Number = 0.0
    wrong: str = ""


class _Unlisted(Workspace):
    """A workspace whose manifest lies on no disk yet, and whose artifact lies elsewhere."""

    def __init__(self, request: ProofRequest) -> None:
        super().__init__(request.root)
        entries = {entry.path: entry for _, entry in referenced(request.manifest)}
        self._unwritten = replace(request.manifest, files=tuple(entries.values()))
        self._artifacts_root = Path(request.files)

    @property
    def manifest(self) -> Manifest:
        """The request's, which lists what it refers to."""
        return self._unwritten

    def local(self, artifact: Artifact) -> Path:
        """The folder under which the artifact's files lie."""
        return self._artifacts_root


def prove(request: ProofRequest) -> Proof:
    """Answer the golden cases by one artifact, on the delegate that its backend takes first.

    What its runtime raises is the artifact's failure, and no exception of this verb.

    Raises:
        BundleError: a golden case or an asset is not the file that was written.
        ProcessingError: what the processing needs is not installed.
        FilesError: the machine failed, which proves nothing.
    """
    model = _Unlisted(request)
    around = processor(model)
    total = len(request.manifest.golden.cases) if request.manifest.golden else 0
    try:
        session = backends.get(request.artifact.format).load(
            request.artifact, model.local(request.artifact)
        )
    except EdgeError as error:
        raise_machine_error(error, "golden cases")
        wrong = "" if error.code in UNAVAILABLE else error.message
        return Proof(0, total if wrong else 0, wrong=wrong)
    with session:
        try:
            result = check_golden(Engine(session, around, request.manifest.signature), model)
        except BundleError:
            raise
        except EdgeError as error:
            raise_machine_error(error, "golden cases")
            return Proof(0, total, wrong=error.message)
    wrong = result.wrong[0] if result.wrong else ""
    return Proof(result.passed, result.total, result.max_difference, wrong)
