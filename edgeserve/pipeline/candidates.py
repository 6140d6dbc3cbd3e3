"""Candidates: each cell converted by a worker of its own, or found already made."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from edgeserve import __version__, backends
from edgeserve.convert import TargetRequest
from edgeserve.errors import (
    BackendError,
    BundleError,
    ConvertError,
    EdgeError,
    UnsupportedOp,
    WorkerError,
)
from edgeserve.files import describe
from edgeserve.pipeline.bench import Bench, Cell
from edgeserve.pipeline.stages import key_of
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.source import Exported

__all__ = ["Candidate", "candidate", "refusal"]

_VERB = "edgeserve.convert.target:convert_target"

#: Errors of one cell: it is refused, the others go on. Anything else stops the command.
_ONE_CELL = (UnsupportedOp, ConvertError, WorkerError, BackendError)


class Candidate(msgspec.Struct, frozen=True):
    """An artifact that awaits the gate.

    Attributes:
        cell: Which.
        artifact: Its files relative to ``root``.
        root: The folder that holds them: a staging folder, or the workspace for one made before.
        key: Stage key of its making.
    """

    cell: Cell
    artifact: Artifact
    root: Path
    key: str


def candidate(bench: Bench, exported: Exported, model_id: str, cell: Cell) -> Candidate | Refused:
    """Make a cell's candidate, or take the one that an earlier run made from the same things."""
    key = key_of(
        model_id,
        exported.signature,
        cell.name,
        {**exported.tools, **backends.get(cell.format).tools(), "edgeserve": __version__},
    )
    made = _made_before(bench, cell, key)
    if made is not None:
        bench.ui.note(f"{cell.name}: unchanged, not converted again")
        return Candidate(cell, made, bench.root, key)
    stage = bench.root / f".tmp-make-{cell.name}"
    try:
        artifact = _convert(bench, cell, stage)
    except _ONE_CELL as error:
        return refusal(bench, cell, error, f"convert-{cell.name}")
    return Candidate(cell, artifact, stage, key)


def _convert(bench: Bench, cell: Cell, stage: Path) -> Artifact:
    stage.mkdir(parents=True)
    request = TargetRequest(
        source_folder=str(bench.root / "source"),
        format=cell.format,  # type: ignore[arg-type]
        precision=cell.precision,  # type: ignore[arg-type]
        out=str(stage),
    )
    title, log = f"convert {cell.name}", f"convert-{cell.name}"
    return bench.work(title, _VERB, request, Artifact, log)


def _made_before(bench: Bench, cell: Cell, key: str) -> Artifact | None:
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


def refusal(bench: Bench, cell: Cell, error: EdgeError, log: str) -> Refused:
    """A cell that could not even be judged; the worker's log is kept under ``failed/``."""
    folder = bench.root / "failed" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    source = bench.root / "logs" / log / "log.txt"
    if source.exists():
        shutil.copyfile(source, folder / "log.txt")
    bench.ui.note(f"{cell.name}: refused, {error.code} {error.message}")
    return Refused(
        format=cell.format,  # type: ignore[arg-type]
        precision=cell.precision,  # type: ignore[arg-type]
        verdict="fail",
        code=error.code,
        message=error.message,
        hint=error.hint,
        path=f"failed/{cell.name}",
    )
