"""Processing steps, one file each: what a step holds, what it does, and its way back.

A file that lies here is registered, its step by its tag (``resize/1``): `AnyStep` and
`AnyOutputStep`, by which JSON is read, are made of all of them. A step on pictures is a
`PixelStep`: what it makes of a picture (``apply``) and of its size (``out_size``), and where the
picture's pixels lie in its result (``placement``). What each computes, to the last bit, stands in
``spec/processing.md``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from edgeserve.types.steps import InputStep, OutputStep

__all__ = ["input_steps", "output_steps"]


@cache
def _found() -> tuple[type, ...]:
    """The steps of all files here, by name of the file."""
    names = sorted(module.name for module in iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(
        kind
        for module in modules
        for _, kind in sorted(vars(module).items())
        if isinstance(kind, type) and issubclass(kind, InputStep | OutputStep)
        if kind.__module__ == module.__name__
    )


def input_steps() -> tuple[type[InputStep], ...]:
    """All steps before the model, those of the first rank first."""
    found = [kind for kind in _found() if issubclass(kind, InputStep)]
    return tuple(sorted(found, key=lambda kind: kind.rank))


def output_steps() -> tuple[type[OutputStep], ...]:
    """All steps on one output of the model; those that read a task's record lie with the task."""
    return tuple(kind for kind in _found() if issubclass(kind, OutputStep))
