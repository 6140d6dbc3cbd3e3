"""Reads a Core ML package from disk, trusting nothing that it says.

A ``.mlpackage`` is a folder: ``Manifest.json`` names the model file below ``Data/``, a protobuf
message, beside which lie files of weights. A bare ``.mlmodel`` is that message alone. Paths are
followed only inside the package and never through links.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgeserve.errors import MilError

__all__ = ["Package", "read_package"]

#: The largest model file; protobuf itself ends at 2 GiB, and weights lie elsewhere.
_MAX_MODEL = (1 << 31) - 1
#: The largest text file (manifest, debug handles).
_MAX_TEXT = 64 << 20


@dataclass(frozen=True)
class Package:
    """A package as read, its program not yet checked.

    Attributes:
        name: The file's or folder's name, for errors.
        spec: The protobuf ``Model``.
        weights: Folder of the weight files; need not exist.
        handles: Numbers of the exporter's nodes by the name of the value they made, where the
            package has them (``executorch_debug_handle_mapping.json``).
    """

    name: str
    spec: Any
    weights: Path
    handles: dict[str, tuple[int, ...]]


def read_package(path: Path) -> Package:
    """Read a ``.mlpackage`` folder or a ``.mlmodel`` file.

    Raises:
        MilError: EDGE-MIL-002, it is none, is damaged or holds no ML program.
    """
    model = _model_file(path) if path.is_dir() else path
    data = _bytes_of(model, _MAX_MODEL, path.name)
    return Package(path.name, _parse(data, path.name), model.parent / "weights", _handles(path))


def _model_file(folder: Path) -> Path:
    """The model file that the manifest names."""
    text = _bytes_of(folder / "Manifest.json", _MAX_TEXT, folder.name)
    try:
        manifest = json.loads(text)
        item = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]
        relative = PurePosixPath(item["path"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(folder.name, f"a manifest that names no model ({error!r})") from error
    if relative.is_absolute() or ".." in relative.parts:
        raise _unreadable(folder.name, f"a manifest that leads outside: {str(relative)!r}")
    try:
        straight = (folder / "Data" / relative).resolve() == folder.resolve() / "Data" / relative
    except (ValueError, OSError):  # no name that a file could have
        straight = False
    if not straight:
        raise _unreadable(folder.name, f"a link in the way of {str(relative)!r}, or no name")
    return folder / "Data" / relative


def _bytes_of(path: Path, most: int, package: str) -> bytes:
    try:
        if path.is_symlink() or not path.is_file():
            raise _unreadable(package, f"no regular file {path.name!r}")
        if (size := path.stat().st_size) > most:
            raise _unreadable(package, f"{path.name!r} of {size} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(package, f"{path.name!r}: {error.strerror}") from error


def _parse(data: bytes, package: str) -> Any:
    """The protobuf message, which must hold an ML program."""
    from coremltools.proto.Model_pb2 import Model

    spec = Model()
    try:
        spec.ParseFromString(data)
    except Exception as error:  # the parser's own kinds, and what it runs out of
        raise _unreadable(package, f"a damaged model file ({error})") from error
    if (kind := spec.WhichOneof("Type")) != "mlProgram":
        raise _unreadable(package, f"{kind or 'nothing'} in place of an ML program")
    return spec


def _handles(path: Path) -> dict[str, tuple[int, ...]]:
    """Debug handles by value; a package without them, or with a damaged file, has none."""
    mapping = path / "executorch_debug_handle_mapping.json"
    if not path.is_dir() or not mapping.is_file() or mapping.stat().st_size > _MAX_TEXT:
        return {}
    found: dict[str, list[int]] = {}
    try:
        for handle, places in json.loads(mapping.read_bytes())["mapping"].items():
            for *_, operation in places if handle.isdigit() else ():
                found.setdefault(str(operation["Output"]), []).append(int(handle))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: tuple(handles) for name, handles in found.items()}


def _unreadable(package: str, got: str) -> MilError:
    return MilError(
        "EDGE-MIL-002",
        f"package {package!r}",
        wanted="a Core ML package with an ML program",
        got=got,
        hint="make the package again, or copy it again from where it is whole",
    )
