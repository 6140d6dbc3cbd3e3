"""`Manifest`: what a workspace or bundle holds. Read and written by `edgeserve.bundle.manifest`."""

from __future__ import annotations

from typing import Any

from edgeserve.types.artifact import Artifact, FileEntry, Refused, check_member_name
from edgeserve.types.base import Number, Value
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Golden
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Format, Precision, Task, Verdict

__all__ = ["FORMAT_VERSION", "Manifest", "ReportSummary"]

#: Version of what lies on disk. Another major is refused, a newer minor is read.
FORMAT_VERSION = "1.0"


class ReportSummary(Value, frozen=True):
    """The reports of one artifact in numbers: what a bundle carries of them.

    Attributes:
        figures: e.g. "max_relative", "decided_flips", "decided_upper", "inputs", "groups",
        "p50_ms".
    """

    format: Format
    precision: Precision
    verdict: Verdict
    figures: dict[str, Number]


class Manifest(Value, frozen=True):
    """What lies in a workspace or bundle.

    Attributes:
        edgeserve: Format version, "1.0".
        name: Name of the model, also its name behind an endpoint.
        version: Monotonic integer, for updates.
        min_wrapper: Oldest edgeserve version whose Wrapper may open this.
        model_id: sha256 of the bytes of the member ``identity.json``.
        task: Meaning of the outputs.
        signature: The source's.
        processing: Steps around the model.
        labels: Class names by index.
        files: Every other member (in a workspace: those that `package` may copy), sorted by path.
        artifacts: pass, degraded and unproven ones only.
        refused: What failed, and why.
        golden: Golden cases; None until `validate` made them.
        reference: What stood for the server (``module:fn``, URL or "pt2"); workspace only.
        reports: Figures per artifact.
        tools: Versions of what made it.
        license: SPDX expression, where given.
        x: Unknown fields live only here.
    """

    edgeserve: str
    name: str
    version: int
    min_wrapper: str
    model_id: str
    task: Task
    signature: Signature
    processing: Processing
    labels: tuple[str, ...] = ()
    files: tuple[FileEntry, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    refused: tuple[Refused, ...] = ()
    golden: Golden | None = None
    reference: str | None = None
    reports: tuple[ReportSummary, ...] = ()
    tools: dict[str, str] = {}
    license: str | None = None
    x: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for artifact in self.artifacts:
            check_member_name(artifact.entry)
            if artifact.verdict not in ("pass", "degraded", "unproven"):
                raise ValueError(f"artifact {artifact.name} has the verdict {artifact.verdict!r}")
        names = [a.name for a in self.artifacts]
        if len(set(names)) != len(names):
            raise ValueError(f"artifacts are listed twice: {names}")
        if self.version < 1:
            raise ValueError(f"version {self.version} is below 1")

    def artifact(self, name: str) -> Artifact | None:
        """The artifact called ``{format}-{precision}``, or None."""
        return next((a for a in self.artifacts if a.name == name), None)
