"""What a stage tells the person waiting for it; the command line draws it, scripts stay quiet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from edgeserve.jobs import Progress

__all__ = ["QUIET", "Quiet", "Ui"]


class Ui(Protocol):
    """Where stages report to."""

    def stage(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Show that ``title`` is running until the block ends."""

    def progress(self, step: Progress) -> None:
        """Show how far the running stage is."""

    def note(self, text: str) -> None:
        """Say one line that stays."""


class Quiet:
    """Says nothing."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Run the block."""
        yield

    def progress(self, step: Progress) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


QUIET = Quiet()
