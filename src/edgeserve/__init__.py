"""edgeserve: ship a model to every device, with proof.

    from edgeserve import Wrapper

    with Wrapper("tagger.edge") as tagger:
        result = tagger.predict("cat.jpg")   # Classification(label=..., score=..., top=...)
        print(result.label, result.ran_on)

Packages are made by `edgeserve.api` (``api.convert(model, example, out="out")``) or the command
line. Importing this package loads the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeserve.wrapper import Wrapper

__all__ = ["Wrapper", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Wrapper":
        from edgeserve.wrapper import Wrapper

        return Wrapper
    raise AttributeError(f"module 'edgeserve' has no attribute {name!r}")
