from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeserve.processing.audio.source import Sound
    from edgeserve.processing.processor import Processor
    from edgeserve.processing.steps.decode import FORMATS, Raw
    from edgeserve.processing.steps.normalize import normalize_from
    from edgeserve.processing.steps.tokenize import Assets

__all__ = ["FORMATS", "Assets", "Processor", "Raw", "Sound", "normalize_from"]

#: Where each name lies: values are read with the steps alone, which are no reason to load a
#: `Processor`.
_HOMES = {
    "FORMATS": "steps.decode",
    "Assets": "steps.tokenize",
    "Processor": "processor",
    "Raw": "steps.decode",
    "Sound": "audio.source",
    "normalize_from": "steps.normalize",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
