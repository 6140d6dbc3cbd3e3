"""The golden proof at the end of `convert` and `validate`, run on the very files that are kept.

The gate judges decisions on the user's data, and golden cases are other inputs: an artifact that
passed may still answer one of them otherwise. Every Wrapper would refuse it, so it fails here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from edgeserve.errors import WorkerError
from edgeserve.pipeline.judge import JudgedArtifact
from edgeserve.pipeline.stage_context import StageContext, stage_key
from edgeserve.types.artifact import Artifact, Judgement, Reason
from edgeserve.types.manifest import Manifest
from edgeserve.types.samples import Golden
from edgeserve.wrapper.proof import VERB, Proof, ProofRequest

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
