"""The verb that exports a source: whatever it is, what lies on disk afterwards is the same.

Before a source is read, its packages are installed and the files that it names are its own. A
model folder from somebody else can hold links and names that point to other files of this machine,
which would then be read, copied and perhaps packaged. So the files that a model names must lie in
its folder, under plain names. Links are normal in one place: the cache of the Hugging Face hub
keeps each file once under ``blobs/`` and links to it from ``snapshots/``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import msgspec

from edgeserve.backends.base import check_file
from edgeserve.backends.reference import reference
from edgeserve.backends.torch import load_examples
from edgeserve.backends.versions import too_old, versions
from edgeserve.convert.options import FactoryOptions, check_labels, write_assets
from edgeserve.convert.request import ExportRequest, ReadBackRequest
from edgeserve.convert.torch_source import SourceModule, call_factory
from edgeserve.errors import BackendError, ConvertError, EdgeError
from edgeserve.files import write_atomic
from edgeserve.installation import install_command
from edgeserve.jobs import progress
from edgeserve.processing.processor import load_processor
from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import decode, encode
from edgeserve.types.processing import Processing
from edgeserve.types.source import Exported, SourceKind

if TYPE_CHECKING:
    from edgeserve.backends.torch.program.io import Program


def check_packages(thing: str, needed: Mapping[str, str]) -> None:
    """Say what to install before a source can be read.

    Args:
        thing: What is to be read.
        needed: Packages, and for each the module that it brings.

    Raises:
        ConvertError: EDGE-CONVERT-060, missing or too old.
    """
    missing = [name for name, module in needed.items() if importlib.util.find_spec(module) is None]
    old = too_old(*needed)
    if missing or old:
        got = f"no {', '.join(missing)}" if missing else "versions that are too old"
        hint = install_command("convert") if missing else str(old)
        raise ConvertError("EDGE-CONVERT-060", thing, wanted=", ".join(needed), got=got, hint=hint)


def resolve_named_file(folder: Path, name: object, named_by: str, *, alone: bool = False) -> Path:
    """The file that a model's own data name, relative to its folder.

    Args:
        folder: The folder of the model.
        name: As it stands in the data.
        named_by: The file in which it stands, for the message.
        alone: Refuse a file that has further names (hard links), which may be somebody else's.

    Raises:
        ConvertError: EDGE-CONVERT-065 it leads elsewhere, -064 there is no such file.
    """
    text = name if isinstance(name, str) else ""
    parts = PurePosixPath(text).parts
    if not text or "\\" in text or "\0" in text or text.startswith("/") or ".." in parts:
        raise _outside_error(f"{named_by}: {name!r}", "a path that leads elsewhere")
    path = folder / text
    _check_link(folder, path)
    if not path.is_file():
        where = f"{named_by}: {text!r}"
        wanted = f"a file in {folder}"
        got = "none of that name"
        hint = "download or copy the model again, with all its files"
        raise ConvertError("EDGE-CONVERT-064", where, wanted=wanted, got=got, hint=hint)
    if alone and path.stat().st_nlink > 1:
        raise _outside_error(f"{named_by}: {text!r}", "a file with a second name (a hard link)")
    return path


def check_links(folder: Path) -> None:
    """Follow every link below a folder.

    Raises:
        ConvertError: EDGE-CONVERT-065, naming the first that leads elsewhere.
    """
    for where, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(where, name)
            if path.is_symlink():
                _check_link(folder, path)


def _check_link(folder: Path, path: Path) -> None:
    """Compare where a path really lies with where it may: in the folder, or among its blobs."""
    real = path.resolve()
    allowed = [folder.resolve(), *_hub_blobs(folder)]
    if not any(real.is_relative_to(place) for place in allowed):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
        raise _outside_error(name, f"a link to {real}")


def _hub_blobs(folder: Path) -> list[Path]:
    """Where the cache keeps the files of ``.../snapshots/REVISION``, if ``folder`` is in one."""
    chain = [folder.absolute(), *folder.absolute().parents]
    return [(place.parent / "blobs").resolve() for place in chain if place.name == "snapshots"][:1]


def _outside_error(thing: str, got: str) -> ConvertError:
    wanted = "a file of the model's own folder"
    hint = "put a copy of the file itself into the folder, under a plain name"
    return ConvertError("EDGE-CONVERT-065", thing, wanted=wanted, got=got, hint=hint)


#: Packages that an export rests on, by kind of source.
_TOOLS: dict[SourceKind, tuple[str, ...]] = {
    "factory": ("torch", "numpy"),
    "module": ("torch", "numpy"),
    "pt2": ("torch", "numpy"),
    "huggingface": ("torch", "numpy", "transformers", "tokenizers", "safetensors"),
}

#: Name of the file that describes an export, beside the files it names.
SOURCE_JSON = "source.json"


def export_source(request: ExportRequest) -> Exported:
    """Export a source into ``request.out``: ``model.pt2``, ``examples.npz``, ``source.json``.

    Raises:
        ConvertError: the source cannot be loaded or exported; the codes are those of the area
        CONVERT.
        ProcessingError: the declared processing does not fit the model.
    """
    out = Path(request.out)
    if request.source.kind == "workspace":
        exported = _copy_export(Path(request.source.location), out)
    else:
        progress("load the source")
        exported = _exported(request, out)
    return complete_export(request, exported)


def complete_export(request: ExportRequest, exported: Exported) -> Exported:
    """Apply what the request says, check labels and processing, write ``source.json``.

    Raises:
        ConvertError: EDGE-CONVERT-084, a label cannot be shown.
        ProcessingError: the declared processing does not fit the model.
    """
    out = Path(request.out)
    if request.settings.task is not None:
        exported = msgspec.structs.replace(exported, task=request.settings.task)
    notes = dict.fromkeys((*exported.notes, *check_labels(exported.labels)))
    exported = msgspec.structs.replace(exported, notes=tuple(notes))
    if exported.processing.inputs or exported.processing.outputs:
        load_processor(exported, out)
    write_atomic(out / SOURCE_JSON, encode(exported))
    return exported


def _exported(request: ExportRequest, out: Path) -> Exported:
    if request.source.kind == "onnx":
        from edgeserve.convert.onnx_source import export_onnx_file

        return export_onnx_file(request.source, out)
    where = Path(request.source.location)
    if request.source.kind == "huggingface":
        from edgeserve.convert.huggingface import load_folder
        from edgeserve.convert.huggingface.model import try_attentions

        return try_attentions(
            lambda attention: load_folder(where, request.settings.task, attention),
            lambda made, shapes: export_module_source(request, made, shapes),
            request.shapes,
        )
    return export_module_source(request, _load(request, where), request.shapes)


def _load(request: ExportRequest, where: Path) -> SourceModule:
    if request.source.kind == "factory":
        return call_factory(request.source)
    from edgeserve.convert.torch_source import load_pt2

    return load_pt2(where, request.settings.trust_pickle)


def export_module_source(
    request: ExportRequest, made: SourceModule, shapes: Literal["auto", "dynamic"]
) -> Exported:
    """Trace a module and write ``model.pt2``, ``examples.npz`` and its assets.

    Raises:
        ConvertError: it cannot be exported.
    """
    from edgeserve.backends.torch.export.export import ExportOptions, export_module
    from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
    from edgeserve.backends.torch.program.io import write_program

    options = made.options
    names = options.input_names, options.output_names
    wishes = ExportOptions(options.dynamic_shapes, *names, made.probes, shapes)
    progress("trace the module")
    program = export_module(made.module, made.examples, wishes, Path(request.source.folder))
    _check_fields(options, program)
    program = _probe_padding(program, options.processing)
    progress("write the program")
    out = Path(request.out)
    entry, examples = write_program(program, out)
    return Exported(
        source=request.source,
        program=entry,
        examples=examples,
        signature=program.signature,
        weights=weights_of(program.program),
        graph_sha256=graph_sha256(program.program),
        task=options.task,
        processing=options.processing,
        labels=options.labels,
        fields=dict(options.fields),
        reference=options.reference,
        assets=write_assets(options.assets, out),
        notes=(*made.notes, *program.notes),
        tools=versions(*_TOOLS[request.source.kind]) | {"python": platform.python_version()},
    )


def _probe_padding(program: Program, processing: Processing) -> Program:
    """Note the dimensions that may be padded with zeros; what a tokenizer pads is known already."""
    import torch

    from edgeserve.backends.torch.export.padding_probe import (
        bounded_dynamic_dims,
        nonempty_inputs,
        paddable_dims,
    )

    signature = program.signature
    text = {d for name in processing.padding for d in signature.input(name).shape}
    dims = [dim for dim in bounded_dynamic_dims(signature) if dim not in text]
    examples = [torch.from_numpy(program.examples[spec.name]) for spec in signature.inputs]
    padded = paddable_dims(program.program, signature, examples, dims)
    filled = [
        dim
        for dim in signature.dims
        if dim in padded or (dim in text and dim != signature.batch_dim)
    ]
    full = nonempty_inputs(program.program, signature, examples, filled, processing.padding)
    signature = msgspec.structs.replace(signature, padded=padded, nonempty=full)
    return dataclasses.replace(program, signature=signature)


def _check_fields(options: FactoryOptions, program: Program) -> None:
    names = [spec.name for spec in program.signature.outputs]
    if unknown := sorted(set(options.fields) - set(names)):
        wanted = f"output names among {names}"
        got = f"{unknown}"
        hint = "call the outputs as output_names does, or as forward's keys do"
        raise ConvertError("EDGE-CONVERT-010", "option 'fields'", wanted=wanted, got=got, hint=hint)


def _copy_export(workspace: Path, out: Path) -> Exported:
    """Take a workspace's own export as it is, its files' hashes compared."""
    folder = workspace / "source"
    exported = read_export(folder)
    out.mkdir(parents=True, exist_ok=True)
    for entry in _files(exported):
        (out / entry.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / entry.path, out / entry.path)
    return exported


def read_back(request: ReadBackRequest) -> Exported:
    """Run an exported source on its examples, in a process that has imported nothing of the user's.

    Raises:
        ConvertError: EDGE-CONVERT-086, it cannot be read or run without what the export imported.
    """
    folder = Path(request.source_folder)
    exported = read_export(folder)
    backend, program = reference(exported)
    try:
        with backend.load(program, folder, verified=True) as session:
            session.run(load_examples(exported, folder))
    except EdgeError as error:
        raise ConvertError(
            "EDGE-CONVERT-086",
            f"exported program {exported.program.path!r}",
            wanted="one that another process can read and run",
            got=error.got or error.message,
            hint="write the model without operators and classes that your own modules register",
        ) from error
    return exported


def _files(exported: Exported) -> tuple[FileEntry, ...]:
    """All files of an export but its description."""
    return (exported.program, exported.examples, *exported.program_data, *exported.assets)


def read_export(folder: Path) -> Exported:
    """Read an export: ``source.json`` in ``folder``, and the files it names hold.

    Raises:
        ConvertError: EDGE-CONVERT-024.
    """
    try:
        exported = decode((folder / SOURCE_JSON).read_bytes(), Exported)
        for entry in _files(exported):
            check_file(entry, folder)
    except (OSError, msgspec.DecodeError, BackendError) as error:
        where = f"export in {str(folder)!r}"
        wanted = "source.json and its files, whole"
        got = str(error).splitlines()[0]
        hint = "convert the original source again"
        raise ConvertError("EDGE-CONVERT-024", where, wanted=wanted, got=got, hint=hint) from error
    return exported
