"""layout/1: the order of an image's axes."""

from __future__ import annotations

from typing import ClassVar, Literal

from edgeserve.types.steps import LevelStep


class Layout(LevelStep, frozen=True, tag_field="step", tag="layout/1"):
    """Reorder the axes of an HWC sample (the batch axis is added by stacking samples)."""

    rank: ClassVar = 3

    order: Literal["CHW", "HWC"]

    @property
    def planar(self) -> bool:
        """See `LevelStep.planar`."""
        return self.order == "CHW"
