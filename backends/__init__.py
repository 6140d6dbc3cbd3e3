"""Formats and the engines that run them: one folder a format, one contract for all.

    from edgeserve import backends

    onnx = backends.get("onnx")              # imported on first use; "ort" is accepted too
    with onnx.load(artifact, root) as session:
        outputs = session.run({"image": batch})

A third party adds a format through the entry point group ``edgeserve.backends``
(docs/reference/backends.md). Importing this package loads no converter and no engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from edgeserve.backends.base import Backend
from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.session import Session
from edgeserve.errors import BackendError
from edgeserve.types.vocabulary import FORMAT_SPELLINGS

__all__ = ["Backend", "Graph", "Op", "Session", "WeightInfo", "formats", "get"]

GROUP = "edgeserve.backends"

#: format -> "module:class". Sorted by name.
_BUILT_IN: dict[str, str] = {
    "coreml": "edgeserve.backends.coreml:CoremlBackend",
    "onnx": "edgeserve.backends.onnx:OnnxBackend",
    "tflite": "edgeserve.backends.tflite:TfliteBackend",
    "torch": "edgeserve.backends.torch:TorchBackend",
}

_made: dict[str, Backend] = {}


def formats() -> Mapping[str, str]:
    """All registered formats, name to dotted path (``module:class``), as a read-only view.

    A built-in format cannot be replaced by an installed package: what proves a model stays ours.
    """
    found = {point.name: point.value for point in entry_points(group=GROUP)}
    return MappingProxyType(dict(sorted((found | _BUILT_IN).items())))


def get(format: str) -> Backend:
    """The backend of a format; other spellings of its name (`FORMAT_SPELLINGS`) are accepted.

    Raises:
        BackendError: EDGE-BACKEND-001 unknown format, -003 a registered backend that cannot be
            imported.
    """
    word = format.strip().lower()
    name = FORMAT_SPELLINGS.get(word, word)
    if name not in _made:
        _made[name] = _make(name, _BUILT_IN.get(name) or formats().get(name), format)
    return _made[name]


def _make(name: str, dotted: str | None, asked: str) -> Backend:
    if dotted is None:
        raise _unknown(asked)
    module, _, attribute = dotted.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # a plugin may fail in any way
        raise BackendError(
            "EDGE-BACKEND-003",
            f"backend {name!r} ({dotted})",
            wanted="a backend that can be imported",
            got=f"{type(error).__name__}: {error}",
            hint="reinstall or remove the package that registers it",
        ) from error
    if not isinstance(made, Backend):
        raise BackendError(
            "EDGE-BACKEND-003",
            f"backend {name!r} ({dotted})",
            wanted="a subclass of edgeserve.backends.Backend",
            got=type(made).__name__,
            hint="see docs/reference/backends.md for what an entry point must name",
        )
    return made


def _unknown(asked: str) -> BackendError:
    return BackendError(
        "EDGE-BACKEND-001",
        "format",
        wanted=f"one of {', '.join(formats())}",
        got=repr(asked),
        hint="check the spelling, or install the package that registers this format",
    )
