"""The terminal's `Ui`: live bars where there is a terminal, one plain line a stage where not."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from edgeserve.jobs import Progress
    from edgeserve.pipeline.ui import Tell

__all__ = ["Lines", "Live", "terminal_ui"]


class Lines:
    """One line on standard error as each stage ends: for pipes, logs and CI."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Tell]:
        """Run the block, then print the title and its seconds."""
        began = time.monotonic()
        yield _silent
        self.note(f"{title} ({time.monotonic() - began:.1f} s)")

    def note(self, text: str) -> None:
        """Print one line."""
        sys.stderr.write(f"{text}\n")  # in one piece: stages end side by side
        sys.stderr.flush()


class Live:
    """For each running stage a spinner, a bar and its time on standard error, drawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Bars | None = None
        self._running = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Tell]:
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


def _silent(step: Progress) -> None:
    """Say nothing: a log does not need it."""


def terminal_ui() -> Lines | Live:
    """`Live` on a terminal, `Lines` elsewhere."""
    return Live() if sys.stderr.isatty() else Lines()
