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

from edgeserve.processing.audio.source import Sound
from edgeserve.processing.image.decode import FORMATS, Raw
from edgeserve.processing.image.tensor import normalize_from
from edgeserve.processing.processor import Processor
from edgeserve.processing.text.tokenizer import Assets

__all__ = ["FORMATS", "Assets", "Processor", "Raw", "Sound", "normalize_from"]
