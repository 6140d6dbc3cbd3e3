"""Whose line was it: the user's own ``file:line`` behind an exception or a node's stack trace."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

import edgeserve

__all__ = ["line_of_error", "line_of_text", "one_line"]

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')

#: Folders of installed code: a virtual environment often lies inside the user's folder.
_INSTALLED = {"site-packages", "dist-packages"}

#: edgeserve's own folders that a trace of the user's code can pass through, also in a checkout.
_OURS = (
    Path(edgeserve.__file__).parent,
    Path(__file__).parents[1],
    Path(__file__).parents[2] / "convert",
)

#: Installed packages that are never the cause worth showing.
_MACHINERY = {"torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "sympy", "numpy"}


def line_of_error(error: BaseException, folder: Path) -> str | None:
    """The user's ``file:line`` nearest to where ``error`` was raised, or None.

    Args:
        error: As caught, with its traceback; a SyntaxError speaks for itself.
        folder: The user's folder; a line below it is given relative to it.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return _show(error.filename, error.lineno or 1, folder)
    frames = traceback.extract_tb(error.__traceback__)
    own = _nearest(((f.filename, f.lineno or 0) for f in frames), folder)
    return own or line_of_text(str(error), folder)


def line_of_text(text: str, folder: Path) -> str | None:
    """The user's ``file:line`` that stands last in a stack trace printed as text, or None."""
    return _nearest(((path, int(line)) for path, line in _FRAME.findall(text)), folder)


def _nearest(frames: Iterable[tuple[str, int]], folder: Path) -> str | None:
    """The last frame in the user's folder; failing that, the last of a package but machinery."""
    own = package = None
    for path, line in frames:
        if _is_own(path, folder):
            own = _show(path, line, folder)
        elif _is_package(path):
            package = _show(path, line, folder)
    return own or package


def _is_own(path: str, folder: Path) -> bool:
    full = Path(path).absolute()
    if path.startswith("<") or _INSTALLED & set(full.parts):
        return False
    return full.is_relative_to(folder.absolute()) and not any(map(full.is_relative_to, _OURS))


def _is_package(path: str) -> bool:
    parts = Path(path).parts
    inside = next((i for i, part in enumerate(parts) if part in _INSTALLED), None)
    return inside is not None and not _MACHINERY & set(parts[inside + 1 : inside + 2])


def _show(path: str, line: int, folder: Path) -> str:
    full = Path(path).absolute()
    if full.is_relative_to(folder.absolute()):
        return f"{full.relative_to(folder.absolute()).as_posix()}:{line}"
    return f"{full}:{line}"


def one_line(error: BaseException, limit: int = 300) -> str:
    """``Type: first line of the message``, at most ``limit`` characters."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else "no message"
    return f"{type(error).__name__}: {first}"[:limit]
