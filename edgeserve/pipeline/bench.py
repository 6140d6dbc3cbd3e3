"""`Bench`: what every stage works with, a locked workspace and a way to run workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.pipeline.crew import Crew
from edgeserve.pipeline.stages import Stages
from edgeserve.pipeline.ui import Ui
from edgeserve.types.base import Value

__all__ = ["HEAVY", "LIGHT", "Bench", "Cell", "at_work"]

R = TypeVar("R", bound=Value)

#: Bytes that a worker takes before it has seen a model: an engine, or torch and a converter.
LIGHT, HEAVY = 500 << 20, 2 << 30


@dataclass(frozen=True)
class Cell:
    """One thing to make: a format in a precision."""

    format: str
    precision: str

    @property
    def name(self) -> str:
        """``{format}-{precision}``."""
        return f"{self.format}-{self.precision}"


@dataclass(frozen=True)
class Bench:
    """A locked workspace and what is needed to work on it.

    Attributes:
        workspace: Locked for as long as the stage runs.
        stages: Keys of what is done already.
        ui: Where progress is shown.
        timeout: Seconds one worker may take.
        path: Folders that workers append to ``sys.path`` (the user's modules).
        crew: Runs workers side by side.
    """

    workspace: Workspace
    stages: Stages
    ui: Ui
    timeout: float
    path: tuple[str, ...]
    crew: Crew

    @property
    def root(self) -> Path:
        """The workspace's absolute folder."""
        return self.workspace.path.absolute()

    def work(
        self, title: str, verb: str, request: Value, result: type[R], log: str, memory: int = LIGHT
    ) -> R:
        """Run a room's verb in a worker whose log is ``OUT/logs/{log}``, showing its progress.

        It starts when a core is free and ``memory`` bytes are.
        """
        with self.crew.admitted(title, memory), self.ui.stage(title) as tell:
            return jobs.run(
                verb,
                request,
                result,
                self.root / "logs" / log,
                timeout=self.timeout,
                path=self.path,
                on_progress=tell,
                stop=self.crew.stop,
            )


@contextlib.contextmanager
def at_work(out: str, ui: Ui, timeout: float) -> Iterator[Bench]:
    """Lock the workspace, hand out the bench, and leave no half-made thing behind.

    Raises:
        BundleError: another command holds the lock.
    """
    workspace = Workspace(Path(out))
    with workspace.lock():
        workspace.sweep()
        try:
            with Crew() as crew:
                yield Bench(workspace, Stages(workspace), ui, timeout, (str(Path.cwd()),), crew)
        finally:
            workspace.sweep()  # what a stage that failed was working on
