"""The export stage: the source becomes ``OUT/source/``, once for all formats.

What the command line says goes before what the source declares; ``--preprocess NAME|FILE`` gives
the processing of a source that does not declare its own.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import msgspec

from edgeserve.bundle.rules import identity_bytes, model_id
from edgeserve.convert import ExportRequest, ReadBackRequest, parse_source
from edgeserve.convert.in_memory import GivenSource, export_given
from edgeserve.convert.options import describe_invalid_value
from edgeserve.errors import UsageError
from edgeserve.files import staged, write_atomic
from edgeserve.options import narrow
from edgeserve.pipeline.stage_context import HEAVY, TORCH, StageContext
from edgeserve.processing import normalize_from
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.base import decode, encode
from edgeserve.types.options import ConvertOptions, ExportSettings
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.source import Exported
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

#: Normalisations that published image classifiers were trained with, by their usual names.
PRESETS: dict[str, Normalize] = {
    "imagenet": normalize_from(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": normalize_from(1 / 255, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "unit": normalize_from(1 / 255, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


def _processing_for(preprocess: str, exported: Exported) -> Processing:
    """The processing that ``--preprocess`` names, fitted to the model's only image input.

    A preset resizes the shorter side to 8/7 of the model's size (bilinear, antialiased), crops the
    middle and normalises: what torchvision and timm do with these names.

    Raises:
        UsageError: EDGE-USAGE-002 unknown name or unreadable file, -003 no image input to fit.
    """
    if preprocess in PRESETS:
        return _preset(PRESETS[preprocess], exported.signature)
    path = Path(preprocess)
    try:
        data = path.read_bytes()
        if path.suffix == ".toml":
            return msgspec.toml.decode(data, type=Processing)
        return decode(data, Processing)
    except OSError as error:
        wanted, got = f"one of {', '.join(PRESETS)} or a file", error.strerror or "no such file"
        raise _bad_preprocess(preprocess, wanted, got) from error
    except msgspec.MsgspecError as error:
        wanted, got = "a processing in JSON or TOML", describe_invalid_value(error)
        raise _bad_preprocess(preprocess, wanted, got) from error


def _bad_preprocess(preprocess: str, wanted: str, got: str) -> UsageError:
    where = f"--preprocess {preprocess}"
    hint = "spec/processing.md shows what a processing file holds"
    return UsageError("EDGE-USAGE-002", where, wanted=wanted, got=got, hint=hint)


def _image_input(signature: Signature) -> tuple[TensorSpec, int, int]:
    spec = signature.inputs[0]
    height, width = (spec.shape[-2:] if len(spec.shape) == 4 else (0, 0)) or (0, 0)
    fits = len(signature.inputs) == 1 and len(spec.shape) == 4 and spec.shape[1] == 3
    if not fits or not isinstance(height, int) or not isinstance(width, int):
        wanted = "a model with one input of shape [batch, 3, height, width]"
        got = ", ".join(f"{s.name} {list(s.shape)}" for s in signature.inputs)
        hint = "write the processing into a file and name that instead"
        raise UsageError("EDGE-USAGE-003", "--preprocess", wanted=wanted, got=got, hint=hint)
    return spec, height, width


def _preset(normalize: Normalize, signature: Signature) -> Processing:
    spec, height, width = _image_input(signature)
    edge = round(min(height, width) * 8 / 7)
    steps: tuple[InputStep, ...] = (
        Decode(),
        Resize(height=edge, width=edge, fit="shortest-edge", filter="bilinear"),
        CenterCrop(height=height, width=width),
        normalize,
        Layout(order="CHW"),
    )
    output = signature.outputs[0].name
    return Processing(
        inputs=(InputProcessing(name=spec.name, steps=steps),),
        outputs=(Softmax(output=output), TopK(output=output, k=5)),
    )


_VERB = "edgeserve.convert.source:export_source"
_READ_BACK = "edgeserve.convert.source:read_back"


def export(
    bench: StageContext, options: ConvertOptions, given: GivenSource | None = None
) -> Exported:
    """Export the source into the workspace; a workspace as its own source is read, not exported.

    A module of this process is exported here, and what torch prints goes where a worker's output
    goes, to ``OUT/logs/export``.

    Raises:
        ConvertError: the source cannot be loaded or exported.
        UsageError: ``--preprocess`` names nothing usable.
    """
    source = given.source if given else parse_source(options.source, Path.cwd())
    folder = bench.root / "source"
    if source.kind == "workspace" and Path(source.location).resolve() == bench.root.resolve():
        exported = _overridden(read_exported(bench.root), options)
        write_atomic(folder / "source.json", encode(exported))
        _lay_assets(bench.root, exported)
        return exported
    with staged(folder) as stage:
        request = ExportRequest(
            source=source, out=str(stage), settings=narrow(ExportSettings, options)
        )
        if given is None:
            exported = bench.work(
                "export", _VERB, request, Exported, "export", HEAVY, imports=TORCH
            )
        else:
            exported = _export_here(bench, request, given)
        _read_back(bench, stage)
        for note in exported.notes:
            bench.ui.note(f"source: {note}")
        exported = _overridden(exported, options)
        write_atomic(stage / "source.json", encode(exported))
    _lay_assets(bench.root, exported)
    return exported


def _read_back(bench: StageContext, stage: Path) -> None:
    """Find out before any format starts whether other processes can use the program."""
    request = ReadBackRequest(source_folder=str(stage))
    bench.work("read back", _READ_BACK, request, Exported, "read-back", HEAVY, imports=TORCH)


def _export_here(bench: StageContext, request: ExportRequest, given: GivenSource) -> Exported:
    log = bench.root / "logs" / "export" / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        bench.ui.stage("export"),
        open(log, "w", encoding="utf-8") as out,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        return export_given(request, given)


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


def read_exported(workspace: Path) -> Exported:
    """What the workspace at this folder was exported from (``source/source.json``)."""
    return decode((workspace / "source" / "source.json").read_bytes(), Exported)


def write_identity(bench: StageContext, exported: Exported) -> str:
    """Write ``identity.json`` and return the model_id that it gives."""
    data = identity_bytes(exported)
    path = bench.root / "identity.json"
    if not path.exists() or path.read_bytes() != data:
        write_atomic(path, data)
    return model_id(data)


def _overridden(exported: Exported, options: ConvertOptions) -> Exported:
    """What the command line says goes before what the source declares."""
    changes: dict[str, object] = {}
    if options.task is not None:
        changes["task"] = options.task
    if options.preprocess is not None:
        changes["processing"] = _processing_for(options.preprocess, exported)
    if options.reference is not None:
        changes["reference"] = options.reference
    return msgspec.structs.replace(exported, **changes) if changes else exported
