"""Candidates: each cell converted by a worker of its own, or found already made."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future
from pathlib import Path

import msgspec

from edgeserve import __version__, backends
from edgeserve.convert import TargetRequest
from edgeserve.convert.calibration import calibration_key
from edgeserve.errors import (
    BackendError,
    BundleError,
    ConvertError,
    DataError,
    EdgeError,
    UnsupportedOp,
    WorkerError,
)
from edgeserve.files import describe
from edgeserve.pipeline.scheduler import check_resources
from edgeserve.pipeline.stage_context import HEAVY, TORCH, StageContext, Variant, stage_key
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.source import Exported

_VERB = "edgeserve.convert.target:convert_target"

#: Errors of one cell: it is refused, the others go on. Anything else stops the command.
_VARIANT_ERRORS = (UnsupportedOp, ConvertError, WorkerError, BackendError, DataError)

#: Copies of the weights that a converter holds at once, at worst.
_COPIES = 6


class BuiltCandidate(msgspec.Struct, frozen=True):
    """An artifact that awaits the gate.

    Attributes:
        cell: Which.
        artifact: Its files relative to ``root``.
        root: The folder that holds them: a staging folder, or the workspace for one made before.
        key: Stage key of its making.
    """

    cell: Variant
    artifact: Artifact
    root: Path
    key: str


class ArtifactBuilder:
    """Makes the candidates of one export. Cells may be made side by side.

    Other precisions than those that a format makes of the source itself are derived from its fp32
    artifact, which is made once, when it is first needed, even if nobody asked for it.

    Args:
        bench: What to work with.
        exported: What is converted.
        model_id: Its identity.
        data: The data set that calibrates; None: there is none.
        via: Route to take by the formats that have it; None: each format's own.
    """

    def __init__(
        self,
        bench: StageContext,
        exported: Exported,
        model_id: str,
        data: str | None,
        via: str | None = None,
    ) -> None:
        self._via = via
        self._bench, self._exported, self._model_id = bench, exported, model_id
        self._data = str(Path(data).absolute()) if data is not None else None
        self._made: dict[Variant, Future[BuiltCandidate | Refused]] = {}
        self._lock = threading.Lock()

    def make(self, cell: Variant) -> BuiltCandidate | Refused:
        """Make a cell's candidate, or take the one that an earlier run made from the same things.

        Raises:
            WorkerError: EDGE-WORKER-006, the command is ending.
        """
        with self._lock:
            found = self._made.get(cell)
            future = self._made.setdefault(cell, Future())
        if found is not None:
            return found.result()
        try:
            future.set_result(self._make(cell))
        except BaseException as error:
            future.set_exception(error)
            raise
        return future.result()

    def _make(self, cell: Variant) -> BuiltCandidate | Refused:
        try:
            key = self._key(cell)
            made = _built_before(self._bench, cell, key)
            if made is not None:
                self._bench.ui.note(f"{cell.name}: unchanged, not converted again")
                return BuiltCandidate(cell, made, self._bench.root, key)
            parent = self._parent(cell)
            if isinstance(parent, Refused):
                return _refused_with_parent(cell, parent)
            stage = self._bench.root / f".tmp-make-{cell.name}"
            artifact = self._convert(cell, stage, parent)
        except _VARIANT_ERRORS as error:
            if error.code == "EDGE-WORKER-006":
                raise
            return refuse_variant(self._bench, cell, error, f"convert-{cell.name}")
        return BuiltCandidate(cell, artifact, stage, key)

    def _key(self, cell: Variant) -> str:
        exported, backend = self._exported, backends.get(cell.format)
        parts: list[object] = [self._model_id, exported.signature, cell.name, *self._routes(cell)]
        if cell.precision in backend.calibrated and self._data is not None:
            parts.append(calibration_key(Path(self._data), exported.signature))
        return stage_key(*parts, {**exported.tools, **backend.tools(), "edgeserve": __version__})

    def _routes(self, cell: Variant) -> tuple[str, ...]:
        backend = backends.get(cell.format)
        asked = self._via is not None and self._via in (*backend.routes(), *backend.asked_routes)
        return (str(self._via),) if asked else ()

    def _parent(self, cell: Variant) -> BuiltCandidate | Refused | None:
        """The fp32 artifact that this cell is derived from; None where it needs none."""
        if cell.precision in backends.get(cell.format).native:
            return None
        return self.make(Variant(cell.format, "fp32"))

    def _convert(self, cell: Variant, stage: Path, parent: BuiltCandidate | None) -> Artifact:
        stage.mkdir(parents=True)
        check_resources(stage, self._exported.program.size)
        request = TargetRequest(
            source_folder=str(self._bench.root / "source"),
            format=cell.format,
            precision=cell.precision,
            out=str(stage),
            parent=str(parent.root) if parent else None,
            parent_artifact=parent.artifact.unjudged() if parent else None,
            data=self._data,
            routes=self._routes(cell),
        )
        title, log = f"convert {cell.name}", f"convert-{cell.name}"
        memory = HEAVY + _COPIES * self._exported.program.size
        imports = (*TORCH, *backends.get(cell.format).slow_imports)
        try:
            return self._bench.work(title, _VERB, request, Artifact, log, memory, imports=imports)
        except WorkerError as error:
            if error.code != "EDGE-WORKER-002" or error.got.startswith("signal SIGKILL"):
                raise
            raise _crashed(cell, error) from error


def _crashed(cell: Variant, error: WorkerError) -> ConvertError:
    """The refusal where a converter or runtime ended the worker's process."""
    step = "a converter and a runtime that return"
    hint = f"convert parts of the model to find the op, and write it in another way; {error.hint}"
    return ConvertError("EDGE-CONVERT-031", cell.name, wanted=step, got=error.got, hint=hint)


def _refused_with_parent(cell: Variant, parent: Refused) -> Refused:
    """A cell whose fp32 artifact could not be made goes with it."""
    return msgspec.structs.replace(
        parent,
        precision=cell.precision,
        message=f"its fp32 artifact could not be made: {parent.message}",
    )


def _built_before(bench: StageContext, cell: Variant, key: str) -> Artifact | None:
    """The workspace's own artifact, if it was made with this key and its bytes still hold."""
    if not bench.workspace.exists or not bench.stages.done(f"make {cell.name}", key):
        return None
    artifact = bench.workspace.manifest.artifact(cell.name)
    if artifact is None:
        return None
    try:
        if any(describe(bench.root, f.path) != f for f in artifact.files):
            return None
    except (OSError, BundleError):
        return None
    return artifact.unjudged()


def refuse_variant(bench: StageContext, cell: Variant, error: EdgeError, log: str) -> Refused:
    """A cell that could not even be judged; the worker's log is kept under ``failed/``."""
    folder = bench.root / "failed" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    source = bench.root / "logs" / log / "log.txt"
    if source.exists():
        shutil.copyfile(source, folder / "log.txt")
    where = f" at {error.source_line}" if error.source_line else ""
    bench.ui.note(f"{cell.name}: refused, {error.code} {error.message}{where}")
    return Refused(
        format=cell.format,
        precision=cell.precision,
        verdict="fail",
        code=error.code,
        message=f"{error.message}{where}",
        hint=error.hint,
        path=f"failed/{cell.name}",
    )
