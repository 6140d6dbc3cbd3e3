"""The synthetic tasks, by name: each is one module that offers a `dev.corpus.tasks.base.Task`."""

from __future__ import annotations

import importlib

from dev.corpus.tasks.base import Task

__all__ = ["NAMES", "task"]

NAMES = ("digits", "topics", "pairs", "voice", "segments", "boxes")


def task(name: str) -> Task:
    """The task of that name (KeyError: none)."""
    if name not in NAMES:
        raise KeyError(name)
    found: Task = importlib.import_module(f"dev.corpus.tasks.{name}").TASK
    return found
