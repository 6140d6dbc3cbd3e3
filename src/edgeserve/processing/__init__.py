"""The processing vocabulary at work: raw bytes to tensors, and tensors to decisions.

::

    processor = Processor(
        manifest.processing, manifest.signature, manifest.task, manifest.labels, model.read
    )
    feed = processor.batch([processor.prepare("cat.jpg")])   # {"image": float32 [1, 3, 224, 224]}
    outputs = session.run(feed)
    [answer] = processor.finish(outputs, feed)               # Classification(label="tabby", ...)

What each step computes, to the last bit, stands in ``spec/processing.md``;
``spec/conformance/processing`` holds the cases that every language has to pass.
"""

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
