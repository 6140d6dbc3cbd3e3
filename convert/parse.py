"""What the user typed as SOURCE, told apart: a factory, a file, a folder."""

from __future__ import annotations

import re
from pathlib import Path

from edgeserve.errors import ConvertError
from edgeserve.types.source import Source, SourceKind

__all__ = ["parse_source"]

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
        raise ConvertError(
            "EDGE-CONVERT-002",
            f"SOURCE {text!r}",
            wanted="a file or folder",
            got="nothing there",
            hint=_missing_hint(text, folder),
        )
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
    return ConvertError(
        "EDGE-CONVERT-001",
        "SOURCE",
        wanted="package.module:factory, a Hugging Face folder, an .onnx or .pt2 file, a workspace",
        got=repr(text),
        hint=hint,
    )
