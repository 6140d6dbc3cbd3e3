"""What the user typed as SOURCE, told apart: a factory, a file, a folder."""

from __future__ import annotations

import re
from pathlib import Path

from edgeserve.errors import ConvertError
from edgeserve.types.source import Source, SourceKind

__all__ = ["check_kind", "parse_source"]

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

#: Kinds that are part of the plan, and what to do until they are there.
_NOT_YET: dict[str, str] = {
    "huggingface": "write a factory that loads the folder and returns (module, example inputs)",
    "onnx": "write a factory for the PyTorch module that this file was made from",
}

#: Files that are weights without a model, or the wrong end of the work.
_NO_SOURCE = {
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".ckpt", ".safetensors"),
        "these are weights alone: write a factory that builds the module and loads them",
    ),
    ".py": "name the factory in it without the suffix: module:factory",
    ".edge": "that is a finished bundle: use `edgeserve predict` or `edgeserve inspect`",
}


def parse_source(text: str, folder: Path) -> Source:
    """Read a SOURCE.

    Args:
        text: ``package.module:factory``, a ``.pt2`` file or a workspace; paths relative to
        ``folder``.
        folder: The user's folder: where paths start and modules may be imported from.

    Raises:
        ConvertError: EDGE-CONVERT-001 not a source, -002 no such file or folder, -003 a kind that
        is
            not in this version.
    """
    folder = folder.absolute()
    path = folder / text
    if text.strip() and path.exists():
        source = Source(kind=_kind(path, text), location=str(path.resolve()), folder=str(folder))
        check_kind(source)
        return source
    if _FACTORY.fullmatch(text) and ".py:" not in text:
        return Source(kind="factory", location=text, folder=str(folder))
    if (
        "/" in text
        or "\\" in text
        or (path.suffix in {".pt2", ".onnx", *_NO_SOURCE} and ":" not in text)
    ):
        raise ConvertError(
            "EDGE-CONVERT-002", f"SOURCE {text!r}", wanted="a file or folder", got="nothing there",
            hint=f"check the path; it is looked for in {folder}",
        )  # fmt: skip
    raise _no_source(text, _advice(text))


def _advice(text: str) -> str:
    if ".py:" in text:
        return f"leave the suffix out and put dots for slashes: {text.replace('.py:', ':')}"
    if re.fullmatch(r"[\w.]+", text):
        return f"name the factory in that module: {text}:FACTORY"
    return "give package.module:factory, a .pt2 file or a workspace"


def _kind(path: Path, text: str) -> SourceKind:
    if path.is_dir():
        if (path / "manifest.json").exists() or (path / "source" / "source.json").exists():
            return "workspace"
        if (path / "config.json").exists():
            return "huggingface"
        raise _no_source(text, "a folder is a workspace (manifest.json) or a model (config.json)")
    if path.suffix in (".pt2", ".onnx"):
        return "pt2" if path.suffix == ".pt2" else "onnx"
    raise _no_source(text, _NO_SOURCE.get(path.suffix, "give a .pt2 file, or write a factory"))


def _no_source(text: str, hint: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-001", "SOURCE", wanted="package.module:factory, a .pt2 file or a workspace",
        got=repr(text), hint=hint,
    )  # fmt: skip


def check_kind(source: Source) -> None:
    """Say so when a kind of source is not in this version.

    Raises:
        ConvertError: EDGE-CONVERT-003.
    """
    if source.kind in _NOT_YET:
        raise ConvertError(
            "EDGE-CONVERT-003", f"SOURCE {source.location!r}",
            got=f"a source of the kind {source.kind!r}, which is not in this version of edgeserve",
            hint=_NOT_YET[source.kind],
        )  # fmt: skip
