"""What a stage tells the person waiting for it; the command line draws it, scripts stay quiet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from edgeserve.jobs import Progress

__all__ = ["QUIET", "Quiet", "Tell", "Ui"]

#: What moves the bar of one running stage.
Tell = Callable[[Progress], None]


class Ui(Protocol):
    """Where stages report to. Stages may run side by side, each in a thread of its own."""

    def stage(self, title: str) -> contextlib.AbstractContextManager[Tell]:
        """Show that ``title`` is running until the block ends; gives what moves its bar."""

    def note(self, text: str) -> None:
        """Say one line that stays."""


class Quiet:
    """Says nothing."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Tell]:
        """Run the block."""
        yield lambda step: None

    def note(self, text: str) -> None:
        """Say nothing."""


QUIET = Quiet()
