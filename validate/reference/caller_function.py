"""The reference as a function of the calling process: called there, asked for from a worker.

A function given to `edgeserve.api` need not be importable (a lambda, a closure over a model that
is loaded, a cell of a notebook). The worker that collects answers sends it raw inputs through
`edgeserve.jobs.ask_parent`, and gets the answers back: MessagePack with arrays in ``.npy`` form,
no pickles. What the function raises ends the worker, and keeps its own trace.
"""

from __future__ import annotations

import inspect
import io
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from edgeserve import jobs
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.tasks.answers import unreadable_answer
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode, encode
from edgeserve.types.records import Record
from edgeserve.validate.reference.python_callable import call_reference

#: MessagePack extensions: an array as a ``.npy`` file, and one answer.
_ARRAY, _ANSWER = 1, 2
_WANTED = "a record of edgeserve, text, numbers, or a dict or list of these, of arrays or tensors"


def function_name(function: object) -> str:
    """How a function is recorded: its import path, in ``<>`` where that does not lead back to it.

    ``server:predict`` can be opened again by any later process, ``<__main__:predict>`` cannot.
    """
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    path = getattr(function, "__qualname__", None) or kind.__qualname__
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    name = f"{module}:{path}"
    return name if found is function and module != "__main__" else f"<{name}>"


class CallerFunction:
    """The calling process's end: the function, called by one worker at a time.

    Args:
        function: Takes a raw input, returns the decision or named tensors.
        folder: The user's folder, for the source line of an error.

    Attributes:
        name: How it is recorded; see `function_name`.

    Raises:
        ValidateError: EDGE-VALIDATE-001, it cannot be called, or only awaited.
    """

    def __init__(self, function: Callable[[RawInput], object], folder: Path) -> None:
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ValidateError(
                "EDGE-VALIDATE-001",
                "reference",
                wanted="a function of one raw input, module:callable, an address or pt2",
                got=f"a {type(function).__name__}" + (" (async)" if callable(function) else ""),
                hint="give a function such as predict(raw), or its import path: server:predict",
            )
        self.name = function_name(function)
        self._function, self._folder = function, folder
        self._lock = threading.Lock()

    def answer(self, message: bytes) -> bytes:
        """Answer the message of a `CallerReference`.

        Raises:
            ValidateError: EDGE-VALIDATE-005 the function raised an exception, -006 its answer has
                none of the forms that a reference answers in.
        """
        asked = _unpack(message)
        with self._lock:
            pairs = zip(asked["raws"], asked["things"], strict=True)
            return _pack([self._one(raw, thing) for raw, thing in pairs])

    def _one(self, raw: RawInput, thing: str) -> object:
        called = f"reference {self.name} on {thing}"
        try:
            answer = call_reference(self._function, raw, called, self._folder)
        except ValidateError as error:
            error.source_line = error.source_line or self._own_line(error.__cause__)
            raise
        try:
            return msgspec.msgpack.Ext(_ANSWER, _packed_answer(answer))
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            called = f"answer of {self.name} to {thing}"
            raise unreadable_answer(called, answer, _WANTED) from error

    def _own_line(self, error: BaseException | None) -> str | None:
        """The line in the function's own file: a cell of a notebook lies in no folder."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        frames = traceback.extract_tb(error.__traceback__) if error and code else []
        own = [f for f in frames if f.filename == code.co_filename]  # type: ignore[union-attr]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else None


class CallerReference:
    """The worker's end: the reference is asked in the process that started this worker.

    Args:
        reference: How the function is recorded.
    """

    #: It is given raw inputs, and prepares them itself.
    takes_raw = True
    #: Who answered is told by its name.
    description = ""

    def __init__(self, reference: str) -> None:
        self.reference = reference

    def close(self) -> None:
        """Nothing is held open."""

    def ask(
        self, raws: Sequence[RawInput], feeds: Sequence[Feed], things: Sequence[str]
    ) -> list[object]:
        """What the function answers to raw inputs."""
        message = _pack({"raws": list(raws), "things": list(things)})
        return list(_unpack(jobs.ask_parent(message)))


def _pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_to_ext)


def _packed_answer(answer: object) -> bytes:
    """One answer: a record as JSON, which keeps its type; anything else as it is."""
    if isinstance(answer, Record):
        return b"r" + encode(answer)
    return b"v" + _pack(answer)


def _unpack(data: bytes) -> Any:
    return msgspec.msgpack.decode(data, ext_hook=_from_ext)


def _to_ext(value: Any) -> object:
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        return value.item()
    if hasattr(value, "detach"):  # a tensor of torch, maybe on a GPU and with a gradient
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.lib.format.write_array(file, value, allow_pickle=False)
        return msgspec.msgpack.Ext(_ARRAY, file.getvalue())
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value).__name__)


def _from_ext(code: int, data: memoryview) -> object:
    if code == _ARRAY:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    kind, body = bytes(data[:1]), bytes(data[1:])
    return decode(body, cast("Any", AnyRecord)) if kind == b"r" else _unpack(body)
