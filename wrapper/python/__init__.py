"""The Wrapper: `predict` in an app, on the artifact that is proven best on that very device.

    from edgeserve.wrapper import Wrapper

    with Wrapper("tagger.edge") as tagger:
        result = tagger.predict("cat.jpg")

`verify` runs the golden proof of a bundle and returns it as a `Certificate`. This room needs a
runtime, and Pillow or tokenizers, nothing of what converts models.
"""

from edgeserve.wrapper.certificate import Certificate, Proven, verify
from edgeserve.wrapper.wrapper import Wrapper

__all__ = ["Certificate", "Proven", "Wrapper", "verify"]
