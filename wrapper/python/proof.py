"""The golden proof of one artifact, as a verb: what a Wrapper does on a device, done here.

`convert` and `validate` end with it, before the manifest names the artifact, and `package` begins
with it: a file that cannot hold its golden cases on the machine that made them holds them nowhere.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from edgeserve import backends
from edgeserve.backends.base import UNAVAILABLE
from edgeserve.bundle.rules import referenced
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import BundleError, EdgeError
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Number, Value
from edgeserve.types.manifest import Manifest
from edgeserve.wrapper.engine import Engine
from edgeserve.wrapper.probe import check_golden, processor

VERB = "edgeserve.wrapper.proof:prove"


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
    """
    model = _Unlisted(request)
    around = processor(model)
    total = len(request.manifest.golden.cases) if request.manifest.golden else 0
    try:
        session = backends.get(request.artifact.format).load(
            request.artifact, model.local(request.artifact)
        )
    except EdgeError as error:
        wrong = "" if error.code in UNAVAILABLE else error.message
        return Proof(0, total if wrong else 0, wrong=wrong)
    with session:
        try:
            result = check_golden(Engine(session, around, request.manifest.signature), model)
        except BundleError:
            raise
        except EdgeError as error:
            return Proof(0, total, wrong=error.message)
    wrong = result.wrong[0] if result.wrong else ""
    return Proof(result.passed, result.total, result.max_difference, wrong)
