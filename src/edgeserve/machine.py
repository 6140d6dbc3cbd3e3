"""What failed: the machine, or what was asked of it.

A full disk, missing rights, too many open files or too little memory say nothing about a model.
Whatever they stop is told, is not remembered, and is tried again at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from edgeserve.errors import EdgeError, FilesError
from edgeserve.files import HINTS, named, unreadable
from edgeserve.user_lines import exception_chain

#: Numbers by which a system says that it fails now, and may not fail the next time.
_MACHINE = {*HINTS} - {errno.ENOENT}
#: The same in the words of native code, which raises no OSError.
_WORDS = {os.strerror(number).lower(): number for number in _MACHINE} | dict.fromkeys(
    ("bad_alloc", "bad allocation", "out of memory", "failed to allocate memory"), errno.ENOMEM
)
#: Errors that say so by their code: an error that another process wrote down has no cause.
_CODES = frozenset(
    {"EDGE-FILES-001", "EDGE-FILES-006", "EDGE-FILES-007", "EDGE-BUNDLE-060", "EDGE-BUNDLE-062"}
)


def machine_error(error: BaseException, thing: str) -> EdgeError | None:
    """The coded error where the machine failed; None where it did not.

    Args:
        error: What was raised; it and its causes are looked at.
        thing: What was being done, for an error that has no code yet.
    """
    for each in exception_chain(error):
        if isinstance(each, EdgeError) and each.code in _CODES:
            return each
        if number := _number(each):
            got, hint = os.strerror(number), HINTS[number]
            return FilesError("EDGE-FILES-007", thing, got=got, hint=hint)
    return None


def raise_machine_error(error: BaseException, thing: str) -> None:
    """Raise the machine's error where it is what failed; for use where ``error`` is caught."""
    fault = machine_error(error, thing)
    if fault is error:
        raise error  # with the cause that it has
    if fault is not None:
        raise fault from error


def _number(error: BaseException) -> int | None:
    """The number of the machine's answer in one exception; None where it is not to blame."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _MACHINE else None
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, KeyboardInterrupt):
        return errno.EINTR
    if isinstance(error, EdgeError):  # only a worker that died gives its last words as they were
        text = error.got if error.code == "EDGE-WORKER-002" else ""
    else:
        text = _text(error)
    return next((number for words, number in _WORDS.items() if words in text.lower()), None)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:4096]
    except Exception:  # of somebody else's class
        return ""


@contextlib.contextmanager
def coded(thing: str) -> Iterator[None]:
    """Give what the system raises in the block a code.

    Raises:
        FilesError: EDGE-FILES-007 the machine failed, -002 another answer of the system.
    """
    try:
        yield
    except (OSError, MemoryError) as error:
        found = machine_error(error, thing)
        if found is None and isinstance(error, OSError):
            found = unreadable(error, named(error, Path(thing)))
        raise found or error from error
