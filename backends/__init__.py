"""Formats and the engines that run them: one folder a format, one contract for all.

    from edgeserve import backends

    onnx = backends.get("onnx")              # imported on first use; "ort" is accepted too
    with onnx.load(artifact, root) as session:
        outputs = session.run({"image": batch})

A third party adds a format through the entry point group ``edgeserve.backends``
(docs/reference/backends.md). Importing this package loads no converter and no engine.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from edgeserve.backends.base import Backend
from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.session import LoadOptions, Session
from edgeserve.errors import BackendError
from edgeserve.types.base import check_word
from edgeserve.types.vocabulary import PRECISIONS, REFERENCE_FORMAT

__all__ = [
    "Backend",
    "Graph",
    "LoadOptions",
    "Op",
    "Session",
    "WeightInfo",
    "canonical",
    "formats",
    "get",
    "in_order",
    "installed",
    "precisions",
    "registered",
    "title",
]

GROUP = "edgeserve.backends"

#: format -> "module:class", in the order of tables.
_BUILT_IN: dict[str, str] = {
    "onnx": "edgeserve.backends.onnx:OnnxBackend",
    "tflite": "edgeserve.backends.tflite:TfliteBackend",
    "coreml": "edgeserve.backends.coreml:CoremlBackend",
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
    """The backend of a format; other spellings of its name (`Backend.spellings`) are accepted.

    Raises:
        BackendError: EDGE-BACKEND-001 unknown format, -003 a registered backend that cannot be
            imported.
    """
    name = canonical(format)
    if name not in _made:
        _made[name] = _make(name, _BUILT_IN.get(name) or formats().get(name), format)
    return _made[name]


def canonical(word: str) -> str:
    """The registered format that a word means, or the word itself where it means none.

    A spelling of a built-in format never means an installed package's.
    """
    name = word.strip().lower()
    if name in _made or name in _BUILT_IN:
        return name
    registered = formats()
    if name in registered:
        return name
    known = (each for each in in_order(registered) if name in _spellings(each))
    return next(known, name)


def registered(format: str) -> bool:
    """Whether a backend is registered for exactly this word."""
    return format in _BUILT_IN or format in formats()


def _spellings(format: str) -> tuple[str, ...]:
    """Other words for a registered format; none of one whose package is broken."""
    try:
        return get(format).spellings
    except BackendError:
        return ()


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Formats in the order of tables: built-in ones first, others by name."""
    order = {format: i for i, format in enumerate(_BUILT_IN)}
    return tuple(sorted(set(words), key=lambda word: (order.get(word, len(order)), word)))


def installed() -> tuple[Backend, ...]:
    """The backends of all formats that a bundle can hold, in the order of tables.

    A format whose package cannot be imported is left out; `get` says why.
    """
    found = []
    for format in in_order(formats()):
        with contextlib.suppress(BackendError):
            if format != REFERENCE_FORMAT:
                found.append(get(format))
    return tuple(found)


def precisions(formats: Iterable[str] | None = None) -> tuple[str, ...]:
    """Precisions that this version understands, then those that only these formats make.

    Args:
        formats: Registered formats; None: all.
    """
    backends = installed() if formats is None else tuple(map(get, formats))
    return tuple(dict.fromkeys((*PRECISIONS, *(p for each in backends for p in each.precisions))))


def title(format: str) -> str:
    """What people call a format; the word itself where no backend tells."""
    try:
        return get(format).title or format
    except BackendError:
        return format


def _make(name: str, dotted: str | None, asked: str) -> Backend:
    if dotted is None:
        raise _unknown(asked)
    module, _, attribute = dotted.partition(":")
    try:
        check_word("format", name)
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # a plugin may fail in any way
        wanted, got = "a backend that can be imported", f"{type(error).__name__}: {error}"
        hint = "reinstall or remove the package that registers it"
        raise _broken(name, dotted, wanted, got, hint) from error
    if not isinstance(made, Backend):
        wanted = "a subclass of edgeserve.backends.Backend"
        hint = "see docs/tutorials/add-a-format.md for what an entry point must name"
        raise _broken(name, dotted, wanted, type(made).__name__, hint)
    if made.format != name:
        wanted = f"one whose format is {name!r}, as the entry point says"
        hint = "give the entry point and the class the same word"
        raise _broken(name, dotted, wanted, repr(made.format), hint)
    return made


def _broken(name: str, dotted: str, wanted: str, got: str, hint: str) -> BackendError:
    backend = f"backend {name!r} ({dotted})"
    return BackendError("EDGE-BACKEND-003", backend, wanted=wanted, got=got, hint=hint)


def _unknown(asked: str) -> BackendError:
    wanted = f"one of {', '.join(formats())}"
    hint = "check the spelling, or install the package that registers this format"
    return BackendError("EDGE-BACKEND-001", "format", wanted=wanted, got=repr(asked), hint=hint)
