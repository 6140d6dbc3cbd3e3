"""The record of a transcript: a text, as of text generation, read by the same step."""

from __future__ import annotations

from edgeserve.tasks.base import TaskSchema
from edgeserve.tasks.text_generation import Picks, Text

__all__ = ["SCHEMA"]

SCHEMA = TaskSchema(Text, unit="tokens", steps=(Picks,), most_flips=0.0)
