"""The golden proof of one artifact, as a verb: what a Wrapper does on a device, done here.

`convert` and `validate` end with it, before the manifest names the artifact, and `package` begins
with it: a file that cannot hold its golden cases on the machine that made them holds them nowhere.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from edgeserve import backends
from edgeserve.bundle.workspace import real_file
from edgeserve.errors import BundleError, EdgeError
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.base import Number, Value
from edgeserve.types.manifest import Manifest
from edgeserve.wrapper.engine import Engine
from edgeserve.wrapper.probe import check_golden, processor

VERB = "edgeserve.wrapper.proof:prove"

#: What a backend says when it cannot run a good file here.
_UNAVAILABLE = ("EDGE-BACKEND-004", "EDGE-BACKEND-005")


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


class _Unlisted:
    """A `Model` whose manifest lies on no disk yet."""

    kind: Literal["workspace"] = "workspace"

    def __init__(self, request: ProofRequest) -> None:
        self.path = Path(request.root)
        self.manifest = request.manifest
        self._files = Path(request.files)
        golden = request.manifest.golden
        cases = golden.cases if golden else ()
        members = [*request.manifest.processing.assets, *(case.input for case in cases)]
        members += [case.outputs for case in cases if case.outputs is not None]
        self._members: dict[str, FileEntry] = {entry.path: entry for entry in members}

    def read(self, member: str) -> bytes:
        """A member's bytes, after its sha256 held."""
        real_file(self.path, member)
        data = (self.path / member).read_bytes()
        if hashlib.sha256(data).hexdigest() != self._members[member].sha256:
            raise BundleError(
                "EDGE-BUNDLE-004",
                f"member {member!r}",
                wanted=f"sha256 {self._members[member].sha256}",
                got="other bytes",
                hint="run the stage that made it again",
            )
        return data

    def local(self, artifact: Artifact) -> Path:
        """The folder under which the artifact's files lie."""
        return self._files

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> _Unlisted:
        return self

    def __exit__(self, *_: object) -> None: ...


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
        wrong = "" if error.code in _UNAVAILABLE else error.message
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
