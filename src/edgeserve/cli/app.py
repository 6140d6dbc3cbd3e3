"""The commands and their help, how every command runs, and how progress is shown.

Each command is a thin call into `edgeserve.pipeline` or the Wrapper. All run alike: coded
errors, exit codes, JSON on request, clean on Ctrl-C. Progress is live bars where there is a
terminal, one plain line a stage where not.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from edgeserve.errors import EdgeError, UsageError, escape_controls

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from edgeserve.jobs import Progress
    from edgeserve.pipeline.stage_context import ProgressCallback, Ui


#: Where each command lives and what it does: a command is imported and built when it is used, which
#: is what keeps ``edgeserve --help`` quick. A test compares the lines with the commands' own.
COMMANDS: dict[str, tuple[str, str]] = {
    "convert": ("make", "Convert a model and validate each artifact against the reference."),
    "validate": ("make", "Validate again with other data, reference or limits."),
    "measure": ("make", "Measure time and memory of each artifact, in its own process."),
    "package": ("make", "Write the .edge package (all artifacts that did not fail)."),
    "report": ("make", "Write a self-contained HTML report (private: it shows inputs)."),
    "run": ("make", "Run the stages that edgeserve.toml declares, in order."),
    "predict": ("use", "Predict raw inputs with the best validated artifact."),
    "verify": ("use", "Run the golden cases on this device and print a certificate."),
    "serve": ("serving", "Serve bundles over the Open Inference Protocol."),
    "inspect": ("use", "List the contents of a bundle or workspace and check all hashes."),
    "env": ("use", "Manage environments for external exporters (optimum)."),
    "doctor": ("use", "Check this installation: what works, what is missing, how to get it."),
    "profiles": ("use", "List device and workload profiles."),
    "explain": ("use", "Explain an error code."),
}

_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(TyperGroup):
    """Commands built one at a time, on use."""

    def get_params(self, ctx: Any) -> Any:
        """The group's own flags, unset as False: for None typer would load pydantic (100 ms)."""
        listed = super().get_params(ctx)
        for parameter in listed:
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return listed

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"edgeserve.cli.{COMMANDS[cmd_name][0]}")
        single = typer.Typer(
            add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS
        )
        single.command(cmd_name)(module.COMMANDS[cmd_name]())
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=_Commands,
    help="Ship a model to every device, with proof that it decides as your server does.",
    rich_markup_mode=None,  # rich costs 70 ms at every start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    epilog="Exit codes: 0 done, 1 a check failed, 2 usage, 3 error. "
    "`edgeserve explain CODE` tells the story behind an error code.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from edgeserve import __version__

        print(f"edgeserve {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Options before the command."""


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


def show(as_json: bool, document: Callable[[], Any], print_it: Callable[[], None]) -> int:
    """Print what a command found, as one JSON object or for people; its exit code."""
    if as_json:
        print_json(document())
    else:
        print_it()
    return 0


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
    got = str(error) or "no message"
    hint = "this is a fault of edgeserve: please report it with the trace above"
    return EdgeError("EDGE-USAGE-900", type(error).__name__, got=got, hint=hint)


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
        fields = {"code": error.code, "message": error.message, "hint": error.hint}
        if error.source_line:
            fields["source_line"] = error.source_line
        empty: dict[str, Any] = {"model_id": None, "artifacts": [], "refused": []}
        whole = {"schema": 1, **({"out": out, **empty} if out is not None else {}), "error": fields}
        print_json(whole)
    else:
        print(f"edgeserve: {escape_controls(str(error), lines=True)}", file=sys.stderr)
    return error.exit_code


class LiveProgress:
    """For each running stage a spinner, a bar and its time on standard error, drawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Bars | None = None
        self._running = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[ProgressCallback]:
        """Draw a bar until the block ends, then leave a tick and the seconds."""
        began = time.monotonic()
        with self._drawn() as bars:
            task = bars.add_task(title, total=None)

            def tell(step: Progress) -> None:
                bars.update(task, total=step.total or None, completed=step.done)

            try:
                yield tell
            finally:
                bars.remove_task(task)
        self._console.print(f"[green]✓[/] {title} [dim]{time.monotonic() - began:.1f} s[/]")

    @contextlib.contextmanager
    def _drawn(self) -> Iterator[Bars]:
        """The bars, on the screen for as long as any stage runs."""
        with self._lock:
            if self._bars is None:
                self._bars = self._new()
                self._bars.start()
            bars = self._bars
            self._running += 1
        try:
            yield bars
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    bars.stop()
                    self._bars = None

    def _new(self) -> Bars:
        from rich import progress as bars

        columns = (bars.SpinnerColumn(), "{task.description}", bars.BarColumn(24))
        elapsed = bars.TimeElapsedColumn()
        return bars.Progress(*columns, elapsed, console=self._console, transient=True)

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text, markup=False, highlight=False)


def terminal_ui() -> Ui:
    """`LiveProgress` on a terminal, `PlainProgress` elsewhere."""
    from edgeserve.pipeline.stage_context import PlainProgress

    return LiveProgress() if sys.stderr.isatty() else PlainProgress()
