"""`Manifest`: what a workspace or bundle holds. Read and written by `edgeserve.bundle.manifest`."""

from __future__ import annotations

import re
from typing import Any, Literal

from edgeserve.types.artifact import (
    Artifact,
    ArtifactFunction,
    FileEntry,
    Refused,
    check_features,
    check_member_name,
)
from edgeserve.types.base import UNSET, Number, UnsetType, Value, or_default
from edgeserve.types.processing import Processing
from edgeserve.types.samples import Golden
from edgeserve.types.tensors import IO, DType, Shape, Signature, TensorSpec
from edgeserve.types.vocabulary import Format, Precision, Task, Verdict

#: Version of what lies on disk. Another major is refused, a newer minor is read.
FORMAT_VERSION = "1.0"
#: How the function of the manifest's own ``signature`` is called.
MAIN = "main"
#: Features of ``requires`` that this version's Wrapper carries out.
SUPPORTED_FEATURES: frozenset[str] = frozenset()

_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def features_of(io: IO) -> set[str]:
    """The features that a file's inputs and outputs use, of those that the format 1.0 names."""
    fields = {"tensor-layout": io.layouts, "image-input": io.images, "states": io.states}
    return {feature for feature, value in fields.items() if or_default(value, {})}


def unsupported_features(part: Artifact | ArtifactFunction | Function) -> tuple[str, ...]:
    """The features that an artifact or function requires and this version does not carry out.

    Where there are any, the part is passed over: it is no fault of the bundle.
    """
    return tuple(sorted(set(or_default(part.requires, ())) - SUPPORTED_FEATURES))


class ModelState(Value, frozen=True):
    """What a model remembers from one call to the next, a key-value cache for instance.

    Attributes:
        name: How signatures call it.
        dtype: As the source has it; a file may keep it in another.
        shape: A string names a dynamic dimension.
        dims: Inclusive range of each dynamic dimension.
        initial: What it holds before the first call.
    """

    name: str
    dtype: DType
    shape: Shape
    dims: dict[str, tuple[int, int]] = {}
    initial: Literal["zeros"] = "zeros"

    def __post_init__(self) -> None:
        spec = TensorSpec(name=self.name, dtype=self.dtype, shape=self.shape)
        Signature(inputs=(spec,), outputs=(), dims=self.dims)


class Function(Value, frozen=True):
    """A function of the model beside the main one: a decoder's step, the other tower of two.

    Attributes:
        name: A letter first, then letters, digits and underscores; not "main".
        signature: Its own.
        processing: Steps around it.
        golden: Its golden cases; each starts from the states' initial values.
        requires: Features without which it cannot run. A Wrapper that does not know one does not
            offer the function, and everything else of the bundle.
        x: Unknown fields of a function live only here.
    """

    name: str
    signature: Signature
    processing: Processing = Processing()
    golden: Golden | None = None
    requires: tuple[str, ...] = ()
    x: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not _FUNCTION.fullmatch(self.name) or self.name == MAIN:
            raise ValueError(f"{self.name!r} is not a name of a further function")
        check_features(self.requires)


class ReportSummary(Value, frozen=True):
    """The reports of one artifact in numbers: what a bundle carries of them.

    Attributes:
        figures: e.g. "max_relative", "decided_flips", "decided_upper", "inputs", "groups",
        "p50_ms".
        plan: sha256 of the plan, of the precision "mixed".
    """

    format: Format
    precision: Precision
    verdict: Verdict
    figures: dict[str, Number]
    plan: str | UnsetType = UNSET


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
        functions: Further functions of the model, beside the one of ``signature``.
        states: What functions remember from call to call.
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
    functions: tuple[Function, ...] | UnsetType = UNSET
    states: tuple[ModelState, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        for artifact in self.artifacts:
            check_member_name(artifact.entry)
            if artifact.verdict not in ("pass", "degraded", "unproven"):
                raise ValueError(f"artifact {artifact.name} has the verdict {artifact.verdict!r}")
        names = [a.name for a in self.artifacts]
        if len(set(names)) != len(names):
            raise ValueError(f"artifacts are listed twice: {names}")
        for parts in (or_default(self.functions, ()), or_default(self.states, ())):
            if len({part.name for part in parts}) != len(parts):
                raise ValueError(f"listed twice: {[part.name for part in parts]}")
        if self.version < 1:
            raise ValueError(f"version {self.version} is below 1")

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signature of each function by its name, the main one first."""
        further = {each.name: each.signature for each in or_default(self.functions, ())}
        return {MAIN: self.signature, **further}

    def artifact(self, name: str) -> Artifact | None:
        """The artifact called ``{format}-{precision}``, or None."""
        return next((a for a in self.artifacts if a.name == name), None)
