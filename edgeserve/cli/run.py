"""How every command runs: coded errors, exit codes, JSON on request, clean on Ctrl-C."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import typer

from edgeserve.errors import EdgeError, UsageError
from edgeserve.types.controls import escaped

__all__ = ["Json", "command", "print_json", "usage"]

#: The ``--json`` option that every command has.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

#: Commands that begin afresh: there is nothing to go on with.
_AFRESH = ("package", "serve")
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def print_json(document: Any) -> None:
    """Print one JSON object; already encoded bytes are printed as they are."""
    import json

    text = document.decode() if isinstance(document, bytes) else json.dumps(document)
    sys.stdout.write(text + "\n")


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a typer command of ``function``, whose return value is the exit code (None: 0).

    SIGTERM is handled as Ctrl-C is: workers are ended, nothing half-written stays.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, _terminated)
        as_json = bool(kwargs.get("json_"))
        try:
            code = function(*args, **kwargs) or 0
        except EdgeError as error:
            code = _report(error, as_json, kwargs.get("out"))
        except KeyboardInterrupt:
            _report(_interrupted(function.__name__), as_json, kwargs.get("out"))
            code = _INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has gone: nothing to say, nobody to tell
            code = 0
        except Exception as error:
            import traceback

            traceback.print_exc()
            code = _report(_unexpected(error), as_json, kwargs.get("out"))
        raise typer.Exit(code)

    return run


def usage(message: str, as_json: bool) -> int:
    """Report a command line that could not be understood; the text itself is typer's."""
    error = UsageError(
        "EDGE-USAGE-006",
        "command line",
        got=message,
        hint="`edgeserve --help` lists the commands, `edgeserve COMMAND --help` their options",
    )
    return _report(error, as_json)


def _unexpected(error: Exception) -> EdgeError:
    return EdgeError(
        "EDGE-USAGE-900",
        type(error).__name__,
        got=str(error) or "no message",
        hint="this is a fault of edgeserve: please report it with the trace above",
    )


def _interrupted(name: str) -> EdgeError:
    return UsageError(
        "EDGE-USAGE-007",
        "command",
        got="interrupted",
        hint="nothing half-written stays: run it again"
        if name in _AFRESH
        else "the same command resumes where it stopped",
    )


def _report(error: EdgeError, as_json: bool, out: object = None) -> int:
    """Say what went wrong, as JSON in the same shape as an answer, and return the exit code."""
    if as_json:
        said = {"code": error.code, "message": error.message, "hint": error.hint}
        if error.source_line:
            said["source_line"] = error.source_line
        empty: dict[str, Any] = {"model_id": None, "artifacts": [], "refused": []}
        whole = {"schema": 1, **({"out": out, **empty} if out is not None else {}), "error": said}
        print_json(whole)
    else:
        print(f"edgeserve: {escaped(str(error), lines=True)}", file=sys.stderr)
    return error.exit_code
