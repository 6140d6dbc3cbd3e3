"""Import coremltools quietly, without its optional packages.

On import coremltools tries nine further packages to see which converters it can offer. Two of them
(torchao, transformers) and scikit-learn are slow to load, and none is used here: without them the
import takes a quarter of the CPU time. Importing coremltools without this module gives the same
library, more slowly.
"""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

#: Packages that coremltools imports for converters of other frameworks.
_OPTIONAL = frozenset(
    "executorch libsvm sklearn tensorflow torchao torchaudio torchvision transformers "
    "xgboost".split()
)

_MACHINERY = ("importlib", "_frozen_importlib")

#: The module of coremltools that converts a program to a package.
_WRITER = "coremltools.converters.mil.backend.mil.load"


class _OptionalImportBlocker:
    """An import hook that hides those packages from coremltools only."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _OPTIONAL and _importing_module().partition(".")[0] == "coremltools":
            raise ModuleNotFoundError(f"{fullname} is left out of coremltools", name=fullname)
        return None


def _importing_module() -> str:
    """Name of the module whose import statement is being carried out in this thread."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""


def coremltools() -> Any:
    """The library; imported on the first call.

    Raises:
        ImportError: it is not installed.
    """
    if "coremltools" in sys.modules:
        return sys.modules["coremltools"]
    hook = _OptionalImportBlocker()
    sys.meta_path.insert(0, hook)
    try:
        with quiet():
            return importlib.import_module("coremltools")
    finally:
        sys.meta_path.remove(hook)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress coremltools' warnings about packages that it was not tested with."""
    logger = logging.getLogger("coremltools")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def validate_once() -> Iterator[None]:
    """Keep coremltools from checking and printing its whole program after each of about 110 passes.

    That takes half of a conversion. The check before a program is written remains and finds a
    broken program. The printed text goes to a disabled log.
    """
    coremltools()
    from coremltools.converters.mil.mil import Program

    validate, to_text = Program.validate, Program.__str__

    def only_written(self: Any, check_essential_scope: bool = False) -> None:
        if sys._getframe(1).f_globals.get("__name__") == _WRITER:
            validate(self, check_essential_scope)

    Program.validate, Program.__str__ = only_written, object.__repr__
    try:
        yield
    finally:
        Program.validate, Program.__str__ = validate, to_text


@contextmanager
def remove_weight_folders() -> Iterator[None]:
    """Remove the temporary folder of weights of each conversion within, once it is no longer used.

    `ct.convert` copies the weights into its package and leaves the folder to the garbage collector,
    which warns of it (ResourceWarning) whenever it runs.
    """
    coremltools()
    from coremltools.converters.mil import converter

    before, folders = converter._tempfile, []

    def make() -> tempfile.TemporaryDirectory[str]:
        folders.append(tempfile.TemporaryDirectory())
        return folders[-1]

    converter._tempfile = SimpleNamespace(TemporaryDirectory=make)
    try:
        yield
    finally:
        converter._tempfile = before
        for folder in folders:
            folder.cleanup()
