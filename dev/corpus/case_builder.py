"""Makes what a case needs: the export of a network, its honest artifacts, and the damaged one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from dev.corpus.cases import Case
from dev.corpus.damage import processing, quantizer
from dev.corpus.damage.file_parts import damaged, open_file
from dev.corpus.damage.files import EDITS
from dev.corpus.kinds import KINDS
from dev.corpus.nets import Net
from dev.corpus.paths import OUT, REPO, write_atomic
from dev.corpus.tasks.base import write_data
from edgeserve.convert.request import ExportRequest, TargetRequest
from edgeserve.convert.source import export_source
from edgeserve.convert.target import convert_target
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode, encode
from edgeserve.types.source import Source
from edgeserve.validate.collect import collect_answers
from edgeserve.validate.requests import AnswersRequest


@dataclass(frozen=True)
class BuiltCase:
    """A case, ready to be judged.

    Attributes:
        artifact: The artifact.
        root: Folder of its files.
        source: Folder of the export that it is packaged with.
        samples: Folder of the reference's answers.
    """

    artifact: Artifact
    root: Path
    source: Path
    samples: Path


def build_case(case: Case) -> BuiltCase:
    """Make a case, or find what is already made of it.

    Raises:
        LookupError: the artifact has nothing of the sort that the kind damages.
    """
    kind, net, home = KINDS[case.kind], case.of, OUT / "nets" / case.net
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):  # what cases share; what is one case's own needs none
        source, samples = _source(net, home / "source"), home / "samples"
        if kind.place not in ("network", "quantizer"):
            artifact, root = _undamaged(case, source, home)
        if not (samples / "answers.json").is_file():
            _collect_answers(net, source, samples)
    if kind.place == "network":
        artifact, root = _changed(case, home)
    elif kind.place == "processing":
        source, samples = _packaged(case, source, home)
    elif kind.place == "file":
        artifact, root = _edited(case, artifact, root, home)
    elif kind.place == "quantizer":
        artifact, root = _requantized(case, source, home)
    return BuiltCase(artifact, root, source, samples)


def _undamaged(case: Case, source: Path, home: Path, precision: str = "") -> tuple[Artifact, Path]:
    precision = precision or case.precision
    return _converted(home / "artifacts", source, case.format, precision, case.of)


def _damaged(case: Case, home: Path) -> Path:
    return home / "damaged" / f"{case.format}-{case.precision}-{case.kind}-{case.severity}"


def _edited(case: Case, artifact: Artifact, root: Path, home: Path) -> tuple[Artifact, Path]:
    """The honest file with other numbers in it."""
    opened, out = open_file(artifact, root), _damaged(case, home)
    EDITS[case.kind](opened, float(str(case.value)), np.random.default_rng(11))
    return damaged(artifact, root, opened, out), out


def _requantized(case: Case, source: Path, home: Path) -> tuple[Artifact, Path]:
    """The honest fp32 file, quantized with the wrong samples."""
    out, data = _damaged(case, home), str(write_data(case.of.of))
    with FileLock(home / "lock"):
        parent, root = _undamaged(case, source, home, "fp32")
    shutil.rmtree(out, ignore_errors=True)
    value = float(str(case.value))
    return quantizer.quantized(case.kind, value, parent, root, source, data, out), out


def _source(net: Net, folder: Path, damage: str = "") -> Path:
    """Export a network, changed or not."""
    if not (folder / "source.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = Source(kind="factory", location=net.factory(damage), folder=str(REPO))
        export_source(ExportRequest(source=source, out=str(folder)))
    return folder


def _collect_answers(net: Net, source: Path, samples: Path) -> None:
    """Ask the server about the data that the gate judges on."""
    request = AnswersRequest(
        source_folder=str(source),
        out=str(samples),
        data=str(write_data(net.of)),
        reference=net.reference,
        folder=str(REPO),
        golden=0,
    )
    collect_answers(request)


def _packaged(case: Case, source: Path, home: Path) -> tuple[Path, Path]:
    """Another processing around the right file; the server's answers stay what they are."""
    folder = home / "packaged" / f"{case.kind}-{case.severity}"
    if not (folder / "source" / "source.json").is_file():
        processing.repackaged(case.kind, case.severity, source, folder / "source")
    if not (folder / "samples" / "answers.json").is_file():
        _collect_answers(case.of, folder / "source", folder / "samples")
    return folder / "source", folder / "samples"


def _changed(case: Case, home: Path) -> tuple[Artifact, Path]:
    """An artifact of a changed network."""
    tag = f"{case.kind.replace('-', '_')}__{case.severity}"
    folder = home / "changed" / tag
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        source = _source(case.of, folder / "source", tag)
        return _converted(folder, source, case.format, case.precision, case.of)


def _converted(
    folder: Path, source: Path, format: str, precision: str, net: Net
) -> tuple[Artifact, Path]:
    out = folder / f"{format}-{precision}"
    said = out.with_suffix(".json")
    if said.is_file():
        return decode(said.read_bytes(), Artifact), out
    shutil.rmtree(out, ignore_errors=True)
    parent: tuple[Artifact, Path] | None = None
    if precision in ("w8", "w8a8"):
        parent = _converted(folder, source, format, "fp32", net)
    request = TargetRequest(
        source_folder=str(source),
        format=format,
        precision=precision,
        out=str(out),  # type: ignore[arg-type]
        parent=str(parent[1]) if parent else None,
        parent_artifact=parent[0] if parent else None,
        data=str(write_data(net.of)),
    )
    artifact = convert_target(request)
    write_atomic(said, encode(artifact))
    return artifact, out
