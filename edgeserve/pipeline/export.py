"""The export stage: the source becomes ``OUT/source/``, once for all formats."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from edgeserve.bundle.identity import identity_bytes, model_id
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.files import staged, write_atomic
from edgeserve.pipeline.bench import HEAVY, Bench
from edgeserve.pipeline.options import ConvertOptions
from edgeserve.pipeline.preprocess import processing_for
from edgeserve.types.base import decode, encode
from edgeserve.types.source import Exported, Source

__all__ = ["export", "exported_in", "identify"]

_VERB = "edgeserve.convert.source:export_source"


def export(bench: Bench, options: ConvertOptions) -> Exported:
    """Export the source into the workspace; a workspace as its own source is read, not exported.

    Raises:
        ConvertError: the source cannot be loaded or exported.
        UsageError: ``--preprocess`` names nothing usable.
    """
    source = parse_source(options.source, Path.cwd())
    folder = bench.root / "source"
    if _is_self(source, bench.root):
        exported = _overridden(exported_in(bench.root), options)
        write_atomic(folder / "source.json", encode(exported))
        _lay_assets(bench.root, exported)
        return exported
    with staged(folder) as stage:
        request = ExportRequest(
            source=source,
            out=str(stage),
            task=options.task,  # type: ignore[arg-type]
            trust_pickle=options.trust_pickle,
            shapes=options.shapes,  # type: ignore[arg-type]
        )
        exported = bench.work("export", _VERB, request, Exported, "export", HEAVY)
        for note in exported.notes:
            bench.ui.note(f"source: {note}")
        exported = _overridden(exported, options)
        write_atomic(stage / "source.json", encode(exported))
    _lay_assets(bench.root, exported)
    return exported


def _lay_assets(root: Path, exported: Exported) -> None:
    """Put what the processing names (tokenizers) where the manifest and `package` find it."""
    if not exported.assets:
        shutil.rmtree(root / "assets", ignore_errors=True)
        return
    with staged(root / "assets") as stage:
        for entry in exported.assets:
            target = stage / entry.path.removeprefix("assets/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / "source" / entry.path, target)


def exported_in(workspace: Path) -> Exported:
    """What the workspace at this folder was exported from (``source/source.json``)."""
    return decode((workspace / "source" / "source.json").read_bytes(), Exported)


def identify(bench: Bench, exported: Exported) -> str:
    """Write ``identity.json`` and return the model_id that it gives."""
    data = identity_bytes(exported)
    path = bench.root / "identity.json"
    if not path.exists() or path.read_bytes() != data:
        write_atomic(path, data)
    return model_id(data)


def _is_self(source: Source, root: Path) -> bool:
    return source.kind == "workspace" and Path(source.location).resolve() == root.resolve()


def _overridden(exported: Exported, options: ConvertOptions) -> Exported:
    """What the command line says goes before what the source declares."""
    changes: dict[str, object] = {}
    if options.task is not None:
        changes["task"] = options.task
    if options.preprocess is not None:
        changes["processing"] = processing_for(options.preprocess, exported)
    if options.reference is not None:
        changes["reference"] = options.reference
    return msgspec.structs.replace(exported, **changes) if changes else exported
