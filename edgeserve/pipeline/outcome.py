"""What a stage hands back to the command line: the manifest, the reports and the exit code."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.output import ArtifactOutput, ErrorOutput, Output, RefusedOutput
from edgeserve.types.reports import Report
from edgeserve.types.words import Verdict

__all__ = ["Change", "Outcome", "meets"]

#: Verdicts from best to worst.
_RANK: dict[Verdict, int] = {"pass": 0, "degraded": 1, "unproven": 2, "fail": 3}


def meets(verdict: Verdict | None, required: Verdict) -> bool:
    """Whether ``verdict`` is at least as good as ``required``."""
    return verdict is not None and _RANK[verdict] <= _RANK[required]


@dataclass(frozen=True)
class Change:
    """One artifact then and now.

    Attributes:
        name: ``{format}-{precision}``.
        worse: The verdict fell, or more answers flip than chance explains.
        words: What has changed, in one line.
    """

    name: str
    worse: bool
    words: str


@dataclass(frozen=True)
class Outcome:
    """What came out of a stage over a workspace.

    Attributes:
        out: The workspace, as typed.
        manifest: As it stands now; None after a dry run.
        cells: The ``{format}-{precision}`` this call was about.
        reports: The gate's reports, by cell.
        required: Least verdict asked for with ``--require``.
        plan: What a dry run would do, one line each.
        changes: What has become of each artifact since the reports of ``--against``.
        made: Files made besides the workspace (bundle, report), by kind.
        repros: Scripts that fail as a format did (``--bisect``), by format, relative to ``out``.
    """

    out: str
    manifest: Manifest | None
    cells: tuple[str, ...] = ()
    reports: dict[str, Report] = field(default_factory=dict)
    required: Verdict | None = None
    plan: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    made: dict[str, str] = field(default_factory=dict)
    repros: dict[str, str] = field(default_factory=dict)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts this call was about."""
        known = self.manifest.artifacts if self.manifest else ()
        return tuple(a for a in known if a.name in self.cells)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The refusals this call was about."""
        known = self.manifest.refused if self.manifest else ()
        return tuple(r for r in known if f"{r.format}-{r.precision}" in self.cells)

    @property
    def short(self) -> tuple[str, ...]:
        """Artifacts that miss ``--require``."""
        if self.required is None:
            return ()
        return tuple(a.name for a in self.artifacts if not meets(a.verdict, self.required))

    @property
    def worse(self) -> tuple[Change, ...]:
        """Artifacts that are worse than they were."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def exit_code(self) -> int:
        """1 when something was refused, misses ``--require`` or is worse than before, else 0."""
        return 1 if self.refused or self.short or self.worse else 0

    def json(self) -> bytes:
        """The ``--json`` object."""
        output = Output(
            out=self.out,
            model_id=self.manifest.model_id if self.manifest else None,
            artifacts=tuple(_artifact(a) for a in self.artifacts),
            refused=tuple(_refused(r, self.repros.get(r.format)) for r in self.refused),
            error=self._error(),
        )
        return encode(output)

    def _error(self) -> ErrorOutput | None:
        if not self.short:
            return self._worse()
        return ErrorOutput(
            code="EDGE-CHECK-900",
            message=f"{', '.join(self.short)}: wanted {self.required} or better",
            hint="see the reasons of each artifact; more or other --data may settle `unproven`",
        )

    def _worse(self) -> ErrorOutput | None:
        if not self.worse:
            return None
        return ErrorOutput(
            code="EDGE-CHECK-901",
            message="; ".join(f"{change.name}: {change.words}" for change in self.worse),
            hint="compare the worst inputs of both reports",
        )


def _artifact(artifact: Artifact) -> ArtifactOutput:
    judged = artifact.judgement
    return ArtifactOutput(
        format=artifact.format,
        precision=artifact.precision,
        entry=artifact.entry,
        sha256=artifact.sha256,
        verdict=judged.verdict if judged else "unproven",
        reasons=judged.reasons if judged else (),
        io=artifact.io,
    )


def _refused(refused: Refused, repro: str | None) -> RefusedOutput:
    return RefusedOutput(
        format=refused.format,
        precision=refused.precision,
        verdict=refused.verdict,
        code=refused.code,
        message=refused.message,
        hint=refused.hint,
        repro=repro,
    )
