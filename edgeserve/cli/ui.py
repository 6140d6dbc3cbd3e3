"""The terminal's `Ui`: a live line where there is a terminal, one plain line a stage where not."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from edgeserve.jobs import Progress

__all__ = ["Lines", "Live", "terminal_ui"]


class Lines:
    """One line on standard error as each stage ends: for pipes, logs and CI."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Run the block, then print the title and its seconds."""
        began = time.monotonic()
        yield
        print(f"{title} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)

    def progress(self, step: Progress) -> None:
        """Say nothing: a log does not need it."""

    def note(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)


class Live:
    """A spinner, a bar and the elapsed time on standard error, drawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Bars | None = None

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Draw a bar until the block ends, then leave a tick and the seconds."""
        from rich import progress as bars

        columns = (bars.SpinnerColumn(), "{task.description}", bars.BarColumn(24))
        began = time.monotonic()
        with bars.Progress(
            *columns, bars.TimeElapsedColumn(), console=self._console, transient=True
        ) as self._bars:
            self._bars.add_task(title, total=None)
            yield
        self._bars = None
        self._console.print(f"[green]✓[/] {title} [dim]{time.monotonic() - began:.1f} s[/]")

    def progress(self, step: Progress) -> None:
        """Move the running bar."""
        if self._bars is not None and self._bars.task_ids:
            self._bars.update(self._bars.task_ids[0], total=step.total or None, completed=step.done)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self._console.print(text, markup=False, highlight=False)


def terminal_ui() -> Lines | Live:
    """`Live` on a terminal, `Lines` elsewhere."""
    return Live() if sys.stderr.isatty() else Lines()
