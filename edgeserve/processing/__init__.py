"""The processing vocabulary at work: raw bytes to tensors, and tensors to decisions.

::

    processor = Processor(manifest.processing, manifest.signature, manifest.task, manifest.labels)
    sample = processor.prepare("cat.jpg")                 # {"image": float32 [3, 224, 224]}
    outputs = session.run(processor.batch([sample]))
    [answer] = processor.finish(outputs)                  # Classification(label="tabby", ...)

What each step computes, to the last bit, stands in ``docs/processing.md``;
``tests/conformance/processing`` holds the cases that every language has to pass.
"""

from edgeserve.processing.decode import FORMATS, Raw
from edgeserve.processing.processor import Processor
from edgeserve.processing.tensor import normalize_from

__all__ = ["FORMATS", "Processor", "Raw", "normalize_from"]
