"""Judging every artifact of a workspace: the reference once, then a worker for each."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgeserve import jobs
from edgeserve.bundle import Workspace
from edgeserve.environment import environment
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime
from edgeserve.types.reports import Check, Limits, Report
from edgeserve.validate.request import Answers, AnswersRequest, JudgeRequest
from edgeserve.validate.store import read_answers
from edgeserve.validate.verdict import crashed

__all__ = ["COLLECT", "JUDGE", "crash_report", "judge_workspace"]

#: Addresses of the verbs.
COLLECT = "edgeserve.validate.answers:collect_answers"
JUDGE = "edgeserve.validate.gate:judge"


def judge_workspace(
    workspace: Path,
    data: str | None,
    reference: str | None,
    limits: Limits | None,
    folder: Path,
    timeout: float,
) -> tuple[Report, ...]:
    """See `edgeserve.validate.validate`."""
    opened = Workspace(workspace)
    manifest = opened.manifest
    samples = opened.samples.absolute()
    stored = read_answers(samples)
    user = str(folder.absolute())
    asked = AnswersRequest(
        source_folder=str(opened.source.absolute()),
        out=str(samples),
        folder=user,
        data=data or (stored.data if stored else None),
        reference=reference or (None if stored else manifest.reference),
        golden=0,
    )
    with tempfile.TemporaryDirectory() as scratch:
        answers = jobs.run(
            COLLECT, asked, Answers, Path(scratch) / "answers", timeout=timeout, path=[user]
        )
        return tuple(
            _judged(
                JudgeRequest(
                    artifact=artifact,
                    root=str(workspace.absolute()),
                    limits=limits or Limits(),
                    source_folder=asked.source_folder,
                    samples=asked.out,
                ),
                answers,
                Path(scratch) / artifact.name,
                timeout,
            )
            for artifact in manifest.artifacts
        )


def _judged(request: JudgeRequest, answers: Answers, folder: Path, timeout: float) -> Report:
    try:
        return jobs.run(JUDGE, request, Report, folder, timeout=timeout)
    except EdgeError as error:
        return crash_report(request, answers, error)


def crash_report(request: JudgeRequest, answers: Answers, error: EdgeError) -> Report:
    """The report on an artifact whose worker died, hung or met an unexpected error.

    Raises:
        EdgeError: ``error`` itself, when it is none of these.
    """
    judgement = crashed(error)
    artifact: Artifact = request.artifact
    return Report(
        artifact_sha256=artifact.sha256,
        format=artifact.format,
        precision=artifact.precision,
        runtime=Runtime(name=artifact.format, version="", delegate=request.delegate or ""),
        reference=answers.reference,
        preprocessing=answers.preprocessing,
        inputs="none",
        limits=request.limits,
        checks=(Check(name="survives", ok=False, detail=judgement.reasons[0].message),),
        outputs=(),
        decisions=None,
        worst=(),
        judgement=judgement,
        environment=environment(),
        seconds=0.0,
        notes=answers.notes,
    )
