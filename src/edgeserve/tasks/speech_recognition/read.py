"""A transcript is read as any text is."""

from __future__ import annotations

from edgeserve.tasks.text_generation.read import reader

__all__ = ["reader"]
