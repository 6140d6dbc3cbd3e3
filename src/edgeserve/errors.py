"""Every error edgeserve raises, and the base class a caller needs to know.

The tree::

    EdgeError                    what `except edgeserve.errors.EdgeError` catches
    ├── UsageError               the call itself is wrong                      exit 2
    ├── CheckFailed              the work was done and a check said no         exit 1
    │   └── UnsupportedOp        the model holds an op the format cannot take  exit 1
    ├── InputError               a raw input or tensor is not what was declared
    ├── DataError                a data set given with --data cannot be used
    ├── FilesError               a file operation failed
    ├── BundleError              a bundle, workspace or manifest breaks its rules
    ├── ProcessingError          a processing step cannot be applied
    ├── BackendError             a runtime or converter is missing or refused
    │   └── MilError             a Core ML package that the interpreter cannot load or run
    ├── ConvertError             a source could not be loaded, exported or converted
    │   └── QuantizeError        another precision could not be made, or not be calibrated
    ├── ValidateError            the gate could not be run
    ├── MeasureError             a measurement could not be taken
    ├── PackageError             a bundle could not be written
    ├── ProfileError             a device or workload profile is unusable
    ├── ReportError              the report could not be rendered
    ├── WrapperError             the Wrapper has no artifact it may run
    ├── FallbackError            the contract with an endpoint is wrong, or nobody could answer
    ├── ServeError               the endpoint could not start, or a request could not be answered
    └── WorkerError              a worker process crashed, hung or was killed

Every error carries a stable ``code`` (``EDGE-CONVERT-012``), one line that says which thing, what
was wanted and what was got, the user's own source line where there is one, and a hint that can be
carried out. ``edgeserve explain CODE`` tells the longer story, kept in
``edgeserve/codes/AREA.toml``.

Third-party exceptions are wrapped at the backend border only, ``from`` the original.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import ClassVar

#: Longest field of an error, in characters; the rest of a converter's outburst stands in the log.
_LONGEST = 800


class EdgeError(Exception):
    """Base of all edgeserve errors.

    Attributes:
        code: Stable identifier, ``EDGE-AREA-NNN``.
        thing: What the error is about (a file, an input, an option), as the user would name it.
        wanted: What was expected of the thing; empty where only ``got`` says something.
        got: What was found instead.
        hint: One sentence the user can act on.
        source_line: The user's own ``file:line`` that led here, where known.

    Each text is kept as one printable line of bounded length.
    """

    exit_code: ClassVar[int] = 3
    area: ClassVar[str] = ""

    def __init_subclass__(cls, area: str = "", exit_code: int | None = None) -> None:
        """Set the class's area, and its exit code where that is not its base's."""
        if area:
            cls.area = area
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(
        self,
        code: str,
        thing: str,
        *,
        got: str,
        wanted: str = "",
        hint: str,
        source_line: str | None = None,
    ) -> None:
        self.code = code
        self.thing = _one_line(thing)
        self.wanted = _one_line(wanted)
        self.got = _one_line(got)
        self.hint = _one_line(hint)
        self.source_line = _one_line(source_line) if source_line else None
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Callable[..., EdgeError], tuple[object, ...]]:
        """Let process pools pickle the error (keyword-only arguments defeat the default)."""
        return _again, (type(self), self.fields())

    @property
    def message(self) -> str:
        """One line: the thing, what was wanted and what was got."""
        expectation = f"wanted {self.wanted}, got {self.got}" if self.wanted else self.got
        return f"{self.thing}: {expectation}"

    def __str__(self) -> str:
        """The message as a terminal shows it: code, message, source line and hint."""
        where = f"\n  at {self.source_line}" if self.source_line else ""
        return f"{self.code} {self.message}{where}\n  hint: {self.hint}"

    def fields(self) -> dict[str, str | None]:
        """What is needed to raise the same error in another process (see `revive`)."""
        return {
            "kind": type(self).__name__,
            "code": self.code,
            "thing": self.thing,
            "wanted": self.wanted,
            "got": self.got,
            "hint": self.hint,
            "source_line": self.source_line,
        }


class UsageError(EdgeError, area="USAGE", exit_code=2):
    """The command line or call is wrong: unknown option value, options that exclude each other."""


class CheckFailed(EdgeError, area="CHECK", exit_code=1):
    """The work was done and a check said no; what was found stands in the report."""


class UnsupportedOp(CheckFailed, area="OP"):
    """The model holds an operator that the asked format cannot express."""


class InputError(EdgeError, area="INPUT"):
    """A raw input (photo, text, audio) or tensor does not fit the declared signature."""


class DataError(EdgeError, area="DATA"):
    """A data set given with ``--data`` cannot be read, split or used."""


class FilesError(EdgeError, area="FILES"):
    """A file operation failed, or a file changed under our hands."""


class BundleError(EdgeError, area="BUNDLE"):
    """A bundle, workspace or manifest breaks one of its rules."""


class ProcessingError(EdgeError, area="PROCESS"):
    """A processing step is unknown, badly configured or cannot be applied."""


class BackendError(EdgeError, area="BACKEND"):
    """A runtime or converter is not installed, or refused a model."""


class MilError(BackendError, area="MIL"):
    """A Core ML package cannot be loaded or run by the interpreter."""


class ConvertError(EdgeError, area="CONVERT"):
    """A source could not be loaded, exported or converted."""


class QuantizeError(ConvertError, area="QUANTIZE"):
    """Another precision could not be made, or not be calibrated."""


class ValidateError(EdgeError, area="VALIDATE"):
    """The gate could not be run (not: the gate said no, which is `CheckFailed`)."""


class MeasureError(EdgeError, area="MEASURE"):
    """A measurement could not be taken."""


class PackageError(EdgeError, area="PACKAGE"):
    """A bundle could not be written."""


class ProfileError(EdgeError, area="PROFILE"):
    """A device or workload profile is unknown or unusable."""


class ReportError(EdgeError, area="REPORT"):
    """The report could not be rendered."""


class WrapperError(EdgeError, area="WRAPPER"):
    """The Wrapper has no artifact that it may run here."""


class FallbackError(EdgeError, area="FALLBACK"):
    """The contract with an endpoint is wrong, or neither device nor endpoint could answer."""


class ServeError(EdgeError, area="SERVE"):
    """The endpoint could not start, or a request could not be answered."""


class WorkerError(EdgeError, area="WORKER"):
    """A worker process crashed, hung or was killed."""


def _one_line(text: str) -> str:
    """Make ``text`` safe for a terminal and a log: one line, bounded, control characters escaped.

    File names and converters' messages go into errors: a line break must not fake a second message,
    an escape sequence not reach the terminal, a lone surrogate not break the JSON.
    """
    flat = " ".join(text.split())
    if not flat.isprintable():
        flat = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def tree(base: type[EdgeError] = EdgeError) -> Iterator[type[EdgeError]]:
    """Every class of errors that is loaded; plugins may add their own."""
    yield base
    for sub in base.__subclasses__():
        yield from tree(sub)


def _again(cls: type[EdgeError], fields: dict[str, str | None]) -> EdgeError:
    return cls(
        fields.get("code") or "EDGE-WORKER-001",
        fields.get("thing") or "",
        wanted=fields.get("wanted") or "",
        got=fields.get("got") or "",
        hint=fields.get("hint") or "",
        source_line=fields.get("source_line"),
    )


def revive(fields: dict[str, str | None]) -> EdgeError:
    """Make the error again that another process wrote down with `EdgeError.fields`.

    It has the class it had there, so that ``except`` clauses and exit codes mean the same on both
    sides; a class that only the other process knows becomes the one of the code's area.
    """
    area = (fields.get("code") or "").removeprefix("EDGE-").rpartition("-")[0]
    by_name = {cls.__name__: cls for cls in tree()}
    by_area = {cls.area: cls for cls in tree() if "area" in vars(cls)}
    return _again(by_name.get(fields.get("kind") or "") or by_area.get(area, EdgeError), fields)


#: Characters that do something to a terminal or to the order of a line instead of being seen: C0
#: and C1 controls (line breaks, tabs, ESC), line and paragraph separators, and Unicode's overrides,
#: embeddings and isolates of writing direction, which make a text read as another one.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def first_control(text: str) -> str | None:
    """The first control character as ``U+XXXX``; None where there is none."""
    found = _CONTROL.search(text)
    return f"U+{ord(found.group()):04X}" if found else None


def escape_controls(text: str, lines: bool = False) -> str:
    r"""The text with control characters written out, as in ``\x1b``: safe to print.

    Args:
        text: From anywhere, such as the labels of a foreign bundle.
        lines: Line breaks are the text's own, and stay.
    """

    def spelled(found: re.Match[str]) -> str:
        character = found.group()
        return character if lines and character == "\n" else ascii(character)[1:-1]

    return _CONTROL.sub(spelled, text)
