"""`StageContext`: what every stage works with.

A locked workspace, a way to run workers, what has been done already, and what tells the person
who waits (the command line draws it, scripts stay quiet).

The same command again does only the rest, by a key per stage: a hash over everything that the
stage's result depends on, which is the model's identity, the recipe, tool versions, data,
reference and limits. Keys lie in ``OUT/reports/stages.json``; losing the file costs time, never
correctness.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import EdgeError
from edgeserve.files import sha256_bytes, write_atomic
from edgeserve.jobs import Progress
from edgeserve.machine import raise_machine_error
from edgeserve.pipeline.scheduler import WorkerPool
from edgeserve.types.base import Value, decode, encode

if TYPE_CHECKING:
    from edgeserve.validate.reference.caller_function import CallerFunction


#: What moves the bar of one running stage.
ProgressCallback = Callable[[Progress], None]


class Ui(Protocol):
    """Where stages report to. Stages may run side by side, each in a thread of its own."""

    def stage(self, title: str) -> contextlib.AbstractContextManager[ProgressCallback]:
        """Show that ``title`` is running until the block ends; gives what moves its bar."""

    def note(self, text: str) -> None:
        """Say one line that stays."""


class Quiet:
    """Says nothing."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[ProgressCallback]:
        """Run the block."""
        yield lambda step: None

    def note(self, text: str) -> None:
        """Say nothing."""


QUIET = Quiet()


class PlainProgress:
    """One line on standard error as each stage ends: for pipes, logs and CI."""

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[ProgressCallback]:
        """Run the block, then print the title and its seconds."""
        began = time.monotonic()
        yield lambda step: None
        self.note(f"{title} ({time.monotonic() - began:.1f} s)")

    def note(self, text: str) -> None:
        """Print one line."""
        sys.stderr.write(f"{text}\n")  # in one piece: stages end side by side
        sys.stderr.flush()


class _Keys(Value, frozen=True):
    keys: dict[str, str] = {}


def stage_key(*parts: object) -> str:
    """sha256 over the canonical JSON of ``parts``."""
    return sha256_bytes(encode(list(parts)))


class StageCache:
    """The keys of one workspace. Stages that run side by side share it."""

    def __init__(self, workspace: Workspace) -> None:
        self._path = workspace.reports / "stages.json"
        self._lock = threading.Lock()
        self._keys = self._read()

    def _read(self) -> dict[str, str]:
        try:
            return dict(decode(self._path.read_bytes(), _Keys).keys)
        except (OSError, msgspec.MsgspecError):
            return {}

    def done(self, stage: str, key: str) -> bool:
        """Whether ``stage`` was finished with exactly this key."""
        return self._keys.get(stage) == key

    def finish(self, stage: str, key: str) -> None:
        """Remember that ``stage`` is finished."""
        with self._lock:
            self._keys[stage] = key
            write_atomic(self._path, encode(_Keys(keys=self._keys)))

    def forget(self, stage: str) -> None:
        """Forget ``stage``, so that it runs again."""
        with self._lock:
            if self._keys.pop(stage, None) is not None:
                write_atomic(self._path, encode(_Keys(keys=self._keys)))


R = TypeVar("R", bound=Value)

#: Bytes that a worker takes before it has seen a model: an engine, or torch and a converter.
LIGHT, HEAVY = 500 << 20, 2 << 30
#: What every worker that exports a model or runs its program imports: most of its CPU time.
TORCH = ("torch._dynamo", "torch.export._trace")


@dataclass(frozen=True)
class Variant:
    """One thing to make: a format in a precision."""

    format: str
    precision: str

    @property
    def name(self) -> str:
        """``{format}-{precision}``."""
        return f"{self.format}-{self.precision}"


@dataclass(frozen=True)
class StageContext:
    """A locked workspace and what is needed to work on it.

    Attributes:
        workspace: Locked for as long as the stage runs.
        stages: Keys of what is done already.
        ui: Where progress is shown.
        timeout: Seconds one worker may take.
        path: Folders that workers append to ``sys.path`` (the user's modules).
        crew: Runs workers side by side.
        caller: A function of the caller's as the reference, for workers that ask it.
    """

    workspace: Workspace
    stages: StageCache
    ui: Ui
    timeout: float
    path: tuple[str, ...]
    crew: WorkerPool
    caller: CallerFunction | None = None

    @property
    def root(self) -> Path:
        """The workspace's absolute folder."""
        return self.workspace.path.absolute()

    def work(
        self,
        title: str,
        verb: str,
        request: Value,
        result: type[R],
        log: str,
        memory: int = LIGHT,
        on_start: Callable[[], None] | None = None,
        imports: Sequence[str] = (),
    ) -> R:
        """Run a room's verb in a worker whose log is ``OUT/logs/{log}``, showing its progress.

        It starts when a core is free and ``memory`` bytes are; ``on_start`` is called then.
        ``imports`` are the slow modules that the verb needs, see `jobs.run`.

        Raises:
            FilesError: EDGE-FILES-001 or -007, the machine failed.
            EdgeError: as `jobs.run`.
        """
        with self.crew.admitted(title, memory), self.ui.stage(title) as tell:
            if on_start:
                on_start()
            try:
                return jobs.run(
                    verb,
                    request,
                    result,
                    self.root / "logs" / log,
                    timeout=self.timeout,
                    path=self.path,
                    on_progress=tell,
                    stop=self.crew.stop,
                    answer=self.caller.answer if self.caller else None,
                    imports=imports,
                )
            except (EdgeError, OSError) as error:
                # The machine's fault ends the command: as an artifact's it would be remembered.
                raise_machine_error(error, title)
                raise


@contextlib.contextmanager
def open_stage(
    out: str, ui: Ui, timeout: float, caller: CallerFunction | None = None
) -> Iterator[StageContext]:
    """Lock the workspace, hand out the bench, and leave no half-made thing behind.

    Raises:
        BundleError: another command holds the lock.
    """
    workspace = Workspace(Path(out))
    with workspace.lock():
        workspace.sweep()
        try:
            with WorkerPool() as crew:
                stages, path = StageCache(workspace), (str(Path.cwd()),)
                yield StageContext(workspace, stages, ui, timeout, path, crew, caller)
        finally:
            workspace.sweep()  # what a stage that failed was working on
