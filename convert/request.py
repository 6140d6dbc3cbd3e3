"""What the convert room is asked: SOURCE as the user typed it, and its two verbs' requests.

`parse_source` tells a factory, a file and a folder apart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from edgeserve.errors import ConvertError
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import Value
from edgeserve.types.options import ExportSettings
from edgeserve.types.source import Source, SourceKind
from edgeserve.types.vocabulary import Format, Precision


class ExportRequest(Value, frozen=True):
    """Export a source once, for all formats.

    Attributes:
        source: What to export.
        out: Absolute folder to write ``model.pt2``, ``examples.npz`` and ``source.json`` into.
        settings: Options of the export; a ``task`` goes before the one that the source names.
    """

    source: Source
    out: str
    settings: ExportSettings = ExportSettings()

    @property
    def shapes(self) -> Literal["auto", "dynamic"]:
        """What becomes of a dynamic size with which the export is refused."""
        return "dynamic" if self.settings.shapes == "dynamic" else "auto"


class ReadBackRequest(Value, frozen=True):
    """Run an exported source on its own examples.

    Attributes:
        source_folder: Absolute folder that holds ``source.json`` and the files it names.
    """

    source_folder: str


class TargetRequest(Value, frozen=True):
    """Make one artifact from an exported source.

    Attributes:
        source_folder: Absolute folder that holds ``source.json`` and the files it names.
        format: What to make.
        precision: In what precision.
        out: Absolute folder to write into; the artifact's paths are relative to it.
        routes: Routes to try, in order; empty: the backend's own order.
        options: Settings of the export, by names that the backend lists (`Backend.options`).
        parent: Absolute folder of an fp32 artifact of this format that is already made; None: it
            is made on the way where the precision derives from it.
        parent_artifact: That artifact, its files relative to ``parent``.
        data: Absolute path of the data whose calibration half may be used; None: there is none.
        seed: Seed of the split into halves: the one that the gate splits with.
        calibration: Most samples to calibrate with.
        reduce_range: Quantize weights to 7 bits, for processors whose 8-bit products saturate;
            None: as this machine needs it.
        activation: Type of 8-bit activations: unsigned is faster on x86, signed elsewhere; None:
            as suits this machine.
        keep_float: Source ops (module path or fx node) to keep in float.
    """

    source_folder: str
    format: Format
    precision: Precision
    out: str
    routes: tuple[str, ...] = ()
    options: dict[str, str] = {}
    parent: str | None = None
    parent_artifact: Artifact | None = None
    data: str | None = None
    seed: int = 0
    calibration: int = 64
    reduce_range: bool | None = None
    activation: Literal["u8", "s8"] | None = None
    keep_float: tuple[str, ...] = ()


#: A model's name on the Hugging Face hub.
_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

#: Files that are weights without a model, or the wrong end of the work.
_NO_SOURCE = {
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".ckpt", ".safetensors"),
        "these are weights alone: give the folder with their config.json, or write a factory",
    ),
    ".py": "name the factory in it without the suffix: module:factory",
    ".edge": "that is a finished bundle: use `edgeserve predict` or `edgeserve inspect`",
}


def parse_source(text: str, folder: Path) -> Source:
    """Read a SOURCE.

    Args:
        text: ``package.module:factory``, a Hugging Face folder, an ``.onnx`` or ``.pt2`` file, or
            a workspace; paths relative to ``folder``.
        folder: The user's folder: where paths start and modules may be imported from.

    Raises:
        ConvertError: EDGE-CONVERT-001 not a source, -002 no such file or folder.
    """
    folder = folder.absolute()
    path = folder / text
    if text.strip() and path.exists():
        # Its last part is not resolved: a file in the cache of Hugging Face is a link, and only
        # where that lies it has its name.
        place = path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name
        return Source(kind=_kind(path, text), location=str(place), folder=str(folder))
    if _FACTORY.fullmatch(text) and ".py:" not in text:
        return Source(kind="factory", location=text, folder=str(folder))
    if (
        "/" in text
        or "\\" in text
        or (path.suffix in {".pt2", ".onnx", *_NO_SOURCE} and ":" not in text)
    ):
        where = f"SOURCE {text!r}"
        wanted = "a file or folder"
        hint = _missing_hint(text, folder)
        raise ConvertError("EDGE-CONVERT-002", where, wanted=wanted, got="nothing there", hint=hint)
    raise _no_source(text, _advice(text))


def _missing_hint(text: str, folder: Path) -> str:
    looked = f"check the path; it is looked for in {folder}"
    if _MODEL_ID.fullmatch(text) and not (folder / text).parent.exists():
        get = f"hf download {text} --local-dir DIR"
        return f"{looked}. Nothing is downloaded: `{get}`, then give DIR"
    return looked


def _advice(text: str) -> str:
    if ".py:" in text:
        return f"leave the suffix out and put dots for slashes: {text.replace('.py:', ':')}"
    if re.fullmatch(r"[\w.]+", text):
        return f"name the factory in that module: {text}:FACTORY"
    return "give package.module:factory, a Hugging Face folder, an .onnx or .pt2 file"


def _kind(path: Path, text: str) -> SourceKind:
    if path.is_dir():
        if (path / "manifest.json").exists() or (path / "source" / "source.json").exists():
            return "workspace"
        if (path / "config.json").exists() or (path / "modules.json").exists():
            return "huggingface"
        if revisions := sorted((path / "snapshots").glob("*")):
            inner = f"{text}/snapshots/{revisions[0].name}"
            raise _no_source(text, f"that is an entry of a cache: give {inner}")
        raise _no_source(text, "a folder is a workspace (manifest.json) or a model (config.json)")
    if path.suffix in (".pt2", ".onnx"):
        return "pt2" if path.suffix == ".pt2" else "onnx"
    raise _no_source(
        text, _NO_SOURCE.get(path.suffix, "give an .onnx or .pt2 file, or write a factory")
    )


def _no_source(text: str, hint: str) -> ConvertError:
    wanted = "package.module:factory, a Hugging Face folder, an .onnx or .pt2 file, a workspace"
    return ConvertError("EDGE-CONVERT-001", "SOURCE", wanted=wanted, got=repr(text), hint=hint)
