"""The reference as a callable: the user's own server code, fed with raw inputs.

What goes wrong inside it is the user's to fix, so its errors name the user's own line.
References of other kinds are told apart here as well. `parse_answer` brings what a callable may
answer into one form: a decision, or named outputs.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.files import sha256_bytes
from edgeserve.tasks.answers import unreadable_answer
from edgeserve.types.records import Record
from edgeserve.types.tensors import Signature
from edgeserve.types.vocabulary import Task
from edgeserve.user_lines import line_of_error
from edgeserve.validate.reference.endpoint import check_address, endpoint_key

#: The exported program itself, behind the packaged processing.
PT2 = "pt2"

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_endpoint(reference: str) -> bool:
    """Whether a reference is an address."""
    return re.match(r"[a-z]+://", reference) is not None


def check_reference(reference: str) -> None:
    """See that a reference is of a kind that a worker can ask by its name.

    Raises:
        ValidateError: EDGE-VALIDATE-002 an address that is none of REST, -049 a function of a
            Python process that is not at hand, -001 anything else.
    """
    if reference == PT2 or _CALLABLE.fullmatch(reference):
        return
    if is_endpoint(reference):
        check_address(reference)
        return
    if reference.startswith("<"):
        raise ValidateError(
            "EDGE-VALIDATE-049",
            f"reference {reference}",
            wanted="a reference that can be opened again",
            got="a function of the Python process that validated first",
            hint="pass the function again, validate(reference=function), or put it into a module "
            "and name its import path: server:predict",
        )
    raise ValidateError(
        "EDGE-VALIDATE-001",
        f"reference {reference!r}",
        wanted="pt2, module:callable or http(s)://host:port/v2/models/NAME",
        got="none of them",
        hint="name a function that takes a raw input, such as server:predict",
    )


def call_reference(
    function: Callable[[RawInput], object], raw: RawInput, thing: str, folder: Path
) -> object:
    """What a function of the user answers to a raw input.

    Raises:
        ValidateError: EDGE-VALIDATE-005, it raised an exception.
    """
    try:
        return function(raw)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ValidateError(
            "EDGE-VALIDATE-005",
            thing,
            wanted="an answer",
            got=f"{type(error).__name__}: {error}",
            source_line=line_of_error(error, folder),
            hint="fix the function, or leave out inputs that it cannot answer",
        ) from error


def reference_key(reference: str, folder: Path) -> str:
    """Hash over a reference's name and the code it is found in, without running any of it.

    A module's own file counts, or every ``.py`` of the package it lies in; what it imports from
    elsewhere, and weights it loads, do not. Of an endpoint counts what it says of its model.

    Raises:
        ValidateError: an endpoint cannot be asked.
    """
    code = b""
    if is_endpoint(reference):
        code = endpoint_key(reference)
    elif reference != PT2:
        top = reference.partition(":")[0].partition(".")[0]
        code = b"".join(file.read_bytes() for file in _source_files(top, folder))
    return sha256_bytes(reference.encode() + b"\0" + code)


def _source_files(package: str, folder: Path) -> list[Path]:
    """The code of a top-level module, looked for as an import would."""
    spec = PathFinder.find_spec(package, sys.path) or PathFinder.find_spec(package, [str(folder)])
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        folders = [Path(location) for location in spec.submodule_search_locations]
        return [file for each in folders for file in sorted(each.rglob("*.py"))]
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []


class CallableReference:
    """A callable reference, loaded once.

    Args:
        reference: ``module:callable``; the name behind the colon may have dots.
        folder: Appended to ``sys.path``, so that the user's modules are found and shadow nothing.

    Raises:
        ValidateError: EDGE-VALIDATE-003 the module cannot be imported, -004 no such callable.
    """

    def __init__(self, reference: str, folder: Path) -> None:
        self.reference = reference
        self._folder = folder.resolve()
        if str(self._folder) not in sys.path:
            sys.path.append(str(self._folder))
        importlib.invalidate_caches()
        self._function = self._load()

    #: It receives raw inputs, and prepares them itself.
    takes_raw = True
    #: For the report; empty: the reference's name suffices.
    description = ""

    def close(self) -> None:
        """Nothing is held open."""

    def ask(
        self, raws: Sequence[RawInput], feeds: Sequence[Feed], things: Sequence[str]
    ) -> list[object]:
        """What the callable answers to raw inputs: bytes, a text, or named tensors each.

        Raises:
            ValidateError: EDGE-VALIDATE-005, it raised an exception.
        """
        called = [f"reference {self.reference} on {thing}" for thing in things]
        pairs = zip(raws, called, strict=True)
        return [call_reference(self._function, raw, name, self._folder) for raw, name in pairs]

    def _load(self) -> Callable[[RawInput], object]:
        module, _, name = self.reference.partition(":")
        try:
            found: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise ValidateError(
                "EDGE-VALIDATE-003",
                f"reference {self.reference}",
                wanted=f"module {module}",
                got=f"{type(error).__name__}: {error}",
                source_line=line_of_error(error, self._folder),
                hint=f"see that it imports in {self._folder}: python -c 'import {module}'",
            ) from error
        for part in name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise ValidateError(
                "EDGE-VALIDATE-004",
                f"reference {self.reference}",
                wanted=f"a callable {name}",
                got="none of that name" if found is None else type(found).__name__,
                hint="name a function that takes a raw input and returns the decision",
            )
        function: Callable[[RawInput], object] = found
        return function


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer in one of the two forms.

    Attributes:
        record: The decision; None where tensors were given.
        tensors: Named outputs, batch axis included; None where a decision was given.
        scored: ``record`` holds the reference's own scores.
    """

    record: Record | None = None
    tensors: Feed | None = None
    scored: bool = False


def parse_answer(
    answer: object, task: Task, signature: Signature, labels: Sequence[str], thing: str
) -> ParsedAnswer:
    """Read an answer.

    Args:
        answer: What the callable returned.
        task: The model's.
        signature: The model's, for the names of outputs.
        labels: The model's, by index.
        thing: What to call the reference and input in errors.

    Raises:
        ValidateError: EDGE-VALIDATE-006 none of the forms, -007 a class that the model has not.
    """
    names = [spec.name for spec in signature.outputs]
    if isinstance(answer, Mapping) and set(answer) == set(names):
        return ParsedAnswer(tensors=_tensors(answer, signature))
    parser = tasks.answers_of(task)
    if parser is None:
        raise unreadable_answer(thing, answer, f"a dict of the model's outputs {names}")
    record, scored = parser.parse(answer, labels, thing)
    return ParsedAnswer(record=record, scored=scored)


def _tensors(answer: Mapping[str, Any], signature: Signature) -> Feed:
    """Outputs as arrays; a missing batch axis is added."""
    found = {}
    for spec in signature.outputs:
        array = np.asarray(answer[spec.name])
        found[spec.name] = array if array.ndim == len(spec.shape) else array[None]
    return found
