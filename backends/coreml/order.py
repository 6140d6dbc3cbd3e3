"""What an export to Core ML is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from edgeserve.errors import ConvertError
from edgeserve.types.source import Exported
from edgeserve.types.words import Precision

__all__ = ["TARGETS", "WHOLE", "Order"]

#: Systems that a package can ask for at least, oldest first. iOS 16 has quantized weights, 17
#: quantized activations, 18 several functions in a file and attention as one operation.
TARGETS = ("iOS16", "iOS17", "iOS18")

#: The route that hands operators to coremltools whole, where it knows them.
WHOLE = "whole"


@dataclass(frozen=True)
class Order:
    """What is to be made.

    Attributes:
        exported: The source.
        route: How its operators reach coremltools.
        precision: fp32, or fp16: 16 bits inside, float32 inputs and outputs.
        options: See `edgeserve.backends.coreml.CoremlBackend`.
    """

    exported: Exported
    route: str
    precision: Precision
    options: dict[str, str]

    @property
    def picture(self) -> str | None:
        """The input that is to be a picture."""
        return self.options.get("image")

    def target(self, functions: int) -> str:
        """The oldest system that a file of so many functions is made for.

        Raises:
            ConvertError: EDGE-CONVERT-054, the asked one is unknown or has no such files.
        """
        least = TARGETS[-1] if functions > 1 else TARGETS[0]
        asked = self.options.get("target", least)
        usable = TARGETS[TARGETS.index(least) :]
        if asked not in usable:
            raise ConvertError(
                "EDGE-CONVERT-054",
                "deployment target",
                wanted=f"one of {list(usable)}",
                got=f"{asked}, for a file with {functions} functions",
                hint=f"leave the target out, or ask for {least}",
            )
        return asked
