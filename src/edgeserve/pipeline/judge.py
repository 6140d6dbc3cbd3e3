"""The gate, as the pipeline calls it: the reference's answers once, then a verdict per artifact.

The golden proof ends `convert` and `validate`, on the very files that are kept. The gate judges
decisions on the user's data, and golden cases are other inputs: an artifact that passed may still
answer one of them otherwise. Every Wrapper would refuse it, so it fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgeserve.errors import WorkerError
from edgeserve.pipeline.stage_context import HEAVY, TORCH, StageContext, stage_key
from edgeserve.types.artifact import Artifact, Judgement, Reason
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Limits, Report
from edgeserve.types.samples import Golden
from edgeserve.validate.requests import Answers, AnswersRequest, JudgeRequest
from edgeserve.validate.verdict import COLLECT_VERB, JUDGE_VERB, crash_report
from edgeserve.wrapper.certificate import VERB, Proof, ProofRequest


@dataclass(frozen=True)
class JudgedArtifact:
    """An artifact with its verdict.

    Attributes:
        artifact: With its judgement.
        root: The folder that its files lie under.
        report: What the gate found; of an artifact that took its judge down, that it did.
        key: Stage key of the judging.
    """

    artifact: Artifact
    root: Path
    report: Report
    key: str

    @property
    def judgement(self) -> Judgement:
        """The verdict."""
        return self.report.judgement

    @property
    def failed(self) -> bool:
        """Whether it may not be used."""
        return self.judgement.verdict == "fail"

    @property
    def reference_still(self) -> bool:
        """Whether the server answered the same to everything, so that nothing is proven."""
        return any(reason.code == "EDGE-CHECK-022" for reason in self.judgement.reasons)


def ask_reference(
    bench: StageContext,
    data: str | None,
    reference: str | None,
    on_start: Callable[[], None] | None = None,
) -> Answers:
    """What the reference decides on the evaluation half; cached by the answers' own keys.

    A function of the caller's is called in this very thread, while the worker waits for it.

    Raises:
        DataError: the data set cannot be used.
        ValidateError: the reference cannot be loaded, or failed on an input.
    """
    request = AnswersRequest(
        source_folder=str(bench.root / "source"),
        out=str(bench.root / "samples"),
        data=str(Path(data).absolute()) if data is not None else None,
        reference=reference,
        folder=bench.path[0],
        caller=bench.caller.name if bench.caller else "",
    )
    answers = bench.work(
        "reference answers", COLLECT_VERB, request, Answers, "answers", HEAVY, on_start, TORCH
    )
    for finding in answers.findings:
        bench.ui.note(finding.message)
    return answers


def gate(
    bench: StageContext, artifact: Artifact, root: Path, answers: Answers, limits: Limits
) -> JudgedArtifact:
    """Judge one artifact in a worker; a verdict reached before on the same evidence is kept."""
    keys = (answers.program_key, answers.reference_key, answers.data_key)
    key = stage_key(artifact.sha256, keys, limits)
    known = _judged_before(bench, artifact, key)
    if known is not None:
        bench.ui.note(f"{artifact.name}: same evidence as before")
        return _judged(artifact, root, known, key)
    request = JudgeRequest(
        artifact=artifact,
        root=str(root),
        source_folder=str(bench.root / "source"),
        samples=str(bench.root / "samples"),
        limits=limits,
    )
    name = f"validate-{artifact.name}"
    try:
        report = bench.work(f"validate {artifact.name}", JUDGE_VERB, request, Report, name)
    except WorkerError as error:
        if error.code == "EDGE-WORKER-006":  # the command is ending: no fault of the artifact
            raise
        report = crash_report(request, answers, error)
    return _judged(artifact, root, report, key)


def _judged(artifact: Artifact, root: Path, report: Report, key: str) -> JudgedArtifact:
    judged = msgspec.structs.replace(artifact, judgement=report.judgement)
    return JudgedArtifact(judged, root, report, key)


def stored_report(root: Path, artifact: Artifact) -> Report | None:
    """The report in a workspace on an artifact; None where none can be read, or on other bytes."""
    try:
        data = (root / "reports" / f"{artifact.name}.validate.json").read_bytes()
        report = decode(data, Report)
    except (OSError, msgspec.MsgspecError):
        return None
    return report if report.artifact_sha256 == artifact.sha256 else None


def _judged_before(bench: StageContext, artifact: Artifact, key: str) -> Report | None:
    if not bench.stages.done(f"judge {artifact.name}", key):
        return None
    report = stored_report(bench.root, artifact)
    if report and any(reason.code == "EDGE-CHECK-015" for reason in report.judgement.reasons):
        return None  # a fault of the judging, which may be gone
    return report


_FAILED = "EDGE-CHECK-072"


def hold_to_golden(
    bench: StageContext, manifest: Manifest, judged: Sequence[JudgedArtifact], golden: Golden | None
) -> list[JudgedArtifact]:
    """The same artifacts; those that do not hold the golden cases have failed now.

    Args:
        bench: Where the golden cases lie, and workers run.
        manifest: Of the model; its artifacts do not matter.
        judged: What the gate said.
        golden: The cases; None: nothing can be asked.
    """
    if golden is None or not golden.cases:
        return list(judged)
    manifest = msgspec.structs.replace(manifest, golden=golden, artifacts=(), files=())
    asked = [
        bench.crew.start(_proven, bench, manifest, each) if not each.failed else None
        for each in judged
    ]
    bench.crew.finish()
    return [
        each if future is None else future.result()
        for each, future in zip(judged, asked, strict=True)
    ]


def _proven(bench: StageContext, manifest: Manifest, judged: JudgedArtifact) -> JudgedArtifact:
    artifact = judged.artifact
    key = stage_key("proof", artifact.sha256, manifest.golden, manifest.processing)
    if bench.stages.done(f"prove {artifact.name}", key):
        return judged
    proof = _prove(bench, manifest, artifact, judged.root)
    if not proof.wrong:
        bench.stages.finish(f"prove {artifact.name}", key)
        return judged
    count = f"{proof.total - proof.passed} of {proof.total} golden cases"
    reason = Reason(code=_FAILED, message=f"answers {count} otherwise here; {proof.wrong}")
    judgement = Judgement(
        verdict="fail",
        reasons=(reason, *judged.judgement.reasons),
        minimum_harm=judged.judgement.minimum_harm,
        executed_by=judged.judgement.executed_by,
    )
    report = msgspec.structs.replace(judged.report, judgement=judgement)
    failed = msgspec.structs.replace(artifact, judgement=judgement)
    return replace(judged, artifact=failed, report=report)


def proof_request(manifest: Manifest, root: Path, artifact: Artifact, files: Path) -> ProofRequest:
    """What to prove, see `ProofRequest`."""
    return ProofRequest(
        manifest=manifest, root=str(root), artifact=artifact, files=str(files.absolute())
    )


def _prove(bench: StageContext, manifest: Manifest, artifact: Artifact, files: Path) -> Proof:
    request = proof_request(manifest, bench.root, artifact, files)
    title, log = f"prove {artifact.name}", f"prove-{artifact.name}"
    try:
        return bench.work(title, VERB, request, Proof, log)
    except WorkerError as error:
        if error.code == "EDGE-WORKER-006":  # the command is ending
            raise
        total = len(manifest.golden.cases) if manifest.golden else 0
        return Proof(0, total, wrong=error.message)  # the runtime took its process along
