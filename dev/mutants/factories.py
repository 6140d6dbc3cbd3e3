"""The programs as factories by name: ``dev.mutants.factories:division``."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from dev.mutants.runner import factory
    from dev.mutants.table import MUTANTS

    if name not in MUTANTS:
        raise AttributeError(name)
    return factory(name)
