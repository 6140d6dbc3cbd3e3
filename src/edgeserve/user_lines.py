"""Whose line was it: the user's own ``file:line`` behind an exception or a node's stack trace."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import edgeserve

_CLASS = re.compile(r"<class '([^']+)'>")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
#: Characters of a message that are looked at.
_MOST_TEXT = 1 << 16

#: Folders of installed code: a virtual environment often lies inside the user's folder.
_INSTALLED = {"site-packages", "dist-packages"}

#: edgeserve's own folders that a trace of the user's code can pass through, also in a checkout.
#: A checkout's rooms are links, and a frame may bear the path before or behind one.
_PACKAGE = Path(edgeserve.__file__).parent
_OWN_FOLDERS = (_PACKAGE, *(part.resolve() for part in _PACKAGE.iterdir() if part.is_dir()))

#: Python's own library.
_STDLIB = Path(traceback.__file__).parent

#: Installed packages that are never the cause worth showing.
_MACHINERY = {"torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "sympy", "numpy"}


def line_of_error(error: BaseException, folder: Path) -> str | None:
    """The user's ``file:line`` nearest to where ``error`` was raised, or None.

    Args:
        error: As caught, with its traceback; a SyntaxError speaks for itself.
        folder: The user's folder; a line below it is given relative to it.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return _format_line(error.filename, error.lineno or 1, folder)
    frames = traceback.extract_tb(error.__traceback__)
    own = _nearest(((f.filename, f.lineno or 0) for f in frames), folder)
    return own or line_of_text(message_of(error), folder)


def line_of_text(text: str, folder: Path) -> str | None:
    """The user's ``file:line`` that stands last in a stack trace printed as text, or None."""
    return _nearest(((path, int(line)) for path, line in _FRAME.findall(text)), folder)


def user_line(path: str, line: int, folder: Path) -> str | None:
    """A ``file:line`` as errors show it, of the user's or a package's code; None of any other."""
    return _nearest([(path, line)], folder)


def _nearest(frames: Iterable[tuple[str, int]], folder: Path) -> str | None:
    """The last frame in the user's folder; failing that, the last of a package but machinery."""
    own = package = None
    for path, line in frames:
        if _is_own(path, folder):
            own = _format_line(path, line, folder)
        elif _is_package(path):
            package = _format_line(path, line, folder)
    return own or package


def _is_own(path: str, folder: Path) -> bool:
    full = Path(path).absolute()
    if path.startswith("<") or _INSTALLED & set(full.parts):
        return False
    return full.is_relative_to(folder.absolute()) and not any(
        map(full.is_relative_to, _OWN_FOLDERS)
    )


def _is_package(path: str) -> bool:
    return bool(_INSTALLED & set(Path(path).parts)) and not _is_machinery(Path(path))


def _is_machinery(path: Path) -> bool:
    parts = path.parts
    inside = next((i for i, part in enumerate(parts) if part in _INSTALLED), None)
    return inside is not None and bool(_MACHINERY & set(parts[inside + 1 : inside + 2]))


def _format_line(path: str, line: int, folder: Path) -> str:
    full = Path(path).absolute()
    if full.is_relative_to(folder.absolute()):
        return f"{full.relative_to(folder.absolute()).as_posix()}:{line}"
    return f"{full}:{line}"


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from, outermost first; nothing of None."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def one_line(error: BaseException) -> str:
    """``Type: first line of the message``, at most 300 characters.

    A line that ends in a colon announces the next one, which is then joined to it.
    """
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    first = lines[0] if lines else "no message"
    if first.endswith(":") and len(lines) > 1:
        first = f"{first} {lines[1]}"
    first = _CLASS.sub(lambda found: found[1].rpartition(".")[2], first)
    return f"{type(error).__name__}: {first}"[:300].rstrip(" :")


def _text(error: BaseException) -> str:
    """What an exception says. A KeyError shows its key as code, line breaks spelt out."""
    only = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else None
    return only if isinstance(only, str) and "\n" in only else message_of(error)


def message_of(error: BaseException) -> str:
    """The message of an exception of somebody else's, of whatever length and kind."""
    try:
        return str(error)[:_MOST_TEXT]
    except BaseException as other:
        return f"no message: its __str__ raises {type(other).__name__}"


def is_user_frame(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is of a person's or a package's code, not of torch's, Python's or ours."""
    return _is_user_file(frame.filename)


@cache  # torch asks for every frame of every op of an export
def _is_user_file(name: str) -> bool:
    path = Path(name)
    if name.startswith("<") or path.is_relative_to(_STDLIB):
        return _is_package(name)
    return not any(map(path.is_relative_to, _OWN_FOLDERS)) and not _is_machinery(path)
